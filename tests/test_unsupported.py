"""Models with an operator that has no row: what does not depend on it is decided, and nothing holds."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

import ranum_falsify as rf
from ranum_falsify.network import registry

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "my.own" : 1]>'
ENDS = "g (float[3,3] x) => (float[3,3] y, float[3,3] z)"


@pytest.fixture(autouse=True)
def without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CDist", "Inverse", "TransposeMatMul", "Unique"):
        monkeypatch.delitem(registry._ROWS, ("com.microsoft", name), raising=False)


def model(body: str, ends: str = ENDS) -> onnx.ModelProto:
    return parse_model(f"{HEAD} {ends} {{ {body} }}")


def verdicts(result: rf.Result) -> dict[str, str]:
    return {op.node: op.verdict for op in result.operators}


def test_what_does_not_depend_on_it_is_proved() -> None:
    result = rf.check(model("a = com.microsoft.Inverse(x) y = Sin(a) e = Add(x, x) z = Log(e)"), box=(1, 2), n_starts=0)
    assert result.verdict == "unknown"
    assert verdicts(result) == {"Inverse_a": "open", "Sin_y": "open", "Add_e": "proved", "Log_z": "proved"}
    (box, after) = (op for op in result.operators if op.verdict == "open")
    assert box.reason == "operator com.microsoft::Inverse is not supported" and not box.after
    assert after.after == ("Inverse_a",)
    assert any("'Inverse_a'" in notice for notice in result.notices)


@pytest.mark.parametrize(
    ("body", "question"),
    [
        ("a = com.microsoft.Inverse(x) y = Neg(a) z = Log(x)", {"only": ["Log"]}),
        ("y, i, j = com.microsoft.Unique(x) z = Log(x)", {"only": ["Log"]}),
        ("a, y, j = com.microsoft.Unique(x) z = Neg(x)", {}),
    ],
)
def test_it_never_holds(body: str, question: dict[str, list[str]]) -> None:
    ends = ENDS if "Inverse" in body else "g (float[3] x) => (n y, float[3] z)"
    ends = ends.replace("(n y", "(int64[n] y" if "a, y" in body else "(float[n] y")
    result = rf.check(model(body, ends), box=(1, 2), n_starts=0, **question)  # type: ignore[arg-type]
    assert result.verdict == "unknown"


def test_a_property_of_its_output_never_holds(tmp_path: Path) -> None:
    prop = "Forall(x, Implies((1 <= x) & (x <= 2), N(x) >= -1e30))"
    header = "from dnnv.properties import *\nN = Network('N')\n"
    network = model("y = com.microsoft.Inverse(x)", "g (float[3,3] x) => (float[3,3] y)")
    assert rf.falsify(network, header + prop, n_starts=0).verdict == "unknown"


def test_its_own_violations_are_found() -> None:
    result = rf.check(model("a = com.microsoft.Inverse(x) y = Relu(a) z = Log(x)"), box=(1, 1), n_starts=2)
    assert result.verdict == "violated"
    assert verdicts(result) == {"Inverse_a": "violated", "Log_z": "proved"}
    (found,) = (op for op in result.operators if op.verdict == "violated")
    assert found.runtimes == ("onnxruntime",) or not found.runtimes, "PyTorch does not know it"


@pytest.mark.slow
def test_the_search_goes_through_it() -> None:
    """Sqrt fails only where the inverse of a diagonal is below 0.26, near one corner of the box."""
    body = "m = Mul(x, one) a = com.microsoft.Inverse(m) s = ReduceMax<keepdims = 0>(a) d = Sub(s, t) y = Sqrt(d)"
    ends = "g (float[3,3] x) => (float y) <float[3,3] one = {1, 0, 0, 0, 1, 0, 0, 0, 1}, float t = {0.26}>"
    result = rf.check(model(body, ends), box=(1, 4), n_starts=50)
    assert verdicts(result)["Sqrt_y"] == "violated"
    assert result.counterexample is not None


def test_infinity_behind_it_is_not_excused() -> None:
    """What it writes may be NaN or infinite; an operator behind it is not proved by that, nor blamed for it."""
    body = "a = com.microsoft.Inverse(x) y = Softmax(a) z = Identity(x)"
    result = rf.check(model(body), box=(1, 1), n_starts=2)
    assert verdicts(result)["Softmax_y"] == "open"


def test_gradients_go_through_it() -> None:
    result = rf.check(
        model("y = com.microsoft.TransposeMatMul<transB = 1>(x, x) z = Sqrt(x)"), box=(1, 2), gradient=True, n_starts=1
    )
    assert result.verdict == "unknown" and verdicts(result)["Sqrt_z"] == "proved"
    assert np.all([op.verdict != "violated" for op in result.operators])
