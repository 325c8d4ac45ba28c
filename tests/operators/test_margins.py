"""Margins as the search uses them: batched by `torch.func.vmap`, with gradients that point at a violation."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import find, read
from ranum_falsify.network.evaluate import apply
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.validity import Constraint, Finite

Margin = Callable[..., Tensor]


def margin_of(
    op_type: str, arrays: Sequence[Any], pick: Callable[[Any], Constraint], opset: int = 22, **attributes: Any
) -> Margin:
    """Return a constraint's margin as a function of the floating operands; integers are initializers."""
    g = ModelBuilder(opset=opset, ir_version=10)
    operands = [
        g.constant(array) if array.dtype.kind == "i" else g.input(f"x_{position}", array.shape, dtype=array.dtype.name)
        for position, array in enumerate(map(np.asarray, arrays))
    ]
    g.output(g.node(op_type, *operands, **attributes))
    spec = find(op_type, "")
    assert spec is not None
    (op,) = (node for node in read(g.build()).nodes if type(node) is spec.node)
    constraint = pick(spec)

    def evaluate(*floats: Tensor) -> Tensor:
        rest = iter(floats)
        values = [
            to_torch(v) if isinstance(v, np.ndarray) else None if v is None else next(rest)
            for v in spec.operands_of(op)
        ]
        outputs = apply(spec, op, values)
        operands = {name: value for name, value in spec.name_values(values).items() if value is not None}
        return constraint.margin(op, operands | {"output": outputs[0]})

    return evaluate


def valid(index: int = 0) -> Callable[[Any], Constraint]:
    return lambda spec: spec.valid[index]


def steep(index: int = 0) -> Callable[[Any], Constraint]:
    return lambda spec: spec.gradient_valid[index]


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


# Descent on the margin must lead to a violation: (operator, operands, constraint, attributes, step).
DESCENTS: list[Any] = [
    ("Log", [f32(5, 60)], valid(), {}, 1.0),
    ("Sqrt", [f32(5, 60)], valid(), {}, 1.0),
    ("Exp", [f32(-60, 5)], valid(), {}, 1.0),
    ("Acos", [f32(-0.9, 0.1)], valid(1), {}, 0.1),
    ("Atanh", [f32(-0.9, 0.1)], valid(0), {}, 0.1),
    ("Cosh", [f32(-3, 1)], valid(0), {}, 1.0),
    ("Reciprocal", [f32(-7, 3)], valid(), {}, 1.0),
    ("Div", [f32(1, 2), f32(-7, 3)], valid(), {}, 1.0),
    ("Pow", [f32(7, 3), f32(0.3, 1.5)], valid(0), {}, 1.0),
    ("Pow", [f32(7, 3), f32(-1, -2)], valid(1), {}, 1.0),
    ("ReduceLogSum", [f32([5, 6], [1, 2]), np.array([1])], valid(), {}, 1.0),
    ("Mul", [f32(1e4, 2), f32(3, 4)], lambda spec: Finite(), {}, 1e36),
    ("ReduceSumSquare", [f32([5, 6], [1, 2]), np.array([1])], lambda spec: Finite(), {}, 1e18),
    ("Softsign", [f32(1e30, 2)], valid(), {}, 1e37),
]


@pytest.mark.parametrize("case", DESCENTS, ids=lambda case: case[0])
def test_descent_reaches_a_violation(case: Any) -> None:
    op_type, arrays, pick, attributes, step = case
    margin = margin_of(op_type, arrays, pick, **attributes)
    x = [to_torch(a).clone().requires_grad_() for a in arrays if a.dtype.kind == "f"]
    least = margin(*x).min()
    assert least > 0
    for _ in range(200):
        if least < 0:
            break
        gradients = torch.autograd.grad(least, x, allow_unused=True)
        moved = [t if g is None else _stepped(t, g, step) for t, g in zip(x, gradients, strict=True)]
        x = [t.detach().requires_grad_() for t in moved]
        least = margin(*x).min()
    assert least < 0, "no violation after 200 steps"


def _stepped(x: Tensor, gradient: Tensor, step: float) -> Tensor:
    assert gradient.isfinite().all()
    target = x - step * gradient.sign()
    # A zero is stepped on, not over, as bisection between opposite signs does.
    return torch.where(x * target < 0, 0.0, target)


BATCHES: list[Any] = [
    ("Softmax", [f32([1, -math.inf, 2], [-math.inf] * 3)], valid(), {"opset": 13}),
    ("Softmax", [f32([[1, -math.inf], [2, 0]], [[-math.inf] * 2] * 2)], valid(), {"opset": 11, "axis": 1}),
    ("LogSoftmax", [f32([1, -math.inf, 2], [math.inf, 0, 1])], valid(), {"axis": 0}),
    ("Div", [f32(1, math.inf, 2), f32(0, 0, 3)], valid(), {}),
    ("Mod", [f32(1, math.inf, 2), f32(0, 0, 3)], valid(2), {"fmod": 1}),
    ("Pow", [f32(-1, 0, -math.inf), f32(0.5, -1, 0.5)], valid(0), {}),
    ("Pow", [f32(-1, 0, -math.inf), f32(0.5, -1, 0.5)], valid(1), {}),
    ("Gelu", [f32(-math.inf, math.inf, 1)], valid(), {}),
    ("ReduceLogSum", [f32([1, -1], [2, 3]), np.array([1])], valid(), {}),
    ("Sub", [f32(math.inf, 1), f32(math.inf, 2)], lambda spec: Finite(), {}),
    ("ReduceL2", [f32([0, 0], [2, 3]), np.array([1])], steep(), {}),
]


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case[0])
def test_a_batch_of_margins_is_that_of_its_samples(case: Any) -> None:
    op_type, arrays, pick, options = case
    margin = margin_of(op_type, arrays, pick, **options)
    floats = [to_torch(a) for a in arrays if a.dtype.kind == "f"]
    # The second sample is finite and ordinary, so that no sample may see what its neighbour holds.
    stacked = [torch.stack([x, torch.rand(x.shape) + 0.5, x.flip(0)]) for x in floats]
    together = torch.func.vmap(margin)(*stacked)
    torch.testing.assert_close(together, torch.stack([margin(*sample) for sample in zip(*stacked, strict=True)]))
    assert (together[0] < 0).any()
    assert not (together[1] < 0).any()


def test_the_margin_of_softmax_falls_with_every_masked_element() -> None:
    margin = margin_of("Softmax", [f32(1, 2, 3, 4)], valid())
    row = torch.tensor([1.0, 2.0, 3.0, 4.0])
    least = []
    for masked in range(5):
        row[:masked] = -math.inf
        least.append(float(margin(row).min()))
    assert least == sorted(least, reverse=True)
    assert least[-1] < 0 < least[-2]


STEEP: list[Any] = [
    ("Sqrt", [f32(0, 1)], steep(), {}),
    ("Asin", [f32(1, 0.5)], steep(1), {}),
    ("Asin", [f32(-1, 0.5)], steep(0), {}),
    ("Acos", [f32(1, 0.5)], steep(1), {}),
    ("Acos", [f32(-1, 0.5)], steep(0), {}),
    ("Acosh", [f32(1, 1.5)], steep(), {}),
    ("Pow", [f32(0, 1), f32(0.5, 0.5)], steep(), {}),
]


@pytest.mark.parametrize("case", STEEP, ids=lambda case: case[0])
def test_gradient_validity_is_where_torch_has_no_finite_derivative(case: Any) -> None:
    op_type, arrays, pick, _ = case
    margin = margin_of(op_type, arrays, pick)
    x = [to_torch(a) for a in arrays]
    assert (margin(*x) < 0).tolist() == [True, False]

    leaf = x[0].clone().requires_grad_()
    output = getattr(torch, op_type.lower())(leaf, *x[1:])
    (gradient,) = torch.autograd.grad(output.sum(), leaf)
    assert gradient.isfinite().tolist() == [False, True]
    assert output.isfinite().all()
