"""What a step of training runs: every operator of PyTorch, with the ends of what it writes and the line it is of."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ranum_falsify.api.sources import find_line
from ranum_falsify.monitor.limits import gauges_of, name_of

Line = tuple[str, int, bool]
"""File, line, and whether the operator belongs to the backward pass of this line; ("", 0, ...) if unknown."""


class Slot(NamedTuple):
    """Stands for a tensor among the arguments of a call: its place in the trace."""

    place: int


class RecordedCall(NamedTuple):
    """An operator as it ran.

    Attributes:
        func: The operator.
        args: Its arguments, a :class:`Slot` in place of every tensor.
        kwargs: Its keyword arguments, likewise.
        outputs: Places of what it returned.
        written: Places of operands that it changed, and the places of what they became.
        line: Where it comes from.
        sizes: Places of what the least size of each operand is stored at, by operand; see :class:`Trace`.
    """

    func: Any
    args: Any
    kwargs: Any
    outputs: tuple[int, ...]
    written: tuple[tuple[int, int], ...]
    line: Line
    sizes: dict[int, int]


@dataclass
class Trace:
    """A step.

    Attributes:
        calls: The operators, in the order in which they ran.
        leaves: Tensors that no operator of the step made, by place, as they were when they were first read.
        ends: The least and the greatest element of each tensor, (0, 0) where it holds none, NaN where it holds NaN.
        types: The type of each tensor, None where it holds no floats.
        random: State of the generator of each device before the step.
        names: What the leaves are called, as far as the one who recorded them says.
        lost: Whether a leaf was changed by what is not seen, so that the step cannot be run again exactly.
    """

    calls: list[RecordedCall] = field(default_factory=list)
    leaves: dict[int, Tensor] = field(default_factory=dict)
    ends: list[tuple[float, float]] = field(default_factory=list)
    types: list[torch.dtype | None] = field(default_factory=list)
    random: dict[str, Tensor] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    lost: bool = False


def numbers_in(value: Any) -> Iterator[int]:
    """Yield the places of tensors in the arguments of a call."""
    if type(value) is Slot:
        yield value.place
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers_in(part)
    elif isinstance(value, dict):
        yield from numbers_in(list(value.values()))


def draw_state() -> dict[str, Tensor]:
    """Return the state of the generator of each device."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


class Recorder(TorchDispatchMode):
    """Records a step, backward passes included.

    Ends are read on the device of a tensor and fetched together, when the step is over.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace(random=draw_state())
        self._known: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._stored: dict[tuple[int, tuple[int, ...]], int] = {}  # places by memory, for what autograd unpacks
        self._versions: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._ends: list[tuple[Tensor, Tensor] | int | None] = []
        self._forward: dict[int, Line] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, and record it."""
        kwargs = kwargs or {}
        if func.namespace in ("profiler", "prim"):
            return func(*args, **kwargs)
        kind = _kind_of(func)
        node = torch._C._current_autograd_node()
        read = self._encode(args, node is not None), self._encode(kwargs, node is not None)
        if kind.writes:
            self._keep(args, kwargs, kind)
        sizes = {}
        for place, operand in enumerate(args[:2]):
            if (
                isinstance(operand, Tensor)
                and operand.is_floating_point()
                and any(gauge.operand == place and gauge.kind == "off" for gauge in gauges_of(kind.name, operand.dtype))
            ):
                least = operand.abs().amin() if operand.numel() else None
                sizes[place] = self._note(operand.dtype, None if least is None else (least, least))
        result = func(*args, **kwargs)
        line = self._line(node)
        written = tuple(
            (self._known[id(x)][1], self._add(x, kind)) for x in _written(args, kwargs, kind) if id(x) in self._known
        )
        changed = {id(x) for x in _written(args, kwargs, kind)}
        outputs = tuple(
            self._known[id(x)][1] if id(x) in changed else self._add(x, kind, read[0])
            for x in (result if isinstance(result, list | tuple) else (result,))
            if isinstance(x, Tensor)
        )
        self.trace.calls.append(RecordedCall(func, *read, outputs, written, line, sizes))
        return result

    def finish(self) -> Trace:
        """Return what was recorded; nothing may run after this."""
        trace = self.trace
        trace.ends = _fetch(self._ends)
        trace.lost = any(
            (x := seen()) is not None and x._version != version for seen, version in self._versions.values()
        )
        self._known.clear()
        return trace

    def place_of(self, x: Tensor | None) -> int | None:
        """Return the place of a tensor, None where it was not seen."""
        known = self._known.get(id(x))
        return known[1] if known is not None and known[0]() is x else None

    def _line(self, node: Any) -> Line:
        if node is not None:
            file, number, _ = self._forward.get(node._sequence_nr(), ("", 0, True))
            return file, number, True
        line = (*(find_line(sys._getframe(2)) or ("", 0)), False)
        self._forward.setdefault(torch.autograd._get_sequence_nr() - 1, line)  # type: ignore[attr-defined]
        return line

    def _encode(self, value: Any, backward: bool) -> Any:
        if isinstance(value, Tensor):
            place = self.place_of(value)
            if place is None and backward:
                # Autograd unpacks what it saved as other tensors over the same memory.
                place = self._stored.get(_memory(value))
            return Slot(self._add_leaf(value) if place is None else place)
        if isinstance(value, list | tuple):
            return [self._encode(part, backward) for part in value]
        if isinstance(value, dict):
            return {name: self._encode(part, backward) for name, part in value.items()}
        return value

    def _add_leaf(self, x: Tensor) -> int:
        place = self._add(x, _LEAF)
        # Below autograd, what is detached counts its own versions.
        self.trace.leaves[place], self._versions[place] = x.detach(), (weakref.ref(x), x._version)
        return place

    def _add(self, x: Tensor, kind: _Kind, read: Sequence[Any] = ()) -> int:
        """Return a new place, for a tensor that was made or changed."""
        ends: tuple[Tensor, Tensor] | int | None = None
        if x.is_floating_point() and kind.reads:
            # What a view shows was read where it was made.
            base = next(numbers_in(list(read)), None) if kind.views else None
            ends = _ends_of(x) if base is None else base
        place = self._note(x.dtype if x.is_floating_point() else None, ends)
        self._known[id(x)] = weakref.ref(x), place
        if x.layout is torch.strided:
            self._stored[_memory(x)] = place
        return place

    def _note(self, dtype: torch.dtype | None, ends: tuple[Tensor, Tensor] | int | None) -> int:
        self._ends.append(ends)
        self.trace.types.append(dtype)
        return len(self._ends) - 1

    def _keep(self, args: Any, kwargs: Any, kind: _Kind) -> None:
        """Copy leaves that are about to change."""
        for x in _written(args, kwargs, kind):
            place = self.place_of(x)
            if place in self._versions:
                self.trace.leaves[place] = x.detach().clone()
                del self._versions[place]


class _Kind(NamedTuple):
    """What the schema of an operator says.

    Attributes:
        name: Its name.
        views: Whether it returns another look at its operand.
        reads: Whether its results hold anything; what is not initialised does not.
        writes: Places and names of the arguments that it changes.
    """

    name: str
    views: bool
    reads: bool
    writes: tuple[tuple[int, str], ...]


_LEAF = _Kind("", False, True, ())


@cache
def _kind_of(func: Any) -> _Kind:
    schema, name = func._schema, name_of(func)
    writes = tuple(
        (place, argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    views = not writes and any(output.alias_info is not None for output in schema.returns)
    return _Kind(name, views, not name.startswith(("empty", "new_empty")), writes)


def _written(args: Sequence[Any], kwargs: dict[str, Any], kind: _Kind) -> Iterator[Tensor]:
    for place, name in kind.writes:
        value = args[place] if place < len(args) else kwargs.get(name)
        yield from (x for x in (value if isinstance(value, list | tuple) else (value,)) if isinstance(x, Tensor))


def _memory(x: Tensor) -> tuple[int, tuple[int, ...]]:
    return x.data_ptr(), tuple(x.shape)


def _ends_of(x: Tensor) -> tuple[Tensor, Tensor] | None:
    if not x.numel() or x.layout is not torch.strided or x.dtype.itemsize < 2:
        return None
    least, greatest = torch.aminmax(x.detach())
    return least, greatest


def _fetch(read: Sequence[tuple[Tensor, Tensor] | int | None]) -> list[tuple[float, float]]:
    """Return numbers that wait on devices, by one transfer for each type and device."""
    groups: dict[Any, list[int]] = {}
    for place, ends in enumerate(read):
        if isinstance(ends, tuple):
            groups.setdefault((ends[0].dtype, ends[0].device), []).append(place)
    found = [(0.0, 0.0)] * len(read)
    for places in groups.values():
        flat = torch.stack([x for place in places for x in read[place]]).tolist()  # type: ignore[union-attr]
        for i, place in enumerate(places):
            found[place] = flat[2 * i], flat[2 * i + 1]
    for place, ends in enumerate(read):
        if isinstance(ends, int):
            found[place] = found[ends]
    return found
