"""Faults planted in rows, to measure how many of them are found by watching what ONNX Runtime computes.

A planting is one wrong rule of bounds in one small model: an operator of the case tables, between a product before each
operand and one after each result.  It counts only if it is wrong: in the box, one of a few points that are drawn apart
from those of the watch makes the operator's result, as ONNX Runtime computes it here, leave the bounds of the box, or
those of that point.  What changes no bound of the model, only widens bounds, lies within the measured errors of a
kernel, or keeps the property from being proved is drawn again: there is no wrong proof to find.  The window of a bound
that is a unit short lies around a number that occurs: common results are likelier to be affected than rare ones.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import onnx
import torch
from dnnv.nn import Operation

from ranum_falsify.config import ProveConfig
from ranum_falsify.domain import Interval
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import read, registry, spec_of
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.verify.prove.watch import list_bounds
from tests.domain.boxes import Array, Feeds
from tests.network.building import session
from tests.operators.harness import OperatorCase, model_of
from tests.verify.search.search_kit import valid_in_box

__all__ = ["KINDS", "Kind", "Tally", "plant", "surround"]

Kind = Literal["unit", "axis", "attribute"]
KINDS: tuple[Kind, ...] = ("unit", "axis", "attribute")

Rule = Callable[..., Any]
_FLOATS = (np.float32, np.float64)
_WITNESSES = 3
_AXES = ("axis", "axes", "perm", "batch_axis", "seq_axis", "time_axis")
_WINDOW = 0.01


class _Unfit(ValueError):
    """Nothing can be planted here."""


@dataclass
class Tally:
    """What became of plantings.

    Attributes:
        found: How many were found, by kind.
        missed: What was not, by kind.
        alarms: Models that are refused although nothing is planted.
        drawn: How often something was drawn.
    """

    found: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    missed: dict[Kind, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    alarms: list[str] = field(default_factory=list)
    drawn: int = 0

    @property
    def planted(self) -> int:
        """How many plantings there were."""
        return sum(self.found.values()) + sum(map(len, self.missed.values()))


def plant(cases: list[OperatorCase], count: int, seed: int = 0) -> Tally:
    """Plant faults of all kinds in turn, until there are enough.

    Args:
        cases: Operators, drawn at random.
        count: How many plantings.
        seed: Seed of all draws.
    """
    rng, tally = np.random.default_rng(seed), Tally()
    while tally.planted < count:
        tally.drawn += 1
        kind = KINDS[tally.planted % len(KINDS)]
        case = cases[int(rng.integers(len(cases)))]
        try:
            bed = _Bed(case, rng)
        except Exception:  # ONNX Runtime, or the reader, refuses such a model
            continue
        try:
            if alarm := bed.find_alarm():
                tally.alarms.append(f"{case.id}: {alarm}")
                continue
            label, rule = bed.draw(kind, rng)
            found = bed.is_found(rule, rng)
        except (RanumFalsifyError, RuntimeError, ValueError, IndexError, TypeError, OverflowError):
            continue
        if found:
            tally.found[kind] += 1
        else:
            tally.missed[kind].append(f"{case.id} ({label})")
    return tally


class _Bed:
    """A small model that is proved."""

    def __init__(self, case: OperatorCase, rng: np.random.Generator) -> None:
        arrays = case.arrays(int(rng.integers(1000)))
        model, feeds = model_of(case, arrays)
        finite = all(bool(np.isfinite(x).all()) for x in feeds.values() if x.dtype.kind in "fiub")
        if not finite or not any(x.dtype in _FLOATS and x.size for x in feeds.values()):
            raise _Unfit
        self.model = surround(model, feeds)
        self.graph = read(self.model)
        self.lower, self.upper = _box(feeds, rng)
        found = next((op for op in self.graph.nodes if op.name == "node"), None)
        if found is None:
            raise _Unfit
        self.op = found
        self.name = self.op.output_names[0]
        if any(spec_of(op).is_random(op) for op in self.graph.nodes) or spec_of(self.op).interval is None:
            raise _Unfit
        shown = copy.deepcopy(self.model)
        shown.graph.output.append(onnx.ValueInfoProto(name=self.name))
        self._session = session(shown, optimised=False)

    @cached_property
    def problem(self) -> Problem:
        """That no operator is invalid in the box."""
        plain = valid_in_box(self.graph, [(0.0, 1.0)] * len(self.graph.inputs))
        names = self.graph.input_names
        box = tuple(
            replace(v, lower=self.lower[name], upper=self.upper[name])
            for v, name in zip(plain.inputs, names, strict=True)
        )
        return replace(plain, inputs=box, regions=(box,))

    def find_alarm(self) -> str:
        """Return why the model, in which nothing is planted, is refused; "" if it is proved."""
        prover = self._prove()
        if prover.watched is not None and prover.watched.feeds:
            return next(iter(prover.watched.faults.values()))
        if not prover.proof.holds:
            raise _Unfit
        return ""

    def draw(self, kind: Kind, rng: np.random.Generator) -> tuple[str, Rule]:
        """Return a rule with a fault, and its name."""
        rule = spec_of(self.op).interval
        if kind == "unit":
            window = self._draw_window(rng)
            return f"from {window[0]:g} to {window[1]:g}", _shorten(rule, window)
        changes = list(_list_axes(self.op) if kind == "axis" else _list_attributes(self.op))
        if not changes:
            raise _Unfit
        label, change = changes[int(rng.integers(len(changes)))]
        return label, _change(rule, change)

    def is_found(self, rule: Rule, rng: np.random.Generator) -> bool:
        """Tell whether a wrong rule is noticed.

        Raises:
            _Unfit: It is not wrong, or nothing is proved with it.
        """
        with _planted(self.op, rule):
            if not any(self._is_left(point) for point in (self._draw_point(rng) for _ in range(_WITNESSES))):
                raise _Unfit
            prover = self._prove()
        if prover.proof.holds:
            return False
        if prover.watched is None or not prover.watched.feeds:
            raise _Unfit
        return True

    def _prove(self) -> Prover:
        prover = Prover(self.problem, ProveConfig(runtime=("onnxruntime",)))
        prover.analyse()
        return prover

    def _draw_point(self, rng: np.random.Generator) -> Feeds:
        point = {}
        for name, low in self.lower.items():
            share = rng.random(low.shape)
            high = self.upper[name]
            point[name] = (
                np.clip(low + (high - low) * share, low, high).astype(low.dtype) if low.dtype.kind == "f" else low
            )
        return point

    def _bounds(self, lower: Feeds, upper: Feeds) -> Interval:
        (call,) = self.problem.calls
        inputs = [Interval.box(lower[name], upper[name]) for name in self.graph.input_names]
        analysis = Prover(self.problem, ProveConfig(runtime=("onnxruntime",))).analyses_of(call).written
        analysis.run(inputs)
        for _, name, bounds in list_bounds(analysis):
            if name == self.name:
                return bounds
        raise _Unfit

    def _is_left(self, point: Feeds) -> bool:
        """Tell whether the operator's result at a point lies outside its bounds."""
        value = to_torch(self._session.run([self.name], dict(point))[0])
        known = (self._bounds(self.lower, self.upper), self._bounds(point, point))
        if any(bounds.shape != tuple(value.shape) or bounds.dtype != value.dtype for bounds in known):
            raise _Unfit
        return not all(bool(bounds.encloses(value).all()) for bounds in known)

    def _draw_window(self, rng: np.random.Generator) -> tuple[float, float]:
        whole, point = self._bounds(self.lower, self.upper), self._draw_point(rng)
        values = self._bounds(point, point).upper.double().flatten()
        low, high = (float(end) for end in whole.extremes)
        if whole.lower.dtype not in (torch.float32, torch.float64) or not high > low:
            raise _Unfit
        width = (high - low) * _WINDOW
        start = float(values[int(rng.integers(len(values)))]) - width * float(rng.random())
        return start, start + width


@contextmanager
def _planted(op: Operation, rule: Rule) -> Iterator[None]:
    """Let an operator's row have another rule in the block."""
    own = registry._BY_NODE[type(op)]
    registry._BY_NODE[type(op)] = replace(own, interval=rule)
    try:
        yield
    finally:
        registry._BY_NODE[type(op)] = own


def surround(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> onnx.ModelProto:
    """Put a product before each floating operand and after each floating result."""
    around = copy.deepcopy(model)
    graph, (node,) = around.graph, around.graph.node
    del graph.node[:]
    for name, x in feeds.items():
        if x.dtype in _FLOATS:
            factor = onnx.numpy_helper.from_array(np.asarray(0.75, x.dtype), f"{name}_factor")
            graph.initializer.append(factor)
            graph.node.append(onnx.helper.make_node("Mul", [name, factor.name], [f"{name}_scaled"], f"{name}_mul"))
    node.input[:] = [
        f"{name}_scaled" if name in feeds and feeds[name].dtype in _FLOATS else name for name in node.input
    ]
    graph.node.append(node)
    types = {y.name: y.type for y in session(around).get_outputs()}
    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64}
    outputs = list(graph.output)
    del graph.output[:]
    for output in outputs:
        kind = kinds.get(types[output.name])
        if kind is None:
            graph.output.append(output)
            continue
        factor = onnx.numpy_helper.from_array(np.asarray(0.5, kind), f"{output.name}_factor")
        graph.initializer.append(factor)
        graph.node.append(onnx.helper.make_node("Mul", [output.name, factor.name], [f"{output.name}_half"]))
        graph.output.append(onnx.ValueInfoProto(name=f"{output.name}_half"))
    return around


def _box(feeds: Mapping[str, Array], rng: np.random.Generator) -> tuple[dict[str, Array], dict[str, Array]]:
    radius = float(rng.choice((0.05, 0.2, 0.5)))
    ends: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
    for name, x in feeds.items():
        for end, side in zip(ends, (-radius, radius), strict=True):
            end[name] = (x + side).astype(x.dtype) if x.dtype in _FLOATS else x
    return ends


# faults ---------------------------------------------------------------------------------------------------------------

Change = Callable[[Operation, list[Any]], tuple[Operation, list[Any]]]
Named = tuple[str, Change]


def _shorten(rule: Any, window: tuple[float, float]) -> Rule:
    """Return a rule whose bounds of the first result are a unit short where they lie in a window."""

    @functools.wraps(rule, updated=("__dict__",))
    def short(*args: Any) -> Any:
        result = rule(*args)
        several = isinstance(result, tuple)
        first, *others = result if several else (result,)
        if not isinstance(first, Interval) or first.dtype not in (torch.float32, torch.float64):
            return result
        low, high = (_step(end, window, side) for end, side in ((first.lower, torch.inf), (first.upper, -torch.inf)))
        first = replace(first, lower=low, upper=torch.maximum(low, high))
        return (first, *others) if several else first

    return short


def _step(x: torch.Tensor, window: tuple[float, float], towards: float) -> torch.Tensor:
    inside = (x >= window[0]) & (x <= window[1])
    return torch.where(inside, torch.nextafter(x, torch.full_like(x, towards)), x)


def _change(rule: Any, change: Change) -> Rule:
    """Return a rule that sees another node, or other operands."""

    @functools.wraps(rule, updated=("__dict__",))
    def changed(site: Any, *operands: Any) -> Any:
        op, others = change(site if isinstance(site, Operation) else site.op, list(operands))
        try:
            return rule(op if isinstance(site, Operation) else replace(site, op=op), *others)
        except Exception as error:  # no rule is made for such values
            raise _Unfit from error

    return changed


def _list_axes(op: Operation) -> Iterator[Named]:
    """Yield changes of axes and permutations."""
    for name in _AXES:
        value = getattr(op, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            yield from (_set(name, other) for other in range(-3, 3) if other != value)
        elif isinstance(value, tuple | list | np.ndarray) and len(value) and all(float(v).is_integer() for v in value):
            yield from (
                _set(name, type(value)(other) if not isinstance(value, np.ndarray) else np.array(other, value.dtype))
                for other in (list(value)[::-1], [v - 1 for v in value], [v + 1 for v in value])
            )
    for position in range(len(spec_of(op).operands)):
        yield _transpose(position)
        yield _reverse(position)


def _list_attributes(op: Operation) -> Iterator[Named]:
    """Yield changes of attributes, to their defaults and to other values."""
    for name, value in vars(op).items():
        if name in ("name", *_AXES) or isinstance(getattr(type(op), name, None), cached_property):
            continue
        if isinstance(value, bool):
            yield _set(name, not value)
        elif isinstance(value, int):
            yield from (_set(name, other) for other in {0, 1, value + 1} - {value})
        elif isinstance(value, float):
            yield from (_set(name, other) for other in {0.0, 1.0, value * 1.5} - {value})
        elif isinstance(value, tuple | list) and value and all(isinstance(v, int | np.integer) for v in value):
            yield from (_set(name, type(value)(other)) for other in ([1] * len(value), [v + 1 for v in value]))


def _set(name: str, value: Any) -> Named:
    def change(op: Operation, operands: list[Any]) -> tuple[Operation, list[Any]]:
        other = copy.copy(op)
        kept = {key for key in vars(op) if isinstance(getattr(type(op), key, None), cached_property)}
        other.__dict__ = {key: x for key, x in vars(op).items() if key not in kept} | {name: value}
        return other, operands

    return f"{name} = {value}", change


def _transpose(position: int) -> Named:
    def change(op: Operation, operands: list[Any]) -> tuple[Operation, list[Any]]:
        x = operands[position]
        if isinstance(x, Interval):
            square = [i for i in range(len(x.shape) - 1) if x.shape[i] == x.shape[i + 1] > 1]
            if square:
                operands[position] = x.move(lambda end: end.transpose(square[0], square[0] + 1))
        return op, operands

    return f"operand {position} transposed", change


def _reverse(position: int) -> Named:
    def change(op: Operation, operands: list[Any]) -> tuple[Operation, list[Any]]:
        x = operands[position]
        if isinstance(x, Interval) and x.shape:
            operands[position] = x.move(lambda end: end.flip(len(x.shape) - 1))
        return op, operands

    return f"operand {position} reversed", change
