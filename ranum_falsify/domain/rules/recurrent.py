"""Recurrent layers in interval arithmetic, step by step as in the runtimes.

Everything is computed in float64, with the runtimes' roundings added to each result: for sums of products the error
bound of any order, for elementwise results a few roundings each.  Dimensions that all operands merge stay merged:
weights that are ranges cost one row per gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.error_bounds import sum_error, tiny, unit
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.rounding import round_outward

_ROOM = 0.25
"""Share of the largest number below which no partial sum overflows."""


class Overflow(Exception):
    """A partial sum may overflow, after which a runtime can compute anything."""


State = tuple[Enclosure, ...]
"""The hidden state, and the cell state of an LSTM, each `(batch, hidden)`."""

Curve = Callable[[Enclosure], Enclosure]
"""Bounds of an activation function."""

Step = Callable[[Enclosure, State], State]
"""From the projected input of one time step, `(batch, gates * hidden)`, and a state to the next state."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Arithmetic of one direction of a layer.

    Attributes:
        dtype: Type in which the runtimes compute.
        size: Size of the hidden state as it is stored: 1 where it is merged.
        hidden: Its size.
        inputs: Input weights, `(gates * size, input)`.
        weights: Recurrence weights, `(gates * size, hidden)`.
        input_bias: `(gates * size)`, or None.
        recurrence_bias: `(gates * size)`, or None.
        peepholes: `(3 * size)`, or None.
    """

    dtype: torch.dtype
    size: int
    hidden: int
    inputs: Enclosure
    weights: Enclosure
    input_bias: Enclosure | None
    recurrence_bias: Enclosure | None
    peepholes: Enclosure | None

    def project(self, x: Enclosure) -> Enclosure:
        """Return the input weights times the input."""
        return self.product(x, self.inputs)

    def recur(self, h: Enclosure, rows: slice = slice(None)) -> Enclosure:
        """Return the hidden state times rows of the recurrence weights."""
        return self.product(h.spread(h.low.shape[0], self.hidden), self.weights.map(lambda end: end[rows]))

    def product(self, a: Enclosure, b: Enclosure) -> Enclosure:
        """Return a times b transposed, with the error of the longest sum of which it may be a part.

        Raises:
            Overflow: A sum may overflow.
        """
        (centre, radius), (middle, width) = a.ball, b.ball
        near = centre @ middle.mT
        reach = centre.abs() + radius
        away = radius @ middle.abs().mT + reach @ width.mT
        size = reach @ (middle.abs() + width).mT
        terms = self.inputs.low.shape[-1] + self.hidden
        error = sum_error(terms, self.dtype, 8) * size + 2 * terms * tiny(self.dtype)
        self._check(size)
        return Enclosure(near - away, near + away).widen(error)

    def sum(self, *terms: Enclosure | None) -> Enclosure:
        """Return the sum of the terms that are present, in any order."""
        known = [term for term in terms if term is not None]
        size = reduce(torch.add, [term.size for term in known])
        self._check(size)
        return reduce(Enclosure.add, known).widen(sum_error(len(known), self.dtype, 4) * size)

    def times(self, a: Enclosure, b: Enclosure) -> Enclosure:
        """Return the elementwise product."""
        result = a.multiply(b)
        return result.widen(2 * unit(self.dtype) * result.size + tiny(self.dtype))

    def complement(self, a: Enclosure) -> Enclosure:
        """Return 1 - a."""
        result = a.map_falling(lambda end: 1 - end)
        return result.widen(2 * unit(self.dtype) * result.size)

    def _check(self, size: Tensor) -> None:
        if not bool((size < _ROOM * dtype_range(self.dtype)[1]).all()):
            raise Overflow


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Operands of a recurrent layer with time first.

    Attributes:
        x: `(time, batch, input)`.
        w: `(directions, gates * hidden, input)`.
        r: `(directions, gates * hidden, hidden)`.
        bias: `(directions, 2 * gates * hidden)`, or None.
        lengths: `(batch)`, or None.
        initial: `(directions, batch, hidden)` for each state, None for zeros.
        peepholes: `(directions, 3 * hidden)`, or None.
        gates: Number of gates.
        reversed: Whether each direction runs backwards.
    """

    x: Interval
    w: Interval
    r: Interval
    bias: Interval | None
    lengths: Interval | None
    initial: Sequence[Interval | None]
    peepholes: Interval | None
    gates: int
    reversed: Sequence[bool]

    @property
    def hidden(self) -> int:
        """Size of the hidden state."""
        return self.r.shape[-1]

    @property
    def size(self) -> int:
        """Stored size of the hidden state."""
        rows = [(self.w, 1), (self.r, 1), (self.bias, 1), (self.peepholes, 1), *((start, 2) for start in self.initial)]
        return 1 if all(x is None or x.lower.shape[dim] == 1 for x, dim in rows) else self.hidden

    @property
    def batch(self) -> int:
        """Stored size of the batch."""
        ones = [(self.x, 1), (self.lengths, 0), *((start, 1) for start in self.initial)]
        return 1 if all(x is None or x.lower.shape[dim] == 1 for x, dim in ones) else self.x.shape[1]

    def flow(self, number: int) -> Flow:
        """Return the arithmetic of one direction."""
        rows = self.gates * self.size
        both = None if self.bias is None else _part(self.bias, number, 2 * rows).chunk(2)
        return Flow(
            dtype=self.x.dtype,
            size=self.size,
            hidden=self.hidden,
            inputs=_part(self.w, number, rows, self.x.shape[2]),
            weights=_part(self.r, number, rows, self.hidden),
            input_bias=None if both is None else both[0],
            recurrence_bias=None if both is None else both[1],
            peepholes=None if self.peepholes is None else _part(self.peepholes, number, 3 * self.size),
        )

    def start(self, number: int) -> State:
        """Return the states from which a direction starts; for samples of length 0, ONNX Runtime returns zeros."""
        zero = torch.zeros(self.batch, self.size, dtype=torch.float64)
        states = [
            Enclosure(zero, zero) if given is None else _part(given, number, self.batch, self.size)
            for given in self.initial
        ]
        if self.lengths is not None and bool((self.lengths.lower <= 0).any()):
            states = [state.hull(Enclosure(zero, zero)) for state in states]
        return tuple(states)


def _part(x: Interval, number: int, *sizes: int) -> Enclosure:
    """Return one entry of the first dimension, of the given sizes."""
    at = number if x.lower.shape[0] > 1 else 0
    return Enclosure(*(end[at] for end in x.doubles())).spread(*sizes)


def layer_bounds(layer: Layer, step_of: Callable[[Flow, int], Step]) -> tuple[Interval, ...]:
    """Return bounds of all hidden states `(time, directions, batch, hidden)` and of the last states.

    Args:
        layer: The operands.
        step_of: Returns the step of a direction, by its number.

    Raises:
        Overflow: A partial sum may overflow, or no runtime takes the lengths.
    """
    time, batch, _ = layer.x.shape
    if layer.lengths is not None and bool(((layer.lengths.upper < 0) | (layer.lengths.lower > time)).any()):
        raise Overflow
    seen, last = [], []
    for number, backwards in enumerate(layer.reversed):
        flow = layer.flow(number)
        shown, state = _run(layer, flow, step_of(flow, number), layer.start(number), backwards)
        seen.append(shown)
        last.append(state)
    directions = len(layer.reversed)
    y = Enclosure.stack(seen, 1)
    states = [Enclosure.stack(parts) for parts in zip(*last, strict=True)]
    shapes = [(time, directions, batch, layer.hidden), *[(directions, batch, layer.hidden)] * len(states)]
    return tuple(_cast(part, layer.x.dtype, shape) for part, shape in zip((y, *states), shapes, strict=True))


def _run(layer: Layer, flow: Flow, step: Step, state: State, backwards: bool) -> tuple[Enclosure, State]:
    """Return the hidden state after each time step, 0 beyond a sample's length, and the last state."""
    time, _, inputs = layer.x.shape
    projected = flow.project(Enclosure(*layer.x.doubles()).spread(-1, -1, inputs))
    many = projected.low.shape[0] > 1
    zero = torch.zeros(layer.batch, layer.size, dtype=torch.float64)
    nothing, seen = Enclosure(zero, zero), list[Enclosure]()
    for at in reversed(range(time)) if backwards else range(time):
        here = at if many else 0
        new = step(Enclosure(projected.low[here], projected.high[here]), state)
        shown = new[0]
        if layer.lengths is not None:
            surely, maybe = ((at < end)[:, None] for end in (layer.lengths.lower, layer.lengths.upper))
            shown = shown.where(surely, shown.hull(nothing).where(maybe, nothing))
            new = tuple(a.where(surely, a.hull(b).where(maybe, b)) for a, b in zip(new, state, strict=True))
        seen.append(shown)
        state = new
    if backwards:
        seen.reverse()
    return Enclosure.stack(seen), state


def _cast(part: Enclosure, dtype: torch.dtype, shape: tuple[int, ...]) -> Interval:
    stored = tuple(1 if s == 1 else n for s, n in zip(part.low.shape, shape, strict=True))
    return round_outward(part.low.reshape(stored), part.high.reshape(stored), dtype, shape)


# steps ----------------------------------------------------------------------------------------------------------


def rnn_step(flow: Flow, activation: Curve) -> Step:
    """Return the step of an RNN."""

    def step(inputs: Enclosure, state: State) -> State:
        return (activation(flow.sum(inputs, flow.recur(state[0]), flow.input_bias, flow.recurrence_bias)),)

    return step


def _gru_gates(flow: Flow, gate: Curve, inputs: Enclosure, recurrent: Enclosure) -> list[Enclosure]:
    """Return the update and the reset gate."""
    two = 2 * flow.size
    biases = [None if b is None else b.last(0, two) for b in (flow.input_bias, flow.recurrence_bias)]
    return gate(flow.sum(inputs.last(0, two), recurrent, *biases)).chunk(2)


def _gru_mixed(flow: Flow, z: Enclosure, new: Enclosure, h: Enclosure) -> Enclosure:
    """Return (1 - z) new + z h, which lies between the two if z is in [0, 1]."""
    mixed = flow.sum(flow.times(flow.complement(z), new), flow.times(z, h))
    between = new.hull(h)
    # How far rounding takes z out of [0, 1], and the roundings of the mean itself.
    error = (z.high - 1).clamp(min=0) + (-z.low).clamp(min=0) + 8 * unit(flow.dtype)
    between = between.widen(2 * error * between.size + 4 * tiny(flow.dtype))
    return Enclosure(torch.maximum(mixed.low, between.low), torch.minimum(mixed.high, between.high))


def gru_step_reset_last(flow: Flow, gate: Curve, activation: Curve) -> Step:
    """Return the step of a GRU that resets the product of hidden state and weights."""
    two, three = 2 * flow.size, 3 * flow.size
    own, recurrent_bias = (None if b is None else b.last(two, three) for b in (flow.input_bias, flow.recurrence_bias))

    def step(inputs: Enclosure, state: State) -> State:
        (h,) = state
        recurrent = flow.recur(h)
        z, reset = _gru_gates(flow, gate, inputs, recurrent.last(0, two))
        kept = flow.times(reset, flow.sum(recurrent.last(two, three), recurrent_bias))
        new = activation(flow.sum(inputs.last(two, three), own, kept))
        return (_gru_mixed(flow, z, new, h),)

    return step


def gru_step_reset_first(flow: Flow, gate: Curve, activation: Curve) -> Step:
    """Return the step of a GRU that resets the hidden state."""
    two, three = 2 * flow.size, 3 * flow.size
    biases = [None if b is None else b.last(two, three) for b in (flow.input_bias, flow.recurrence_bias)]

    def step(inputs: Enclosure, state: State) -> State:
        (h,) = state
        z, reset = _gru_gates(flow, gate, inputs, flow.recur(h, slice(0, two)))
        recurrent = flow.recur(flow.times(reset, h), slice(two, three))
        new = activation(flow.sum(inputs.last(two, three), recurrent, *biases))
        return (_gru_mixed(flow, z, new, h),)

    return step


def lstm_step(flow: Flow, gate: Curve, activation: Curve, shown: Curve, coupled: bool) -> Step:
    """Return the step of an LSTM.

    Args:
        flow: Its arithmetic; peepholes are those of the input, output and forget gates.
        gate: Function of the gates.
        activation: Function of the cell's input.
        shown: Function of the cell state in the hidden state.
        coupled: Whether the forget gate is 1 minus the input gate.
    """
    peepholes = [None] * 3 if flow.peepholes is None else flow.peepholes.chunk(3)
    biases = [[None] * 4 if b is None else b.chunk(4) for b in (flow.input_bias, flow.recurrence_bias)]

    def peep(c: Enclosure, number: int) -> Enclosure | None:
        weights = peepholes[number]
        return None if weights is None else flow.times(weights.spread(*c.low.shape), c)

    def step(inputs: Enclosure, state: State) -> State:
        h, c = state
        parts = zip(inputs.chunk(4), flow.recur(h).chunk(4), *biases, strict=True)
        i, o, f, new = (list(part) for part in parts)
        entry = gate(flow.sum(*i, peep(c, 0)))
        kept = flow.complement(entry) if coupled else gate(flow.sum(*f, peep(c, 2)))
        c = flow.sum(flow.times(kept, c), flow.times(entry, activation(flow.sum(*new))))
        gated = gate(flow.sum(*o, peep(c, 1)))
        return flow.times(gated, shown(c)), c

    return step
