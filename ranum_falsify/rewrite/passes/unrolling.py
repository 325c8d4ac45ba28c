"""Recurrent layers, written out step by step in basic operators.

The first step from a state of zeros leaves out the products with it.  As in ONNX Runtime, `clip` bounds what gates and
new states are computed from, and not the cell state in the output of an LSTM.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.operands import (
    FLOATS,
    check_integers,
    constant,
    constant_array,
    dtype_of,
    float_attribute,
    given_attribute,
    integer,
    integer_attribute,
    integers,
    length_of,
    new_node,
    optional,
    rank_of,
    required_constant,
    text_attribute,
)
from ranum_falsify.rewrite.passes.blocks import clipped
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import Lowering, Op, RefusedError, is_read

_LONGEST = 256

_NO_PARAMETERS = ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")
# ONNX Runtime takes 0 for missing parameters of Affine, ScaledTanh and ThresholdedRelu, against the standard.
_DEFAULTS: dict[str, tuple[float | None, ...]] = {
    "Affine": (None, None),
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01,),
    "ScaledTanh": (None, None),
    "ThresholdedRelu": (None,),
}
_THRESHOLDED_RELU = 10  # opset


@dataclass(frozen=True)
class ActivationCall:
    """An activation function.

    Attributes:
        name: The operator of its name, or `Affine` or `ScaledTanh`, which there are none of.
        parameters: Its alpha and beta, as far as it has them.
    """

    name: str
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True)
class Way:
    """One direction of a layer.

    Attributes:
        is_reverse: Whether time runs backwards.
        w: The input weights of each gate, `(input, hidden)`.
        r: The recurrence weights of each gate, `(hidden, hidden)`.
        input_bias: The bias of each gate beside the input, `(hidden)`; None without.
        recurrent_bias: The bias of each gate beside the state, `(hidden)`; None without.
        peepholes: Those of input, output and forget gate, `(hidden)`; None without.
        activations: The activation functions, in the operator's order.
    """

    is_reverse: bool
    w: Sequence[np.ndarray]
    r: Sequence[np.ndarray]
    input_bias: Sequence[np.ndarray] | None
    recurrent_bias: Sequence[np.ndarray] | None
    peepholes: Sequence[np.ndarray] | None
    activations: Sequence[ActivationCall]


@dataclass(frozen=True)
class RecurrentLayer:
    """A recurrent layer with constant weights.

    Attributes:
        x: Its input.
        dtype: The element type.
        steps: How many time steps it takes.
        hidden: The size of its state.
        is_batch_first: Whether the first axis of its input is the batch, not time.
        clip: What the operands of activations are clipped to, 0 for nothing.
        initial: The states that it starts from; None for zeros.
        ways: Its directions.
    """

    x: ir.Value
    dtype: ir.DataType
    steps: int
    hidden: int
    is_batch_first: bool
    clip: float
    initial: Sequence[ir.Value | None]
    ways: Sequence[Way]


def read_layer(node: ir.Node, *, gates: int, functions: Sequence[str], states: int, opset: int) -> RecurrentLayer:
    """Return the layer that a node is.

    Raises:
        RefusedError: It cannot be written step by step.
    """
    x = node.inputs[0]
    assert x is not None
    dtype = dtype_of(x, FLOATS)
    if rank_of(x) != 3:
        raise RefusedError(f"{x.name!r} has rank {rank_of(x)}; 3 is wanted")
    is_batch_first = bool(integer_attribute(node, "layout", 0))
    steps = length_of(x, 1 if is_batch_first else 0)
    if steps > _LONGEST:
        raise RefusedError(f"it takes {steps:,} time steps; at most {_LONGEST} are written out")
    _check_lengths(optional(node, 4), steps)
    initial = [_start(optional(node, 5 + state)) for state in range(states)]
    ways = _read_ways(node, gates, functions, opset)
    return RecurrentLayer(
        x=x,
        dtype=dtype,
        steps=steps,
        hidden=len(ways[0].r[0]),
        is_batch_first=is_batch_first,
        clip=max(float_attribute(node, "clip", 0.0), 0.0),
        initial=initial,
        ways=ways,
    )


def _check_lengths(lengths: ir.Value | None, steps: int) -> None:
    if lengths is None:
        return
    array = required_constant(lengths, "the lengths of its sequences (sequence_lens) are")
    if (array != steps).any():
        raise RefusedError(f"its sequences have lengths of their own (sequence_lens); all must be {steps}")


def _start(value: ir.Value | None) -> ir.Value | None:
    """Return an initial state, None where it is zero."""
    array = None if value is None else constant_array(value)
    return None if array is not None and not array.any() else value


def _read_ways(node: ir.Node, gates: int, functions: Sequence[str], opset: int) -> list[Way]:
    name = text_attribute(node, "direction", "forward")
    reversals = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(name)
    if reversals is None:
        raise RefusedError(f"direction {name!r} is unknown")
    w, r = _weights(node, 1, "W"), _weights(node, 2, "R")
    bias, peepholes = _weights(node, 3, "B"), _weights(node, 7, "P")
    assert w is not None and r is not None
    if w.ndim != 3 or r.shape != (len(reversals), gates * r.shape[-1], r.shape[-1]) or w.shape[:2] != r.shape[:2]:
        raise RefusedError(f"its weights have shapes {list(w.shape)} and {list(r.shape)}, which do not fit")
    called = _read_activations(node, functions, len(reversals), opset)
    ways = []
    for number, is_reverse in enumerate(reversals):
        biases = None if bias is None else np.split(bias[number], 2 * gates)
        ways.append(
            Way(
                is_reverse=is_reverse,
                w=[part.T for part in np.split(w[number], gates)],
                r=[part.T for part in np.split(r[number], gates)],
                input_bias=None if biases is None else biases[:gates],
                recurrent_bias=None if biases is None else biases[gates:],
                peepholes=None if peepholes is None else np.split(peepholes[number], 3),
                activations=called[number * len(functions) :][: len(functions)],
            )
        )
    return ways


def _weights(node: ir.Node, position: int, name: str) -> np.ndarray | None:
    value = optional(node, position)
    return None if value is None else required_constant(value, f"its weights {name} are")


def _read_activations(node: ir.Node, functions: Sequence[str], directions: int, opset: int) -> list[ActivationCall]:
    """Return the activation functions of all directions; those with parameters take them in order."""
    given = given_attribute(node, "activations")
    names = [*functions] * directions if given is None else list(given.as_strings())
    if len(names) < len(functions) * directions:
        raise RefusedError(f"it names {len(names)} activations; {len(functions) * directions} are needed")
    known = {name.lower(): name for name in (*_NO_PARAMETERS, *_DEFAULTS)}
    sources: list[list[float]] = []
    for attribute_name in ("activation_alpha", "activation_beta"):
        found = given_attribute(node, attribute_name)
        sources.append([] if found is None else list(found.as_floats()))
    calls = []
    for name in names[: len(functions) * directions]:
        if name.lower() not in known:
            raise RefusedError(f"activation {name!r} is unknown")
        calls.append(_take_parameters(known[name.lower()], sources, opset))
    return calls


def _take_parameters(name: str, sources: Sequence[list[float]], opset: int) -> ActivationCall:
    if name == "ThresholdedRelu" and opset < _THRESHOLDED_RELU:
        raise RefusedError(f"ThresholdedRelu needs opset {_THRESHOLDED_RELU}; convert the model")
    parameters = []
    for source, default in zip(sources, _DEFAULTS.get(name, ()), strict=False):
        value = source.pop(0) if source else default
        if value is None:
            raise RefusedError(f"activation {name} has no parameters; runtimes differ in what they take instead")
        parameters.append(value)
    return ActivationCall(name, tuple(parameters))


_NEEDS = "opset 9; floats; a fixed number of time steps, at most 256; constant weights; sequences of full length"
_COMMON = "Constant Gather MatMul Add Mul Tanh Reshape Concat"

_State = tuple[ir.Value | None, ...]
"""The hidden state, and the cell state of an LSTM, each `(batch, hidden)`; None stands for zeros."""

_Step = Callable[[ir.Value, _State], _State]
"""From the input at a time, `(batch, input)`, and a state to the next state."""


class _Unrolling(Lowering):
    """A recurrent layer, step by step."""

    gates: ClassVar[int]
    functions: ClassVar[tuple[str, ...]]
    states: ClassVar[int] = 1

    def _accept(self, node: ir.Node, x: ir.Value) -> None:
        check_integers(self.opset)
        self._layer = read_layer(node, gates=self.gates, functions=self.functions, states=self.states, opset=self.opset)

    def _lower(self, op: Op, node: ir.Node, x: ir.Value) -> Any:
        layer = self._layer
        ways = [
            _run(op, layer, number, self._step_of(_Cell(op, layer, way, self.opset), node))
            for number, way in enumerate(layer.ways)
        ]
        return _join(op, layer, ways, [is_read(value) for value in node.outputs])

    @abstractmethod
    def _step_of(self, cell: _Cell, node: ir.Node) -> _Step:
        """Return one time step of a direction."""


@verify.tolerance
@register("unroll_rnn", takes="RNN", gives=_COMMON, needs=_NEEDS)
class UnrollRnn(_Unrolling):
    """RNN becomes a MatMul and an activation for each time step."""

    gates, functions = 1, ("Tanh",)

    def _step_of(self, cell: _Cell, node: ir.Node) -> _Step:
        """Return h' = f(x W + h R + b)."""

        def step(x: ir.Value, state: _State) -> _State:
            return (cell.activate(0, cell.gate(0, x, state[0])),)

        return step


@verify.tolerance
@register("unroll_gru", takes="GRU", gives=f"{_COMMON} Sigmoid Sub", needs=_NEEDS)
class UnrollGru(_Unrolling):
    """GRU becomes products, sums and activations for each time step."""

    gates, functions = 3, ("Sigmoid", "Tanh")

    def _step_of(self, cell: _Cell, node: ir.Node) -> _Step:
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
@register("unroll_lstm", takes="LSTM", gives=f"{_COMMON} Sigmoid", needs=_NEEDS)
class UnrollLstm(_Unrolling):
    """LSTM becomes products, sums and activations for each time step."""

    gates, functions, states = 4, ("Sigmoid", "Tanh", "Tanh"), 2

    def _step_of(self, cell: _Cell, node: ir.Node) -> _Step:
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
    """What the steps of a direction are built from; its constants are made once."""

    def __init__(self, op: Op, layer: RecurrentLayer, way: Way, opset: int) -> None:
        self.op = op
        self._layer, self._way, self._opset = layer, way, opset
        self._made: dict[tuple[str, float], ir.Value] = {}

    def number(self, value: float) -> ir.Value:
        """Return a number as a constant."""
        return self._constant("number", value, np.array(value))

    def gate(self, gate: int, x: ir.Value, h: ir.Value | None) -> ir.Value:
        """Return what a gate is computed from: x W + h R + both biases."""
        total = self.op.MatMul(x, self._constant("w", gate, self._way.w[gate]))
        if self._way.input_bias is not None and self._way.recurrent_bias is not None:
            bias = self._way.input_bias[gate] + self._way.recurrent_bias[gate]
            total = self.op.Add(total, self._constant("bias", gate, bias))
        return total if h is None else self.op.Add(total, self._product(gate, h))

    def project(self, gate: int, x: ir.Value) -> ir.Value:
        """Return x W + b for the bias beside the input."""
        total = self.op.MatMul(x, self._constant("w", gate, self._way.w[gate]))
        if self._way.input_bias is None:
            return total
        return self.op.Add(total, self._constant("input bias", gate, self._way.input_bias[gate]))

    def recur(self, gate: int, h: ir.Value | None) -> ir.Value | None:
        """Return h R + b for the bias beside the state; None where both are zero."""
        bias = None
        if self._way.recurrent_bias is not None:
            bias = self._constant("recurrent bias", gate, self._way.recurrent_bias[gate])
        if h is None or bias is None:
            return bias if h is None else self._product(gate, h)
        return self.op.Add(self._product(gate, h), bias)

    def peep(self, gate: int, total: ir.Value, c: ir.Value | None) -> ir.Value:
        """Return what a gate is computed from, with its view of the cell state."""
        if c is None or self._way.peepholes is None:
            return total
        view = self._constant("peephole", gate, self._way.peepholes[gate])
        return self.op.Add(total, self.op.Mul(view, c))

    def activate(self, position: int, x: ir.Value, *, clips: bool = True) -> ir.Value:
        """Return an activation of the direction, its operand clipped where the layer says so."""
        call = self._way.activations[position]
        limit = self._layer.clip
        if clips and limit:
            x = clipped(self.op, self._opset, x, -limit, limit, self._layer.dtype)
        if call.name == "Affine":
            alpha, beta = map(self.number, call.parameters)
            return self.op.Add(self.op.Mul(alpha, x), beta)
        if call.name == "ScaledTanh":
            alpha, beta = map(self.number, call.parameters)
            return self.op.Mul(alpha, self.op.Tanh(self.op.Mul(beta, x)))
        return new_node(self.op, call.name, x, **dict(zip(("alpha", "beta"), call.parameters, strict=False)))

    def _product(self, gate: int, h: ir.Value) -> ir.Value:
        return self.op.MatMul(h, self._constant("r", gate, self._way.r[gate]))

    def _constant(self, kind: str, number: float, array: np.ndarray) -> ir.Value:
        if (kind, number) not in self._made:
            self._made[kind, number] = constant(self.op, array, self._layer.dtype)
        return self._made[kind, number]


def _run(op: Op, layer: RecurrentLayer, number: int, step: _Step) -> tuple[list[ir.Value], Sequence[ir.Value]]:
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
    op: Op, layer: RecurrentLayer, ways: Sequence[tuple[list[ir.Value], Sequence[ir.Value]]], wanted: Sequence[bool]
) -> list[ir.Value | None]:
    """Return the outputs of a layer: the hidden states, and each last state, of all directions."""
    sizes, of_time, of_way = ([-1, 1, 1], 1, 2) if layer.is_batch_first else ([1, 1, -1], 0, 1)

    def join(values: Sequence[ir.Value], axis: int) -> ir.Value:
        return values[0] if len(values) == 1 else op.Concat(*values, axis=axis)

    def lift(value: ir.Value, shape: Sequence[int]) -> ir.Value:
        return op.Reshape(value, integers(op, [*shape, layer.hidden]))

    outputs: list[ir.Value | None] = [None] * len(wanted)
    if wanted and wanted[0]:
        outputs[0] = join([join([lift(h, sizes) for h in seen], of_time) for seen, _ in ways], of_way)
    shape, axis = ([-1, 1], 1) if layer.is_batch_first else ([1, -1], 0)
    for position in range(1, len(wanted)):
        if wanted[position]:
            outputs[position] = join([lift(last[position - 1], shape) for _, last in ways], axis)
    return outputs
