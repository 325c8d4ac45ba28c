"""Operators of PyTorch against bounds of their exports at points: they hold, or nothing is proved of the operator."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ranum_falsify.api import exporting, fidelity
from ranum_falsify.api.exporting import export
from ranum_falsify.api.fidelity import HALVES
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.errors import ModuleError
from ranum_falsify.network import read
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.operators.relations.unpublished import describe_unchecked

TEXT = Path(__file__).with_name("operators.txt").read_text(encoding="utf-8")
EXPRESSIONS = [line for line in TEXT.splitlines() if not line.startswith("#")]
OTHERWISE = {
    "atan2": "aten.atan2",
    "logcumsumexp": "aten.logcumsumexp",
    "cross(": "aten.linalg_cross",
    'scale_factor=1.7, mode="linear"': "aten.upsample_linear1d with rounded weights",
    'scale_factor=1.7, mode="bicubic"': "aten.upsample_bicubic2d with rounded weights",
    "size=(40, 40)": "aten.upsample_bilinear2d with rounded weights",
    "linspace(0, 1, 4": "aten.linspace with rounded steps",
    "linspace(-1.3": "aten.linspace with rounded steps",
    "arange(0, 3, 0.7": "aten.arange with rounded steps",
    "arange(0.1": "aten.arange with rounded steps",
}
"""What is known to be computed otherwise in every type."""

REFUSED = {("A[:8].prod(-1)", torch.float64)}
"""Derivatives that cannot be exported."""

SIZES = [10.0**n for n in range(-36, 31, 3)]
SIZES += [0.1, 0.3, 0.5, 0.7, 0.99, 1.0, 1.01, 1.4, 2.1, 2.345, 7.0, 16.6, 25.0, 88.0, 300.0, 1000.7, 5e4, 3e-5]


class Expression(nn.Module):
    """A module that computes an expression of two vectors, with other factors for each of its elements if it is given.

    Their derivatives are then those of the expression with other gradients in each element.
    """

    def __init__(self, text: str, factors: Tensor | None = None) -> None:
        super().__init__()
        self.text, self._code = text, compile(text, text, "eval")
        self._factors = factors

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        names = {"a": a, "b": b, "A": matrix(a), "B": matrix(b), "small": small, "image": image, "torch": torch, "F": F}
        names["table"] = lambda *rows: [torch.tensor(row, dtype=a.dtype) for row in rows]
        # Results that have no b take it as an argument all the same.
        found: Tensor = eval(self._code, names) + 0 * b.reshape(-1)[:1].sum()
        return found if self._factors is None else found * self._factors


def matrix(x: Tensor) -> Tensor:
    return x[: len(x) // 4 * 4].reshape(-1, 4)


def image(x: Tensor) -> Tensor:
    return x[:8].reshape(1, 2, 4, 4)


def small(x: Tensor) -> Tensor:
    return x.clamp(-30, 30)


def numbers(dtype: torch.dtype, *, tame: bool = False) -> tuple[Tensor, Tensor]:
    """Return two vectors of numbers of all sizes; of tame ones, no square, product or exponential overflows."""
    info = torch.finfo(dtype)
    least, largest = (1e-2, 8) if tame else (4 * info.tiny, info.max / 4)
    sizes = torch.tensor([x for x in SIZES if least < x < largest], dtype=torch.float64)
    random = torch.Generator().manual_seed(1)
    near = torch.randn(100, generator=random, dtype=torch.float64)
    a = torch.cat([torch.cat([sizes, -sizes]).repeat(4), near])
    b = torch.cat([a[:-100][torch.randperm(len(a) - 100, generator=random)], near * 1.01])
    return a.to(dtype), b.to(dtype)


TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_bounds_hold_what_pytorch_computes_or_nothing_is_proved(text: str, dtype: torch.dtype) -> None:
    module, arguments = Expression(text), numbers(dtype)
    try:
        result = module(*arguments)
    except (NotImplementedError, RuntimeError):
        pytest.skip("PyTorch has no kernel of this type")
    hold(module, arguments, [result])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_bounds_hold_the_derivatives_that_pytorch_computes(text: str, dtype: torch.dtype) -> None:
    a, b = (x.requires_grad_() for x in numbers(dtype, tame=dtype in HALVES))
    random = torch.Generator().manual_seed(3)
    try:
        like = Expression(text)(a, b)
        factors = torch.randn(like.shape, generator=random, dtype=torch.float64) * 2
        module = Expression(text, factors.to(like.dtype))
        result = module(a, b)
        found = torch.autograd.grad(result.sum(), [a, b], allow_unused=True)
    except (NotImplementedError, RuntimeError):
        pytest.skip("PyTorch has no kernel of this type, or no derivative")
    hold(module, (a, b), [result.detach(), *(x for x in found if x is not None)])


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("a * 3.14159", torch.float16),
        ("(a >= 0.1).to(a.dtype) * a", torch.bfloat16),
        ("F.gelu(a)", torch.float32),
        ('F.smooth_l1_loss(a, b, reduction="none", beta=0.7)', torch.float32),
        ("F.huber_loss(small(a), small(b), delta=0.7)", torch.float16),
        ('F.interpolate(image(A), scale_factor=2, mode="bilinear")', torch.float32),
        ("F.adaptive_avg_pool2d(image(A), (3, 3))", torch.float32),
        ("b.detach().clamp(0.1, 2) * a", torch.float32),
    ],
)
def test_some_bounds_hold_derivatives(text: str, dtype: torch.dtype) -> None:
    test_bounds_hold_the_derivatives_that_pytorch_computes(text, dtype)


def hold(module: Expression, arguments: tuple[Tensor, Tensor], results: list[Tensor]) -> None:
    """Hold bounds of an export, at a point, against what PyTorch computes there; derivatives where there are some."""
    if (module.text, arguments[0].dtype) in REFUSED and len(results) > 1:
        with pytest.raises(ModuleError):
            export(module, arguments, {}, gradient=True)
        return
    exported = export(module, arguments, {}, gradient=len(results) > 1)
    graph, dtype = read(exported.model), arguments[0].dtype
    unchecked = describe_unchecked(graph)
    known = next((name for part, name in OTHERWISE.items() if part in module.text), "")
    if unchecked:
        assert known == unchecked or dtype is not torch.float32
        return
    assert not known
    feeds = dict(zip(("a", "b"), (to_numpy(x.detach()) for x in arguments), strict=True))
    box = [Interval.box(feeds[name], feeds[name]) for name in graph.input_names]
    for bounds, result in zip(IntervalAnalysis(graph, runtimes=("torch",)).run(box), results, strict=True):
        assert bounds is not None
        assert bounds.dtype == result.dtype
        low, high = (end.expand(bounds.shape) for end in bounds.doubles())
        y = result.double()
        inside = (low <= y) & (y <= high) | ~y.isfinite() | (y.abs() < torch.finfo(dtype).tiny)
        assert inside.all(), (y[~inside], low[~inside], high[~inside])


ELSEWHERE = frozenset(
    """
    _native_batch_norm_legit_functional _safe_softmax _scaled_dot_product_efficient_attention
    _scaled_dot_product_flash_attention _weight_norm_interface _weight_norm_interface_backward batch_norm clamp_max gru
    lstm native_batch_norm native_dropout scatter_reduce std_mean var_mean
    """.split()
)
"""Operators that are other names of some that are tried, or that tests of losses, layers and derivatives run."""


@pytest.mark.slow
def test_every_operator_that_is_listed_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set[str]()

    def look(program: torch.fx.GraphModule, uses: set[fidelity.Use]) -> str:
        seen.update(name for name, _ in uses)
        seen.update(str(getattr(node.target, "overloadpacket", "")) for node in fidelity.calls_of(program))
        return ""

    monkeypatch.setattr(exporting, "find_unchecked", look)
    for text in EXPRESSIONS:
        arguments = numbers(torch.float32)
        export(Expression(text), arguments, {})
        with contextlib.suppress(ModuleError):  # not all have derivatives
            export(Expression(text), tuple(x.requires_grad_() for x in arguments), {}, gradient=True)
    tried = {name.removeprefix("aten.").removesuffix("_") for name in seen}
    assert fidelity._COMPUTING - tried == ELSEWHERE
