"""Counterexamples of models that are in no file lie beside these models, so that they replay."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

import ranum_falsify as rf
from ranum_falsify.cli import main

EQUAL = """
from dnnv.properties import *

N = Network("N")
M = Network("M")
Forall(x, Implies(0 <= x <= 1, N(x) == M(x)))
"""


def model(body: str) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {body}'
    return onnx.parser.parse_model(text)


def networks_of(description: Path) -> dict[str, dict[str, str]]:
    networks: dict[str, dict[str, str]] = json.loads(description.read_text())["networks"]
    return networks


def test_a_model_from_memory_is_saved_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = rf.check(model("{ [logarithm] y = Log(x) }"), box=(0, 1)).save(tmp_path / "cex")
    path = tmp_path / "cex.onnx"
    assert saved.models == {"N": path} and saved.description == tmp_path / "cex.json"
    assert networks_of(saved.description)["N"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert main(["replay", str(saved.description), "--network", "N", str(path)]) == 1
    told = capsys.readouterr()
    assert "logarithm (Log) gives infinity" in told.out and "differs" not in told.out + told.err


def test_several_models_have_their_names(tmp_path: Path) -> None:
    models = {"N": model("{ y = Abs(x) }"), "M": model("{ y = Neg(x) }")}
    saved = rf.falsify(models, EQUAL).save(tmp_path / "cex")
    assert saved.models == {name: tmp_path / f"cex.{name}.onnx" for name in models}
    assert {name: onnx.load(path).graph.node[0].op_type for name, path in saved.models.items()} == {
        "N": "Abs",
        "M": "Neg",
    }


def test_a_model_in_a_file_stays_there(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model("{ y = Log(x) }"), str(path))
    saved = rf.check(path, box=(0, 1)).save(tmp_path / "cex")
    assert saved.models == {"N": path}
    assert not (tmp_path / "cex.onnx").exists()


def test_nothing_is_saved_where_nothing_is_violated(tmp_path: Path) -> None:
    saved = rf.check(model("{ y = Relu(x) }"), box=(0, 1)).save(tmp_path / "cex")
    assert list(tmp_path.iterdir()) == [] and saved.models == {}
