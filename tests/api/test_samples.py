"""Models that do not run on zeros, because an input is a shape: they are read on what the question allows."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

import ranum_falsify as rf
from ranum_falsify.cli.app import main
from ranum_falsify.errors import ModelError

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
    with pytest.raises(ModelError, match="cannot run on operands of shapes"):
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
