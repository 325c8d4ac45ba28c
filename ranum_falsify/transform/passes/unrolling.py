"""Recurrent layers, written out step by step in basic operators.

The first step from a state of zeros leaves out the products with it.  As in ONNX Runtime, `clip` bounds what gates and
new states are computed from, and not the cell state in the output of an LSTM.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from ranum_falsify.transform import verify
from ranum_falsify.transform.attributes import integer_attribute
from ranum_falsify.transform.expansion import Expansion, Plan, is_read
from ranum_falsify.transform.operands import check_integers, constant, integer, integers
from ranum_falsify.transform.passes.blocks import clipped
from ranum_falsify.transform.passes.recurrence import RecurrentLayer, Way, read_layer
from ranum_falsify.transform.registry import register

__all__ = ["UnrollGru", "UnrollLstm", "UnrollRnn"]

_NEEDS = "opset 9; floats; a fixed number of time steps, at most 256; constant weights; sequences of full length"
_COMMON = ["Constant", "Gather", "MatMul", "Add", "Mul", "Tanh", "Reshape", "Concat"]

_State = tuple[ir.Value | None, ...]
"""The hidden state, and the cell state of an LSTM, each `(batch, hidden)`; None stands for zeros."""

_Step = Callable[[ir.Value, _State], _State]
"""From the input at a time, `(batch, input)`, and a state to the next state."""


class _Unrolling(Expansion):
    """A recurrent layer, step by step.

    Attributes:
        gates: How many gates it has.
        functions: Its activation functions, where the node names none.
        states: How many states it has.
    """

    gates: ClassVar[int]
    functions: ClassVar[tuple[str, ...]]
    states: ClassVar[int] = 1

    def plan(self, node: ir.Node, opset: int) -> Plan:
        """Return what writes a layer out."""
        check_integers(opset)
        layer = read_layer(node, gates=self.gates, functions=self.functions, states=self.states, opset=opset)

        def build(op: Any) -> Sequence[ir.Value | None]:
            ways = []
            for number, way in enumerate(layer.ways):
                cell = _Cell(op, layer, way, opset)
                ways.append(_run(op, layer, number, self.step_of(cell, node)))
            wanted = [is_read(value) for value in node.outputs]
            return _join(op, layer, ways, wanted)

        return build

    @abstractmethod
    def step_of(self, cell: _Cell, node: ir.Node) -> _Step:
        """Return one time step of a direction."""


@verify.tolerance
@register("unroll_rnn", takes=["RNN"], gives=_COMMON, needs=_NEEDS, needs_shapes=True)
class UnrollRnn(_Unrolling):
    """RNN becomes a MatMul and an activation for each time step."""

    operator, gates, functions = "RNN", 1, ("Tanh",)

    def step_of(self, cell: _Cell, node: ir.Node) -> _Step:
        """Return h' = f(x W + h R + b)."""

        def step(x: ir.Value, state: _State) -> _State:
            return (cell.activate(0, cell.gate(0, x, state[0])),)

        return step


@verify.tolerance
@register("unroll_gru", takes=["GRU"], gives=[*_COMMON, "Sigmoid", "Sub"], needs=_NEEDS, needs_shapes=True)
class UnrollGru(_Unrolling):
    """GRU becomes products, sums and activations for each time step."""

    operator, gates, functions = "GRU", 3, ("Sigmoid", "Tanh")

    def step_of(self, cell: _Cell, node: ir.Node) -> _Step:
        """Return h' = (1 - z) n + z h, where the reset gate acts on h, or on the product of h with its weights."""
        op, resets_product = cell.op, bool(integer_attribute(node, "linear_before_reset", 0))

        def new(x: ir.Value, h: ir.Value | None) -> ir.Value:
            subject = cell.recur(2, h) if resets_product else h
            kept = None if subject is None else op.Mul(cell.activate(0, cell.gate(1, x, h)), subject)
            if not resets_product:
                return cell.gate(2, x, kept)
            projected = cell.project(2, x)
            return projected if kept is None else op.Add(projected, kept)

        def step(x: ir.Value, state: _State) -> _State:
            (h,) = state
            z = cell.activate(0, cell.gate(0, x, h))
            kept = op.Mul(op.Sub(cell.number(1), z), cell.activate(1, new(x, h)))
            return (kept if h is None else op.Add(kept, op.Mul(z, h)),)

        return step


@verify.tolerance
@register("unroll_lstm", takes=["LSTM"], gives=[*_COMMON, "Sigmoid"], needs=_NEEDS, needs_shapes=True)
class UnrollLstm(_Unrolling):
    """LSTM becomes products, sums and activations for each time step."""

    operator, gates, functions, states = "LSTM", 4, ("Sigmoid", "Tanh", "Tanh"), 2

    def step_of(self, cell: _Cell, node: ir.Node) -> _Step:
        """Return c' = f c + i g and h' = o tanh(c'); the gates may see c through peepholes."""
        op, is_coupled = cell.op, bool(integer_attribute(node, "input_forget", 0))

        def step(x: ir.Value, state: _State) -> _State:
            h, c = state
            i = cell.activate(0, cell.peep(0, cell.gate(0, x, h), c))
            new = op.Mul(i, cell.activate(1, cell.gate(3, x, h)))
            if c is not None:
                f = op.Sub(cell.number(1), i) if is_coupled else cell.activate(0, cell.peep(2, cell.gate(2, x, h), c))
                new = op.Add(op.Mul(f, c), new)
            o = cell.activate(0, cell.peep(1, cell.gate(1, x, h), new))
            return op.Mul(o, cell.activate(2, new, clips=False)), new

        return step


class _Cell:
    """What the steps of a direction are built from; its constants are made once.

    Args:
        op: What builds operators.
        layer: The layer.
        way: The direction.
        opset: The opset.
    """

    def __init__(self, op: Any, layer: RecurrentLayer, way: Way, opset: int) -> None:
        self.op = op
        self._layer, self._way, self._opset = layer, way, opset
        self._made: dict[tuple[str, float], ir.Value] = {}

    def number(self, value: float) -> ir.Value:
        """Return a number as a constant."""
        return self._constant("number", value, np.array(value))

    def gate(self, gate: int, x: ir.Value, h: ir.Value | None) -> ir.Value:
        """Return what a gate is computed from: x W + h R + both biases."""
        total: ir.Value = self.op.MatMul(x, self._constant("w", gate, self._way.w[gate]))
        if self._way.input_bias is not None and self._way.recurrent_bias is not None:
            bias = self._way.input_bias[gate] + self._way.recurrent_bias[gate]
            total = self.op.Add(total, self._constant("bias", gate, bias))
        return total if h is None else self.op.Add(total, self._product(gate, h))

    def project(self, gate: int, x: ir.Value) -> ir.Value:
        """Return x W + b for the bias beside the input."""
        total: ir.Value = self.op.MatMul(x, self._constant("w", gate, self._way.w[gate]))
        if self._way.input_bias is None:
            return total
        biased: ir.Value = self.op.Add(total, self._constant("input bias", gate, self._way.input_bias[gate]))
        return biased

    def recur(self, gate: int, h: ir.Value | None) -> ir.Value | None:
        """Return h R + b for the bias beside the state; None where both are zero."""
        bias = None
        if self._way.recurrent_bias is not None:
            bias = self._constant("recurrent bias", gate, self._way.recurrent_bias[gate])
        if h is None or bias is None:
            return bias if h is None else self._product(gate, h)
        biased: ir.Value = self.op.Add(self._product(gate, h), bias)
        return biased

    def peep(self, gate: int, total: ir.Value, c: ir.Value | None) -> ir.Value:
        """Return what a gate is computed from, with its view of the cell state."""
        if c is None or self._way.peepholes is None:
            return total
        view = self._constant("peephole", gate, self._way.peepholes[gate])
        seen: ir.Value = self.op.Add(total, self.op.Mul(view, c))
        return seen

    def activate(self, position: int, x: ir.Value, *, clips: bool = True) -> ir.Value:
        """Return an activation of the direction, its operand clipped where the layer says so."""
        call = self._way.activations[position]
        limit = self._layer.clip
        if clips and limit:
            x = clipped(self.op, self._opset, x, -limit, limit, self._layer.dtype)
        made: ir.Value
        if call.name == "Affine":
            alpha, beta = map(self.number, call.parameters)
            made = self.op.Add(self.op.Mul(alpha, x), beta)
        elif call.name == "ScaledTanh":
            alpha, beta = map(self.number, call.parameters)
            made = self.op.Mul(alpha, self.op.Tanh(self.op.Mul(beta, x)))
        else:
            parameters = dict(zip(("alpha", "beta"), call.parameters, strict=False))
            made = getattr(self.op, call.name)(x, **parameters)
        return made

    def _product(self, gate: int, h: ir.Value) -> ir.Value:
        product: ir.Value = self.op.MatMul(h, self._constant("r", gate, self._way.r[gate]))
        return product

    def _constant(self, kind: str, number: float, array: np.ndarray) -> ir.Value:
        if (kind, number) not in self._made:
            self._made[kind, number] = constant(self.op, array, self._layer.dtype)
        return self._made[kind, number]


def _run(op: Any, layer: RecurrentLayer, number: int, step: _Step) -> tuple[list[ir.Value], Sequence[ir.Value]]:
    """Return the hidden states of a direction by time, and the last states."""
    axis = 1 if layer.is_batch_first else 0
    state: _State = tuple(
        None if start is None else op.Gather(start, integer(op, number), axis=axis) for start in layer.initial
    )
    seen: list[ir.Value] = []
    times = range(layer.steps)
    for time in reversed(times) if layer.ways[number].is_reverse else times:
        state = step(op.Gather(layer.x, integer(op, time), axis=axis), state)
        assert state[0] is not None
        seen.append(state[0])
    last = [value for value in state if value is not None]
    return seen[::-1] if layer.ways[number].is_reverse else seen, last


def _join(
    op: Any, layer: RecurrentLayer, ways: Sequence[tuple[list[ir.Value], Sequence[ir.Value]]], wanted: Sequence[bool]
) -> list[ir.Value | None]:
    """Return the outputs of a layer: the hidden states, and each last state, of all directions."""
    sizes, of_time, of_way = ([-1, 1, 1], 1, 2) if layer.is_batch_first else ([1, 1, -1], 0, 1)

    def join(values: Sequence[ir.Value], axis: int) -> ir.Value:
        joined: ir.Value = values[0] if len(values) == 1 else op.Concat(*values, axis=axis)
        return joined

    def lift(value: ir.Value, shape: Sequence[int]) -> ir.Value:
        lifted: ir.Value = op.Reshape(value, integers(op, [*shape, layer.hidden]))
        return lifted

    outputs: list[ir.Value | None] = [None] * len(wanted)
    if wanted and wanted[0]:
        outputs[0] = join([join([lift(h, sizes) for h in seen], of_time) for seen, _ in ways], of_way)
    shape, axis = ([-1, 1], 1) if layer.is_batch_first else ([1, -1], 0)
    for position in range(1, len(wanted)):
        if wanted[position]:
            outputs[position] = join([lift(last[position - 1], shape) for _, last in ways], axis)
    return outputs
