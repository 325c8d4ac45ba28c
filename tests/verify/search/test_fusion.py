"""Fused steps give what single steps give, and leave alone what must stay visible."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ranum_falsify.verify.search import converter
from ranum_falsify.verify.search.converter import TorchModel, convert
from tests.verify.search.search_kit import network

CONSTANTS = "w = Constant<value = float[3,2] {1, -2, 0.5, 3, 0.25, -1}>() b = Constant<value = float[2] {0.5, -1}>()"


def model(shape: str, out: str, body: str) -> TorchModel:
    return convert(network(f"(float[{shape}] x) => (float[{out}] y) {{ {CONSTANTS} {body} }}"))


def kernels(module: TorchModel) -> int:
    (plan,) = module._plans.values()
    return len(plan)


@pytest.mark.parametrize(
    ("shape", "out"),
    [("1,3", "1,2"), ("4,3", "4,2"), ("2,5,3", "2,5,2"), ("3", "2")],
    ids=["row", "rows", "rank 3", "vector"],
)
@pytest.mark.parametrize("body", ["p = MatMul(x, w) y = Add(p, b)", "p = MatMul(x, w) y = Add(b, p)"])
def test_product_and_sum_are_one_kernel(shape: str, out: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = model(shape, out, body)
    x = torch.randn([int(n) for n in shape.split(",")], requires_grad=True)
    (y,) = fused(x)
    assert kernels(fused) == 1
    monkeypatch.setattr(converter, "fuse", lambda steps, observed, kept: list(steps))
    plain = model(shape, out, body)
    (expected,) = plain(x)
    assert kernels(plain) == 2
    torch.testing.assert_close(y, expected)
    gradients = [torch.autograd.grad(z.sum(), x)[0] for z in (y, expected)]
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize(
    ("out", "body"),
    [
        ("1,2", "p = MatMul(x, w) s = Add(p, b) y = Mul(s, p)"),
        ("1,2", "p = MatMul(x, w) y = Add(p, p)"),
        ("1,2", "c = Constant<value = float[1] {2}>() p = MatMul(x, w) y = Add(p, c)"),
        ("3,2", "c = Constant<value = float[3,2] {1, 2, 3, 4, 5, 6}>() p = MatMul(x, w) y = Add(p, c)"),
        ("1,2", "p = MatMul(x, w) y = Sub(p, b)"),
        ("1,2", "p = MatMul(x, w) r = ReduceSum(x) y = Add(p, r)"),
    ],
    ids=["read twice", "doubled", "other width", "other rank", "difference", "no constant"],
)
def test_other_forms_stay_apart(out: str, body: str) -> None:
    module = model("1,3", out, body)
    module(torch.randn(1, 3))
    (plan,) = module._plans.values()
    assert len(plan) == body.count("(") - body.count("Constant")


def test_what_is_observed_stays_visible() -> None:
    module = model("1,3", "1,2", "p = MatMul(x, w) y = Add(p, b)")
    x = torch.randn(1, 3)
    seen: list[Tensor] = []
    for op in module.graph.nodes:
        _, found = module.observe([x], {id(op): lambda op, operands, outputs: operands[0]})
        seen += found
    product, total = module.graph.nodes
    assert [type(op).__name__ for op in (product, total)] == ["MatMul", "Add"]
    assert torch.equal(seen[0], x)
    torch.testing.assert_close(seen[1], x @ torch.tensor([[1, -2], [0.5, 3], [0.25, -1]]))
