"""The lines of PyTorch that a report gives do what the guard in the model does."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx.helper
import onnx.parser
import onnxruntime as ort
import pytest
import torch

import ranum_falsify as rf

BOX = """
from dnnv.properties import *
from ranum_falsify.properties import *

N = Network("N")
Forall(x, Implies(And({low} <= x, x <= {high}), no_invalid_input(N(x))))
"""


def total(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of a row, as the model does."""
    return x.sum(1, keepdim=True)


LINES: Mapping[str, tuple[str, tuple[float, float], Callable[[torch.Tensor], torch.Tensor], str]] = {
    "low": ("g (float[1, 6] x) => (float[1, 6] y) { [node] y = Log(x) }", (0, 2), torch.log, "x.clamp(min="),
    "added": ("g (float[1, 6] x) => (float[1, 6] y) { [node] y = Log(x) }", (0, 2), torch.log, "x + "),
    "high": ("g (float[1, 6] x) => (float[1, 6] y) { [node] y = Exp(x) }", (-9, 99), torch.exp, "x.clamp(max="),
    "both": ("g (float[1, 6] x) => (float[1, 6] y) { [node] y = Acos(x) }", (-2, 2), torch.acos, "x.clamp(min="),
    "gap": (
        "g (float[1, 6] x) => (float[1, 6] y) { [node] y = Reciprocal(x) }",
        (-1, 2),
        torch.reciprocal,
        "torch.where(x < 0",
    ),
    "scaled": (
        "g (float[1, 6] x) => (float[1, 1] y) <int64[1] axes = {1}> { [node] y = ReduceSum(x, axes) }",
        (-3e38, 3e38),
        total,
        "f(x / ",
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", LINES)
def test_lines_of_guards(name: str) -> None:
    text, (low, high), function, begins = LINES[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    repairs = rf.fix(model, BOX.format(low=low, high=high), by="guard", samples=0, n_starts=1, self_check=False)
    found = [(r, change) for r in repairs for change in r.changes if change.torch.split("= ", 1)[1].startswith(begins)]
    repair, change = found[0]
    session = ort.InferenceSession(repair.model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    rows = [rng.uniform(low, high, (1, 6)), np.zeros((1, 6)), np.full((1, 6), low), np.full((1, 6), high)]
    for row in rows:
        array = row.clip(low, high).astype(np.float32)
        scope = {"torch": torch, "x": torch.from_numpy(array.copy()), "f": function}
        exec(change.torch, scope)
        expected = scope["y"] if name == "scaled" else function(scope["x"])  # type: ignore[arg-type]
        assert isinstance(expected, torch.Tensor)
        (y,) = session.run(None, {"x": array})
        assert np.allclose(y, expected.numpy(), rtol=1e-5, atol=1e-7) and np.isfinite(y).all()


def test_lines_of_clips() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1, 6] x) => (float[1, 6] y) { [node] y = Log(x) }'
    )
    prop = BOX.format(low=-1, high=2)
    repair = rf.fix(model, prop, by="clip", at="input", samples=0, n_starts=1, self_check=False)[0]
    session = ort.InferenceSession(repair.model.SerializeToString(), providers=["CPUExecutionProvider"])
    array = np.array([[-1, 0, 1e-30, 0.5, 1, 2]], np.float32)
    scope = {"x": torch.from_numpy(array.copy())}
    exec(repair.changes[0].torch, scope)
    (y,) = session.run(None, {"x": array})
    assert np.allclose(y, torch.log(scope["x"]).numpy(), rtol=1e-5) and np.isfinite(y).all()


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("p = Softmax(x) y = Log(p)", "log_softmax"),
        ("p = Sigmoid(x) y = Log(p)", "logsigmoid"),
        ("e = Exp(x) s = Add(one, e) y = Log(s)", "softplus"),
    ],
)
def test_lines_of_rewrites(body: str, name: str) -> None:
    text = f"g (float[1, 6] x) => (float[1, 6] y) <float one = {{1}}> {{ {body} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    prop = BOX.format(low=-200, high=200)
    repair = rf.fix(model, prop, by="rewrite", samples=0, n_starts=1, self_check=False)[0]
    assert repair.changes[0].torch == name
    x = torch.linspace(-200, 200, 6)[None]
    options = {"dim": -1} if "softmax" in name else {}
    expected = getattr(torch.nn.functional, name)(x, **options)
    session = ort.InferenceSession(repair.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x.numpy()})
    assert np.allclose(y, expected.numpy(), rtol=1e-5, atol=1e-6)
