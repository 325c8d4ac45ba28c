"""Recurrent layers, spelled out step by step so that they run in batches and have derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain import Interval, Site
from ranum_falsify.domain.rules import recurrent as bounds
from ranum_falsify.domain.rules.support.building import unknown
from ranum_falsify.operators.support.conditions import WithinLimits
from ranum_falsify.operators.support.families import plain
from ranum_falsify.operators.support.gates import Activation, activations_of, curves_of

State = tuple[Tensor, ...]
"""The hidden state, and the cell state of an LSTM, each `(batch, hidden)`."""

Step = Callable[[Tensor, State], State]
"""From the projected input of one time step, `(batch, gates * hidden)`, and a state to the next state."""


@dataclass(frozen=True)
class Direction:
    """What one direction of a layer reads, `(time, batch, input)`.

    Input weights are `(gates * hidden, input)`, recurrence weights `(gates * hidden, hidden)`; `lengths` are the valid
    time steps per sample, or None where all are.
    """

    x: Tensor
    w: Tensor
    r: Tensor
    input_bias: Tensor | None
    recurrence_bias: Tensor | None
    reverse: bool
    lengths: Tensor | None

    @property
    def hidden(self) -> int:
        """Size of the hidden state."""
        return self.r.shape[-1]

    def project(self, bias: Tensor | None) -> Tensor:
        """Return the input weights times the input at all times, `(time, batch, gates * hidden)`."""
        product = self.x @ self.w.mT
        return product if bias is None else product + bias

    def recur(self, h: Tensor) -> Tensor:
        """Return the recurrence weights times a hidden state, `(batch, gates * hidden)`."""
        return h @ self.r.mT

    def run(self, step: Step, projected: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the hidden state after each time step, 0 beyond a sample's length, and the last state."""
        seen: list[Tensor] = [state[0]] * len(projected)
        times = range(len(projected))
        for time in reversed(times) if self.reverse else times:
            new = step(projected[time], state)
            shown = new[0]
            if self.lengths is not None:
                # Samples past their length keep their state; read backwards, they start at their last time step.
                inside = (time < self.lengths)[:, None]
                new = tuple(torch.where(inside, after, before) for after, before in zip(new, state, strict=True))
                shown = torch.where(inside, shown, 0)
            seen[time], state = shown, new
        return torch.stack(seen), state


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return None if a is None or b is None else a + b


def _layer(
    op: Operation,
    operands: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None],
    initial: Sequence[Tensor | None],
    run: Callable[[Direction, State, int], tuple[Tensor, State]],
    kind: type[Direction] | None = None,
) -> tuple[Tensor, ...]:
    """Run all directions of a layer on X, W, R, B and the lengths of sequences.

    States start from zeros where none is given.  `run` runs one direction, given its number, from a state; `kind` says
    how a direction multiplies, if not as it is.
    """
    x, w, r, bias, lengths = operands
    batch_first = bool(getattr(op, "layout", 0))
    x = x.transpose(0, 1) if batch_first else x
    starts = [_start(given, x, r, batch_first) for given in initial]
    outputs, states = [], []
    for i in range(w.shape[0]):
        of_input, of_recurrence = (None, None) if bias is None else bias[i].chunk(2)
        reverse = op.direction == "reverse" or i == 1
        direction = (kind or Direction)(x, w[i], r[i], of_input, of_recurrence, reverse, lengths)
        shown, state = run(direction, tuple(start[i] for start in starts), i)
        outputs.append(shown)
        states.append(state)
    y = torch.stack(outputs, 1)
    last = [torch.stack(parts) for parts in zip(*states, strict=True)]
    if batch_first:
        y, last = y.permute(2, 0, 1, 3), [part.transpose(0, 1) for part in last]
    return (y, *last)[: len(op.output_names)]


def _start(given: Tensor | None, x: Tensor, r: Tensor, batch_first: bool) -> Tensor:
    """Return an initial state as `(directions, batch, hidden)`."""
    if given is None:
        return x.new_zeros(r.shape[0], x.shape[1], r.shape[-1])
    return given.transpose(0, 1) if batch_first else given


# RNN ------------------------------------------------------------------------------------------------------------


def _rnn(op: Operation, x: Tensor, w: Tensor, r: Tensor, *others: Tensor | None) -> tuple[Tensor, ...]:
    b, lengths, initial_h = others
    functions = activations_of(op, ["Tanh"], w.shape[0])

    def run(direction: Direction, state: State, number: int) -> tuple[Tensor, State]:
        (activation,) = functions[number]

        def step(gates: Tensor, state: State) -> State:
            return (activation(gates + state[0] @ direction.r.mT),)

        projected = direction.project(_sum(direction.input_bias, direction.recurrence_bias))
        return direction.run(step, projected, state)

    return _layer(op, (x, w, r, b, lengths), [initial_h], run)


# GRU ------------------------------------------------------------------------------------------------------------


def _gru(op: Operation, x: Tensor, w: Tensor, r: Tensor, *others: Tensor | None) -> tuple[Tensor, ...]:
    b, lengths, initial_h = others
    functions = activations_of(op, ["Sigmoid", "Tanh"], w.shape[0])
    step_of = _gru_step_reset_last if op.linear_before_reset else _gru_step_reset_first

    def run(direction: Direction, state: State, number: int) -> tuple[Tensor, State]:
        step = step_of(direction, functions[number])
        return direction.run(step, direction.project(direction.input_bias), state)

    return _layer(op, (x, w, r, b, lengths), [initial_h], run)


def _gru_step_reset_last(direction: Direction, functions: Sequence[Activation]) -> Step:
    """Return the step that resets the product of hidden state and weights."""
    gate, activation = functions
    size, weights, bias = direction.hidden, direction.r.mT, direction.recurrence_bias

    def step(inputs: Tensor, state: State) -> State:
        (h,) = state
        recurrent = h @ weights if bias is None else h @ weights + bias
        z, reset = gate(inputs[..., : 2 * size] + recurrent[..., : 2 * size]).chunk(2, -1)
        new = activation(inputs[..., 2 * size :] + reset * recurrent[..., 2 * size :])
        return ((1 - z) * new + z * h,)

    return step


def _gru_step_reset_first(direction: Direction, functions: Sequence[Activation]) -> Step:
    """Return the step that resets the hidden state."""
    gate, activation = functions
    size, weights, bias = direction.hidden, direction.r.mT, direction.recurrence_bias

    def step(inputs: Tensor, state: State) -> State:
        (h,) = state
        inputs = inputs if bias is None else inputs + bias
        z, reset = gate(inputs[..., : 2 * size] + h @ weights[:, : 2 * size]).chunk(2, -1)
        new = activation(inputs[..., 2 * size :] + (reset * h) @ weights[:, 2 * size :])
        return ((1 - z) * new + z * h,)

    return step


# LSTM -----------------------------------------------------------------------------------------------------------


def lstm(
    op: Operation,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lengths: Tensor | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    peepholes: Tensor | None,
    kind: type[Direction] | None = None,
) -> tuple[Tensor, ...]:
    """Return the outputs of an LSTM; `kind` says how a direction multiplies, if not as it is."""
    functions = activations_of(op, ["Sigmoid", "Tanh", "Tanh"], w.shape[0])

    def run(direction: Direction, state: State, number: int) -> tuple[Tensor, State]:
        views = None if peepholes is None else peepholes[number].chunk(3)
        step = _lstm_step(direction, functions[number], views, bool(op.input_forget))
        projected = direction.project(_sum(direction.input_bias, direction.recurrence_bias))
        return direction.run(step, projected, state)

    return _layer(op, (x, w, r, b, lengths), [initial_h, initial_c], run, kind)


def _lstm_step(
    direction: Direction, functions: Sequence[Activation], peepholes: Sequence[Tensor] | None, coupled: bool
) -> Step:
    """Return the step; peepholes are those of the input, output and forget gates."""
    gate, activation, shown = functions

    def step(inputs: Tensor, state: State) -> State:
        h, c = state
        i, o, f, new = (inputs + direction.recur(h)).chunk(4, -1)
        if peepholes is not None:
            i, f = i + peepholes[0] * c, f + peepholes[2] * c
        i = gate(i)
        f = 1 - i if coupled else gate(f)
        c = f * c + i * activation(new)
        o = gate(o if peepholes is None else o + peepholes[1] * c)
        return o * shown(c), c

    return step


# bounds ---------------------------------------------------------------------------------------------------------


def _bound_layer(
    site: Site,
    operands: Sequence[Interval | None],
    initial: Sequence[Interval | None],
    peepholes: Interval | None,
    step_of: Callable[[bounds.Flow, int], bounds.Step],
) -> tuple[Interval, ...]:
    """Return the bounds of a layer's outputs, given those of X, W, R, B and the lengths of sequences."""
    op = site.op
    x, w, r, b, lengths = operands
    assert x is not None and w is not None and r is not None
    if not x.size or not r.size:
        return unknown(site)
    batch_first = bool(op.layout)
    turned = [None if h is None else _permute(h, (1, 0, 2)) for h in initial] if batch_first else initial
    layer = bounds.Layer(
        x=_permute(x, (1, 0, 2)) if batch_first else x,
        w=w,
        r=r,
        bias=b,
        lengths=lengths,
        initial=turned,
        peepholes=peepholes,
        gates=w.shape[1] // r.shape[-1],
        reversed=[op.direction == "reverse" or number == 1 for number in range(w.shape[0])],
    )
    try:
        y, *last = bounds.layer_bounds(layer, step_of)
    except bounds.Overflow:
        return tuple(replace(output, nan=True) for output in unknown(site))
    if batch_first:
        y, last = _permute(y, (2, 0, 1, 3)), [_permute(part, (1, 0, 2)) for part in last]
    return (y, *last)[: len(op.output_names)]


def _permute(x: Interval, order: Sequence[int]) -> Interval:
    return Interval(x.lower.permute(*order), x.upper.permute(*order), tuple(x.shape[dim] for dim in order))


def _rnn_bounds(site: Site, *operands: Interval | None) -> tuple[Interval, ...]:
    x, w = operands[:2]
    assert x is not None and w is not None
    curves = curves_of(site.op, ["Tanh"], w.shape[0], x.dtype)

    return _bound_layer(
        site, operands[:5], operands[5:6], None, lambda flow, number: bounds.rnn_step(flow, *curves[number])
    )


def _gru_bounds(site: Site, *operands: Interval | None) -> tuple[Interval, ...]:
    x, w = operands[:2]
    assert x is not None and w is not None
    curves = curves_of(site.op, ["Sigmoid", "Tanh"], w.shape[0], x.dtype)
    step_of = bounds.gru_step_reset_last if site.op.linear_before_reset else bounds.gru_step_reset_first
    return _bound_layer(site, operands[:5], operands[5:6], None, lambda flow, number: step_of(flow, *curves[number]))


def lstm_step_of(op: Operation, directions: int, dtype: torch.dtype) -> Callable[[bounds.Flow, int], bounds.Step]:
    """Return what gives the step of a direction of an LSTM, by its number."""
    names = ["Sigmoid", "Tanh", "Tanh"]
    curves = curves_of(op, names, directions, dtype)
    # ONNX Runtime clips what the activations read, except the cell state in the output.
    unclipped = curves_of(op, names, directions, dtype, clipped=False)
    coupled = bool(op.input_forget)

    def step_of(flow: bounds.Flow, number: int) -> bounds.Step:
        gate, activation, clipped = curves[number]
        shown = unclipped[number][2]
        return bounds.lstm_step(flow, gate, activation, lambda c: shown(c).hull(clipped(c)), coupled)

    return step_of


def _lstm_bounds(site: Site, *operands: Interval | None) -> tuple[Interval, ...]:
    x, w = operands[:2]
    assert x is not None and w is not None
    step_of = lstm_step_of(site.op, w.shape[0], x.dtype)
    return _bound_layer(site, operands[:5], operands[5:7], operands[7], step_of)


# conditions -----------------------------------------------------------------------------------------------------


WITHIN_TIME = WithinLimits(
    "sequence_lens",
    "0 <= sequence_lens <= the time steps of x",
    lambda op, operands: (0, int(operands["x"].shape[1 if getattr(op, "layout", 0) else 0])),
    reason="a sequence longer than its tensor, or of negative length",
    decided_by=("sequence_lens",),
)
"""Sequences are no longer than the tensor that holds them."""


@plain(torch=_rnn, interval=_rnn_bounds, valid=[WITHIN_TIME])
class RNN(Operation):
    """https://onnx.ai/onnx/operators/onnx__RNN.html."""


@plain(torch=_gru, interval=_gru_bounds, valid=[WITHIN_TIME], hides_nan=True)
class GRU(Operation):
    """https://onnx.ai/onnx/operators/onnx__GRU.html."""


@plain(torch=lstm, interval=_lstm_bounds, valid=[WITHIN_TIME], hides_nan=True)
class LSTM(Operation):
    """https://onnx.ai/onnx/operators/onnx__LSTM.html."""
