"""Findings in a recorded step: operators that fail first, those that pass a failure on, and distances to limits."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ranum_falsify.monitor.limits import Gauge, gauges_of, name_of, overflow_of, position_of, value_of
from ranum_falsify.monitor.recorder import Line, RecordedCall, Slot, Trace, numbers_in
from ranum_falsify.network.source import Source

_HALF = 0.5
_MOST_READINGS = 512


@dataclass(frozen=True)
class Cause:
    """An operator that made NaN or infinity of operands that do not explain it.

    Attributes:
        operator: Its name in PyTorch, such as `log`.
        kind: What came out.
        source: The line that called it; in the backward pass, the line of the forward pass that it belongs to.
        operands: The least and the greatest element of each operand.
        dtype: The type of its result.
    """

    operator: str
    kind: Literal["nan", "inf"]
    source: Source
    operands: tuple[tuple[float, float], ...]
    dtype: str

    def __str__(self) -> str:
        """Return it in a line."""
        read = ", ".join(f"{low:.6g}" if low == high else f"[{low:.6g}, {high:.6g}]" for low, high in self.operands)
        made = {"nan": "NaN", "inf": "infinity"}[self.kind]
        return f"{self.operator} gives {made} ({self.dtype}; operands: {read}) at {self.source or 'an unknown line'}"


@dataclass(frozen=True)
class Diagnosis:
    """What a step says of the first number that is not finite.

    Attributes:
        causes: The operators that made one, in the order in which they ran, those first whose NaN or infinity reached
            the gradients.
        carriers: The operators that only handed it on, as `name at line`, each once.
        leaves: Places of tensors that were not finite before the step began.
    """

    causes: tuple[Cause, ...]
    carriers: tuple[str, ...]
    leaves: tuple[int, ...]


def find_cause(trace: Trace, reached: Sequence[int] = ()) -> Diagnosis:
    """Return what made the numbers of a step that are not finite.

    Causes that none of the tensors `reached`, such as gradients, depends on are left out, unless that leaves none.
    """
    state = [_state_of(ends) for ends in trace.ends]
    causes: list[tuple[RecordedCall, Literal["nan", "inf"]]] = []
    carriers: list[RecordedCall] = []
    spoilt: set[int] = set()
    for call in trace.calls:
        written = *call.outputs, *(new for _, new in call.written)
        made, read = _worst(state[place] for place in written), [*numbers_in((call.args, call.kwargs))]
        if made == "finite" or not read:
            continue
        before = _worst((*(state[place] for place in read), *_constants((call.args, call.kwargs))))
        spoils = (made == "nan" and before != "nan") or (made == "inf" and before == "finite")
        # What reads an infinity that this step made, as `0 * inf`, is no cause of its own.
        if spoils and not spoilt.intersection(read):
            causes.append((call, made))
        elif not _is_silent(call):
            carriers.append(call)
        spoilt.update(place for place in written if state[place] != "finite" and (spoils or spoilt.intersection(read)))
    sources = _ancestors(trace.calls, reached)
    strict = [cause for cause in causes if sources.intersection(cause[0].outputs)] or causes
    passed = [call for call in carriers if not sources or sources.intersection(call.outputs)]
    used = {place for call in trace.calls for place in numbers_in((call.args, call.kwargs))}
    return Diagnosis(
        causes=tuple(_describe(trace, call, made) for call, made in strict),
        carriers=tuple(dict.fromkeys(f"{name_of(call.func)} ({_short_line(call.line)})" for call in passed)),
        leaves=tuple(p for p in trace.leaves if state[p] == "nan" and p in used and (p in sources or not sources)),
    )


def _short_line(line: Line) -> str:
    file, number, backward = line
    return f"{'backward of ' if backward else ''}{Path(file).name}:{number}"


def _is_silent(call: RecordedCall) -> bool:
    """Tell whether a call computes nothing."""
    return name_of(call.func) in ("detach", "view", "t", "transpose", "expand", "clone", "alias", "_unsafe_view")


def _state_of(ends: tuple[float, float]) -> Literal["finite", "inf", "nan"]:
    if math.isnan(ends[0]) or math.isnan(ends[1]):
        return "nan"
    return "inf" if math.isinf(ends[0]) or math.isinf(ends[1]) else "finite"


def _worst(states: Any) -> Literal["finite", "inf", "nan"]:
    known = set(states)
    return "nan" if "nan" in known else "inf" if "inf" in known else "finite"


def _constants(value: Any) -> Iterator[str]:
    """Yield what the numbers among the arguments of a call are."""
    if isinstance(value, float):
        yield _state_of((value, value))
    elif type(value) in (list, tuple):
        for part in value:
            yield from _constants(part)
    elif isinstance(value, dict):
        yield from _constants(list(value.values()))


def _ancestors(calls: Sequence[RecordedCall], reached: Sequence[int]) -> set[int]:
    """Return the places that tensors depend on, themselves included."""
    found = set(reached)
    for call in reversed(calls):
        made = {*call.outputs, *(new for _, new in call.written)}
        if not found.isdisjoint(made):
            found.update(made, numbers_in((call.args, call.kwargs)))
    return found


def _describe(trace: Trace, call: RecordedCall, kind: Literal["nan", "inf"]) -> Cause:
    places = [p for p in numbers_in((call.args, call.kwargs)) if trace.types[p] is not None]
    return Cause(
        operator=name_of(call.func),
        kind=kind,
        source=source_of(call.line),
        operands=tuple(trace.ends[place] for place in places),
        dtype=str(next((trace.types[p] for p in call.outputs), None)).removeprefix("torch."),
    )


def source_of(line: Line) -> Source:
    """Return the line of a call."""
    file, number, backward = line
    return Source(file, number, linecache.getline(file, number).strip() if file else "", backward=backward)


@dataclass
class _Trend:
    """What was seen of one limit at one line: the first reading, its position, and the worst position.

    `left` has steps, with the share that is left of the way to the limit: as many as tell how it moved.
    """

    first: tuple[int, float]
    start: float
    worst: float
    left: list[tuple[int, float]] = field(default_factory=list)

    def note(self, step: int, share: float) -> None:
        """Keep a reading, and every other one of those before when they become many."""
        self.left.append((step, share))
        if len(self.left) > _MOST_READINGS:
            del self.left[1::2]


class Trends:
    """How operators moved towards their limits while a run was watched.

    A warning is due when half of the way from the first reading to the limit is gone, and the last reading is the
    worst so far: a run that goes on as it did meets the limit within as many steps as it took.  Each line warns once.
    """

    def __init__(self) -> None:
        self._trends: dict[tuple[str, Line, Gauge], _Trend] = {}
        self._warned: set[tuple[str, int]] = set()

    def add(self, trace: Trace, step: int) -> list[str]:
        """Take the readings of a step; return the warnings that are due."""
        worst: dict[tuple[str, Line, Gauge], tuple[float, float, float]] = {}
        for call in trace.calls:
            for gauge, place, least_size in _readings(trace, call):
                dtype = trace.types[place]
                ends = trace.ends[place]
                if dtype is None or _state_of(ends) != "finite":
                    continue
                value = value_of(gauge, ends, least_size)
                position, end = position_of(gauge, value, max(map(abs, ends)), dtype)
                key = name_of(call.func), call.line, gauge
                worst[key] = max(worst.get(key, (-math.inf, 0.0, 0.0)), (position, value, end))
        due = (self._follow(key, step, *reading) for key, reading in worst.items())
        return [warning for warning in due if warning]

    def list_nearest(self, count: int) -> dict[str, list[tuple[int, float]]]:
        """Return how much was left of the way to the limits that came nearest, one of each line, by what names it."""
        nearest = sorted(self._trends.items(), key=lambda one: min(share for _, share in one[1].left))
        found: dict[tuple[str, int], tuple[str, list[tuple[int, float]]]] = {}
        for (name, line, _), trend in nearest:
            found.setdefault(line[:2], (f"{name} at {_short_line(line)}", trend.left))
        return dict(list(found.values())[:count])

    def _follow(self, key: tuple[str, Line, Gauge], step: int, position: float, value: float, end: float) -> str | None:
        name, line, gauge = key
        trend = self._trends.setdefault(key, _Trend((step, value), position, position))
        trend.note(step, 1 - position / end if end else 1.0)
        grows, trend.worst = position > trend.worst, max(trend.worst, position)
        gone = (position - trend.start) / max(end - trend.start, 1e-9)
        if not grows or gone < _HALF or line[:2] in self._warned:
            return None
        self._warned.add(line[:2])
        began, before = trend.first
        moved = {
            "below": f"operand grew from {before:.3g} to {value:.3g}",
            "size": f"result grew from {before:.3g} to {value:.3g} in size",
            "above": f"operand fell from {before + gauge.end:.3g} to {value + gauge.end:.3g}",
            "off": f"operand fell from {before:.3g} to {value:.3g} in size",
        }[gauge.kind]
        limit = gauge.text if gauge.kind in ("below", "size") else f"valid where {gauge.text}"
        return f"{name} at {replace(source_of(line), code='')}: {moved} in {step - began:,} steps; {limit}"


def _readings(trace: Trace, call: RecordedCall) -> Iterator[tuple[Gauge, int, float]]:
    """Yield the limits of a call, with the place of what each is about and its least size."""
    name = name_of(call.func)
    for operand, argument in enumerate(call.args[:2]):
        dtype = trace.types[argument.place] if type(argument) is Slot else None
        for gauge in gauges_of(name, dtype) if dtype is not None else ():
            if gauge.operand == operand:
                size = call.sizes.get(operand)
                yield gauge, argument.place, math.nan if size is None else trace.ends[size][0]
    for place in call.outputs[:1]:
        dtype = trace.types[place]
        over = overflow_of(name, dtype) if dtype is not None else None
        # Scalers make gradients in half precision as large as they can be.
        if over is not None and dtype is not None and not (call.line[2] and dtype.itemsize == 2):
            yield over, place, math.nan
