"""Losses as PyTorch computes them: values, derivatives and verdicts of their exports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import ranum_falsify as rf
from ranum_falsify.api.exporting import Exported, export
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.errors import ModuleError
from ranum_falsify.network import read
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.operators.relations.unpublished import describe_unchecked

PROBABILITIES = torch.tensor([[0.0, 1e-42, 1e-30, 0.3], [1.0, 1 - 6e-8, 0.5, 1e-7]])
LABELS = torch.tensor([[1.0, 1.0, 0.0, 0.25], [0.0, 1.0, 1.0, 0.0]])
POINTS = torch.tensor([[0.0, 0.0, 3.0], [0.5, -1.0, 2.0], [0.0, 0.0, 3.0]])
OTHERS = torch.tensor([[0.0, 0.0, 3.0], [1e-20, 0.0, 3.0]])


class Calls(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self._function(a, b)


CASES: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, Tensor], tuple[float, float]]] = {
    "bce": (functional.binary_cross_entropy, (PROBABILITIES, LABELS), (0, 1)),
    "bce_sum": (
        lambda a, b: functional.binary_cross_entropy(a, b, weight=torch.tensor([1.0, 2.0, 0.5, 1.0]), reduction="sum"),
        (PROBABILITIES, LABELS),
        (0, 1),
    ),
    "bce_each": (
        lambda a, b: functional.binary_cross_entropy(a, b, reduction="none"),
        (PROBABILITIES, LABELS),
        (0, 1),
    ),
    "kl": (
        lambda a, b: functional.kl_div(a.log_softmax(-1), b, reduction="batchmean"),
        (PROBABILITIES, LABELS),
        (0, 1),
    ),
    "xlogy": (torch.xlogy, (LABELS, PROBABILITIES), (0.001, 1)),
    "entropy": (lambda a, b: torch.special.entr(a) + b, (PROBABILITIES, LABELS), (0, 1)),
    "cdist": (torch.cdist, (POINTS, OTHERS), (-5, 5)),
    "cdist_1": (lambda a, b: torch.cdist(a, b, p=1.0), (POINTS, OTHERS), (-5, 5)),
    "cdist_inf": (lambda a, b: torch.cdist(a, b, p=float("inf")), (POINTS, OTHERS), (-5, 5)),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_pytorch(name: str) -> None:
    function, arguments, _ = CASES[name]
    (found,) = _run(export(Calls(function), arguments), arguments)
    np.testing.assert_allclose(found, function(*arguments).numpy(), rtol=2e-6, atol=1e-7)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["bce", "bce_sum", "bce_each", "cdist"])
def test_derivatives_are_those_of_pytorch(name: str) -> None:
    function, arguments, _ = CASES[name]
    _, *found = _run(export(Calls(function), arguments, gradient=True), arguments)
    leaves = [x.clone().requires_grad_() for x in arguments]
    function(*leaves).sum().backward()
    for one, leaf in zip(found, leaves, strict=True):
        assert leaf.grad is not None
        np.testing.assert_allclose(one, leaf.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", ["bce", "cdist", "kl"])
def test_they_hold_forward_and_backward(name: str, gradient: bool) -> None:
    function, arguments, box = CASES[name]
    options: dict[str, Any] = {"gradient": gradient, "n_starts": 20, "self_check": False}
    # The derivative with respect to labels is infinite where the probability is 0, in PyTorch, too.
    given = arguments[0].clone().requires_grad_(), arguments[1]
    assert rf.check(Calls(function), given, box=box, **options).verdict == "holds"


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["xlogy", "entropy"])
def test_they_hold_forward(name: str) -> None:
    function, arguments, box = CASES[name]
    ranges = {"a": (0, 1), "b": box}
    assert rf.check(Calls(function), arguments, box=ranges, n_starts=20, self_check=False).verdict == "holds"


def test_what_is_no_probability_is_refused_by_the_module_and_never_said_to_hold() -> None:
    function, arguments, _ = CASES["bce"]
    result = rf.check(Calls(function), arguments, box={"a": (-0.5, 1), "b": (0, 1)}, n_starts=20, self_check=False)
    assert result.verdict == "unknown"
    assert any("the module itself stops" in notice for notice in result.notices)


def _run(exported: Exported, arguments: Sequence[Tensor]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(exported.model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [info.name for info in exported.model.graph.input]
    found: list[np.ndarray] = session.run(None, dict(zip(names, (x.numpy() for x in arguments), strict=True)))
    return found


# Sizes at which a sum keeps nothing of a small term, and at which quotients and remainders are rounded.
SIZES = torch.tensor([10.0**n for n in range(-36, 31, 3)] + [0.1, 0.3, 0.5, 0.7, 1.4, 2.1, 7.0, 16.6, 25.0, 88.0])
NUMBERS = torch.cat([SIZES, -SIZES])
EXACT: dict[str, Callable[..., Tensor]] = {
    "log1p": lambda a, b: torch.log1p(a),
    "expm1": lambda a, b: torch.expm1(a),
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "log_sigmoid": lambda a, b: functional.logsigmoid(a),
    "bce": lambda a, b: functional.binary_cross_entropy(a.sigmoid(), torch.full_like(a, 0.25), reduction="none"),
    "remainder": lambda a, b: torch.remainder(a, 0.7) + torch.remainder(b, a),
    "floor_divide": lambda a, b: torch.floor_divide(a, 0.7),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "lerp_from_the_end": lambda a, b: torch.lerp(a, b, b.sigmoid()),
    "addcmul": lambda a, b: torch.addcmul(a, b, a.clamp(-3, 3), value=0.3),
    "addcdiv": lambda a, b: torch.addcdiv(a, b, a, value=0.3),
    "add": lambda a, b: torch.add(a, b, alpha=0.3) + torch.add(b, 0.7, alpha=-1.7),
    "sub": lambda a, b: torch.sub(a, b, alpha=3),
    "rsub": lambda a, b: torch.rsub(a, b, alpha=0.3) * torch.rsub(a, 0.7),
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}
NUMBERED: dict[str, Callable[..., Tensor]] = {
    "sum": lambda a, b: a + 0.1 - b * 0.7 + 0.3 / a,
    "clamp": lambda a, b: torch.where(a > 0.1, a.clamp(max=0.7), b.clamp(min=0.3)),
    "add": lambda a, b: torch.add(a, b, alpha=0.3),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch.addcmul(a, b, a.clamp(-3, 3), value=0.3),
    "kl": lambda a, b: functional.kl_div(a, b.abs(), reduction="none"),
    "normalize": lambda a, b: functional.normalize(a.reshape(-1, 2)) + b.reshape(-1, 2),
}
HALVES: dict[str, Callable[..., Tensor]] = {
    "sum": lambda a, b: a.reshape(-1, 2).sum(-1) + 0 * b[0],
    "sum_last": lambda a, b: (a + 0 * b).reshape(-1, 2).sum(-1),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch.addcmul(a, b, a.clamp(-3, 3), value=0.3),
    "sinc": lambda a, b: torch.sinc(a) + b,
}


@pytest.mark.parametrize("name", EXACT)
def test_bounds_hold_what_the_kernels_of_pytorch_give(name: str) -> None:
    _hold_against_pytorch(EXACT[name], torch.float32)


@pytest.mark.parametrize("name", NUMBERED)
def test_numbers_are_not_rounded_to_float32_in_float64(name: str) -> None:
    _hold_against_pytorch(NUMBERED[name], torch.float64)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HALVES)
def test_bounds_hold_what_kernels_give_in_half_precision(name: str, dtype: torch.dtype) -> None:
    _hold_against_pytorch(HALVES[name], dtype)


def _hold_against_pytorch(function: Callable[..., Tensor], dtype: torch.dtype) -> None:
    kept = NUMBERS[(NUMBERS.abs() < torch.finfo(dtype).max / 4) & (NUMBERS.abs() > torch.finfo(dtype).tiny)]
    module, arguments = Calls(function), ((kept).to(dtype), (kept.flip(0) / 3).to(dtype))
    graph = read(export(module, arguments, {}).model)
    assert not describe_unchecked(graph)
    feeds = dict(zip(("a", "b"), map(to_numpy, arguments), strict=True))
    (bounds,) = IntervalAnalysis(graph, runtimes=("torch",)).run(
        [Interval.box(feeds[x], feeds[x]) for x in graph.input_names]
    )
    assert bounds is not None
    result = module(*arguments)
    assert (bounds.dtype, tuple(bounds.shape)) == (dtype, tuple(result.shape))
    low, high = (end.expand(bounds.shape) for end in bounds.doubles())
    y, least = result.double(), torch.finfo(dtype).tiny
    inside = (low <= y) & (y <= high) | ~y.isfinite() | (y.abs() < least)
    assert inside.all(), (y[~inside], low[~inside], high[~inside])


@pytest.mark.parametrize(
    ("name", "function", "dtype"),
    [
        ("aten.logcumsumexp", lambda a, b: torch.logcumsumexp(a, -1) + b, torch.float32),
        ("aten.atan2", torch.atan2, torch.float32),
        (
            "aten.upsample_linear1d with rounded weights",
            lambda a, b: functional.interpolate(a, scale_factor=1.7, mode="linear"),
            torch.float32,
        ),
        ("aten.softshrink in bfloat16", lambda a, b: functional.softshrink(a, 0.7) + b, torch.bfloat16),
        ("aten.leaky_relu in float64", lambda a, b: functional.leaky_relu(a, 0.1) + b, torch.float64),
        ("aten.add with a factor in float16", lambda a, b: torch.add(a, b, alpha=0.3), torch.float16),
    ],
)
def test_what_kernels_compute_otherwise_is_not_proved(
    name: str, function: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    arguments = (torch.ones(1, 2, 4, dtype=dtype), torch.ones(1, 2, 4, dtype=dtype))
    result = rf.check(Calls(function), arguments, box=(0.5, 1), n_starts=4, self_check=False)
    assert result.verdict == "unknown"
    assert any(f"which may compute {name} otherwise" in notice for notice in result.notices)


def test_a_small_logarithm_is_not_lost() -> None:
    module = Calls(lambda a, b: torch.sqrt(-torch.log1p(a)) + b)
    result = rf.check(module, (torch.ones(2), torch.ones(2)), box={"a": (1e-10, 1e-9), "b": (0, 1)}, n_starts=4)
    assert result.verdict == "violated"


def test_what_no_composition_computes_is_refused() -> None:
    with pytest.raises(ModuleError, match=r"erfc.*nothing in ONNX has its results"):
        export(Calls(lambda a, b: torch.erfc(a) + b), (torch.ones(2), torch.ones(2)), {})
