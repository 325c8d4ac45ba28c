"""Models that do not run on zeros, because an input is a shape: they are read on what the question allows."""

from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

import ranum_falsify as rf
from ranum_falsify.api.instances import answer
from ranum_falsify.cli.app import main
from ranum_falsify.errors import ModelError
from ranum_falsify.suite.record import Instance
from ranum_falsify.suite.worker import Task

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,1] x, int64[2] s) => (float[m,n] y)'
EXPANDED = f"{HEAD} {{ e = Expand(x, s) y = Log(e) }}"
FILLED = f"{HEAD} {{ c = ConstantOfShape(s) e = Add(c, x) y = Log(e) }}"
PROPERTY = """from dnnv.properties import *
from ranum_falsify.properties import *
import numpy as np
N = Network("N")
Forall(x, Forall(s, Implies(And({low} <= x <= 2, s == np.array([2, 3])), no_invalid_input(N(x, s)))))
"""


@pytest.mark.parametrize("text", [EXPANDED, FILLED])
@pytest.mark.parametrize(("low", "verdict"), [(1, "holds"), (-1, "violated")])
def test_a_shape_that_the_box_fixes_is_used(text: str, low: int, verdict: str) -> None:
    model = parse_model(text)
    result = rf.check(model, box={"x": (low, 2), "s": np.array([2, 3])}, timeout=60, self_check=False)
    assert result.verdict == verdict
    prop = rf.load_property(PROPERTY.format(low=low))
    assert rf.falsify(model, prop, timeout=60, self_check=False).verdict == verdict


def test_without_a_shape_the_error_is_that_of_zeros() -> None:
    with pytest.raises(ModelError, match="cannot run on operands of shapes"):
        rf.check(parse_model(EXPANDED), box={"x": (1, 2)})


def test_a_shape_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(
        ModelError, match=r"cannot run on operands of shapes.*'s'\?\) needs a box with one value that fits"
    ):
        rf.check(parse_model(EXPANDED), box={"x": (1, 2), "s": np.array([3, 3])})


def test_the_command_line_reads_and_replays_such_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(parse_model(EXPANDED), tmp_path / "model.onnx")
    (tmp_path / "property.py").write_text(PROPERTY.format(low=-1))
    asked = [str(tmp_path / "property.py"), "--network", "N", str(tmp_path / "model.onnx"), "--no-self-check"]
    assert main([*asked, "--save-violation", str(tmp_path / "found.npy")]) == 1
    again = ["replay", str(tmp_path / "found.json"), "--network", "N", str(tmp_path / "model.onnx")]
    assert main(again) == 1
    assert "log" in capsys.readouterr().out.lower()
    assert main(["check", str(tmp_path / "model.onnx"), "--box", "x=1,2", "--box", "s=2", "--no-self-check"]) == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("low", "verdict"), [(1, "holds"), (-1, "violated")])
def test_converted_networks_are_read_on_the_same_values(
    dtype: Literal["float16", "bfloat16"], low: int, verdict: str, tmp_path: Path
) -> None:
    box = {"x": (low, 2), "s": np.array([2, 3])}
    result = rf.check(parse_model(EXPANDED), box=box, dtype=dtype, timeout=60, self_check=False, prove_timeout=1)
    assert result.verdict == verdict
    if verdict == "violated":
        saved = result.save(tmp_path / "found.npy")
        assert saved.description is not None and rf.replay(parse_model(EXPANDED), saved.description).violated


def test_properties_of_several_networks_are_asked_for_values_of_each() -> None:
    text = """from dnnv.properties import *
from ranum_falsify.properties import *
import numpy as np
N = Network("N")
M = Network("M")
shape = np.array([2, 3])
Forall(x, Forall(s, Implies(And(1 <= x <= 2, s == shape), And(no_invalid_input(N(x, s)), no_invalid_input(M(x, s))))))
"""
    models = {"N": parse_model(EXPANDED), "M": parse_model(FILLED)}
    assert rf.falsify(models, text, timeout=60, self_check=False).verdict == "holds"


@pytest.mark.parametrize("asks_property", [False, True])
def test_suites_read_as_the_commands_do(tmp_path: Path, asks_property: bool) -> None:
    onnx.save(parse_model(EXPANDED), tmp_path / "model.onnx")
    (tmp_path / "property.py").write_text(PROPERTY.format(low=1))
    question = {} if asks_property else {"box": {"x": [1, 2], "s": 2}}
    instance = Instance(
        id="one",
        category="",
        model="model.onnx",
        property="",
        networks={"N": "model.onnx"},
        question=question,
        property_path="property.py" if asks_property else None,
        options={"self_check": False},
        timeout=60,
    )
    places = {name: str(tmp_path / name) for name in ("model.onnx", "property.py")}
    found = answer(Task(instance=instance, stem="one", folder=str(tmp_path), places=places))
    assert found.status == "unsat", found.report


def test_other_values_of_the_box_are_tried_where_the_least_do_not_fit() -> None:
    model = parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[6] x, int64[2] s) => (float[m] y, float[n] z)'
        "{ a, z = Split <axis = 0> (x, s) y = Log(a) }"
    )
    result = rf.check(model, box={"x": (-1, 2), "s": (0, 6)}, timeout=60, self_check=False)
    assert result.verdict == "violated"
    with pytest.raises(ModelError, match="cannot be split"):
        rf.check(model, box={"x": (-1, 2), "s": (0, 4)})
