"""Graphs as PyTorch modules: what they give, what they keep, and how single operators are overridden."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.network import read
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.verify.search.converter import TorchConverter, convert
from tests.network.building import HEADS, chain, draw, parse, run
from tests.verify.search.search_kit import NETWORKS, network


def test_module_gives_what_onnx_runtime_gives() -> None:
    for file in sorted(NETWORKS.glob("*.onnx")):
        graph = read(file)
        arrays = [np.asarray(a).clip(0.1, 0.9) for a in draw(graph)]
        with torch.no_grad():
            ours = convert(graph)(*map(torch.from_numpy, arrays))
        for mine, theirs in zip(ours, run(graph.model, arrays), strict=True):
            np.testing.assert_allclose(to_numpy(mine), theirs, rtol=2e-3, atol=2e-4)


def test_several_outputs_of_one_operator() -> None:
    graph = read(parse(HEADS))
    x = torch.tensor([-1.0, 2.0, -3.0, 4.0])
    p, q = convert(graph)(x)
    torch.testing.assert_close(p, (-x[:2]).exp())
    torch.testing.assert_close(q, x[2:].abs().sqrt())


@pytest.mark.slow
def test_long_chains_need_no_recursion() -> None:
    graph = read(chain(["Neg"] * 5001))
    x = torch.randn(2, 3)
    assert torch.equal(convert(graph)(x)[0], -x)


def test_constants_are_buffers_and_move_with_the_module() -> None:
    graph = network("(float[2] x) => (float[2] y) { k = Constant<value = float[2] {1, 2}>() y = Add(x, k) }")
    model = convert(graph)
    assert [tuple(buffer.shape) for buffer in model.buffers()] == [(2,)]
    assert model.state_dict() == {}, "weights belong to the model file"
    moved = model.to("meta")
    assert all(buffer.device.type == "meta" for buffer in moved.buffers())
    assert moved(torch.empty(2, device="meta"))[0].device.type == "meta"


@pytest.mark.slow
def test_dead_tensors_are_freed_on_the_way() -> None:
    graph = network("(float[8] x) => (float[8] y) { a = Neg(x) b = Abs(a) c = Neg(b) y = Relu(c) }")
    seen: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def probe(op: Operation, operands: Sequence[Any], outputs: Sequence[Tensor]) -> Tensor:
        gc.collect()
        alive.append(sum(ref() is not None for ref in seen))
        seen.append(weakref.ref(outputs[0]))
        return outputs[0].sum()[None]

    with torch.no_grad():
        convert(graph).observe([torch.randn(8)], {id(op): probe for op in graph.nodes})
    assert len(alive) == 4
    assert max(alive) <= 1, "only the operand of the operator at hand"


def test_only_what_probes_need_is_evaluated() -> None:
    graph = network("(float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Relu(b) }")
    seen: list[str] = []

    def probe(op: Operation, operands: Sequence[Any], outputs: Sequence[Tensor]) -> Tensor:
        seen.append(type(op).__name__)
        return outputs[0]

    neg, _, relu = graph.nodes
    outputs, values = convert(graph).observe([torch.ones(2)], {id(neg): probe}, outputs=False)
    assert (outputs, seen) == ((), ["Neg"])
    assert torch.equal(values[0], -torch.ones(2))
    (y,), _ = convert(graph).observe([torch.ones(2)], {id(relu): probe})
    assert seen == ["Neg", "Relu"] and torch.equal(y, torch.ones(2))


def test_subclasses_override_single_operators() -> None:
    class Doubling(TorchConverter):
        def visit_Relu(self, operation: Operation) -> Callable[..., Tensor]:
            return lambda x: 2 * x.relu()

    graph = network("(float[2] x) => (float[2] y) { a = Neg(x) y = Relu(a) }")
    x = torch.tensor([-1.0, 3.0])
    assert torch.equal(Doubling().convert(graph)(x)[0], torch.tensor([2.0, 0.0]))
    assert torch.equal(convert(graph)(x)[0], torch.tensor([1.0, 0.0]))


def test_gradients_reach_the_inputs() -> None:
    graph = network("(float[2] x, float[2] w) => (float[2] y) { a = Mul(x, w) y = Exp(a) }")
    x, w = (torch.tensor(values, requires_grad=True) for values in ([0.5, -1.0], [2.0, 0.25]))
    (y,) = convert(graph)(x, w)
    y.sum().backward()
    assert x.grad is not None and w.grad is not None
    torch.testing.assert_close(x.grad, (w * y).detach())
    torch.testing.assert_close(w.grad, (x * y).detach())
