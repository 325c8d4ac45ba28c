"""Inputs without elements: every box holds them, and what becomes of them is decided."""

import numpy as np
import pytest
from onnx.parser import parse_model

import ranum_falsify as rf
from ranum_falsify.errors import UsageError
from tests.network.building import session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
PROPERTY = """from dnnv.properties import *
from ranum_falsify.properties import *
N = Network("N")
Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(x))))
"""


@pytest.mark.parametrize(
    "text", ["y = Log(x)", "y = Softmax<axis = 0>(x)", "y = ReduceMean<axes = [0]>(x)", "y = ReduceMax<axes = [0]>(x)"]
)
def test_an_input_without_elements_is_decided_as_onnx_runtime_computes_it(text: str) -> None:
    model = parse_model(f"{HEAD} g (float[0,2] x) => (float[n,2] y) {{ {text} }}")
    (found,) = session(model).run(None, {"x": np.zeros((0, 2), np.float32)})
    expected = "holds" if np.isfinite(found).all() else "violated"
    for box in (None, (0, 1), {"x": (1, 2)}):
        assert rf.check(model, box=box, timeout=30, self_check=False).verdict == expected
    result = rf.falsify(model, rf.load_property(PROPERTY), timeout=30, runtime="onnxruntime", self_check=False)
    assert result.verdict == expected


def test_other_inputs_keep_their_bounds() -> None:
    model = parse_model(
        f"{HEAD} g (float[0,2] x, float[2] b) => (float[2] y, float[0,2] w) {{ y = Log(b) w = Add(x, b) }}"
    )
    for low, verdict in ((1, "holds"), (0, "violated")):
        assert rf.check(model, box={"x": (0, 1), "b": (low, 2)}, timeout=30, self_check=False).verdict == verdict


def test_a_model_without_inputs_is_refused_unless_its_weights_range() -> None:
    model = parse_model(f"{HEAD} g () => (float[1] y) <float[1] k = {{1}}> {{ y = Exp(k) }}")
    with pytest.raises(UsageError, match=r"^the model has no inputs.*--free NAME"):
        rf.check(model)
    assert rf.check(model, free=["k"], timeout=30, self_check=False).verdict == "holds"
