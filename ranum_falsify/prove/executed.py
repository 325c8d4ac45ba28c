"""The graph that ONNX Runtime runs in place of a network, compared with the network as written.

ONNX Runtime's optimiser folds and fuses operators, but keeps the names of the tensors that remain.  So an operator of
the graph that it writes computes a *part* of the written one: everything that lies between its output and the nearest
tensors before it that both graphs have.  If it may fail, its part is not proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.domain import Interval
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.optimised import Optimised
from ranum_falsify.network.order import operands_in
from ranum_falsify.prove.checked import Checked
from ranum_falsify.validity import Bounds, Constraint, Finite

_PLAIN_CAST = "InsertedPrecisionFreeCast_"
"""Prefix that ONNX Runtime gives the name of a tensor that it holds in float32 instead of float16."""


@dataclass(frozen=True)
class AsExecuted(Finite):
    """The operator that ONNX Runtime runs in place of another is valid.

    Attributes:
        rewritten: The operator that it runs, or what is known instead.
    """

    rewritten: str = ""
    reason: str = "ONNX Runtime's graph optimisations may make an invalid operator of it"

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`; bounds of the operator as written say nothing about it."""
        return False

    def describe(self) -> str:
        """See :meth:`Constraint.describe`."""
        return f"valid as ONNX Runtime runs it ({self.rewritten})"


@dataclass(frozen=True)
class Uncovered(Finite):
    """The operator is valid on processors of whose kernels no bounds are known.

    Attributes:
        where: The processors, and the kernels.
    """

    where: str = ""
    reason: str = "no bounds are known of kernels that the network runs there"

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`; no bounds are about those kernels."""
        return False

    def describe(self) -> str:
        """See :meth:`Constraint.describe`."""
        return f"valid on {self.where}"


class Execution:
    """The graph that runs in place of a written one.

    Attributes:
        graph: The graph; None if it is not known, so that nothing is proved for it.
    """

    def __init__(self, written: Graph, optimised: Optimised, uncovered: str = "") -> None:
        self.graph = optimised.graph
        fault = AsExecuted(rewritten=optimised.fault or optimised.refusal)
        self._fault = Uncovered(where=uncovered) if uncovered else fault
        # It is kept as long as the written graph, so it must not keep that in turn.
        self._inputs = written.input_names
        self._nodes = [id(op) for op in written.nodes]
        self._parts: Mapping[int, frozenset[int]] = {}
        self._broken = frozenset[int]()
        if self.graph is not None:
            self._parts = _Correspondence(written, self.graph).parts()
            self._broken = frozenset(_find_made_infinite(written, self.graph, self._parts))

    def inputs(self, graph: Graph, written: Sequence[Interval]) -> list[Interval]:
        """Return bounds of the inputs of the graph that runs.

        Args:
            graph: The graph that runs.
            written: Bounds of the inputs of the written graph.
        """
        boxes = dict(zip(self._inputs, written, strict=True))
        return [boxes[name] for name in graph.input_names]

    def runs(self, written: frozenset[int]) -> frozenset[int]:
        """Return the operators that compute a part of some written ones, all by `id`."""
        return frozenset(key for key, part in self._parts.items() if not written.isdisjoint(part))

    def narrow(self, written: Checked, executed: Checked | None) -> Checked:
        """Return what holds for the written graph if it must also hold as it is run.

        Args:
            written: What holds as written.
            executed: What holds for the graph that runs; None if that is not known.
        """
        found = {key: list(conditions) for key, conditions in written.open.items()}
        for key, condition in self._faults(executed):
            found.setdefault(key, []).append(condition)
        outputs = [None] * len(written.outputs) if executed is None else executed.outputs
        return Checked(
            tuple(_hull(a, b) for a, b in zip(written.outputs, outputs, strict=True)),
            {key: tuple(dict.fromkeys(conditions)) for key, conditions in found.items()},
            written.open_gradient,
            (*written.constants, *(executed.constants if executed is not None else ())),
            written.varying,
            written.inside,
        )

    def _faults(self, executed: Checked | None) -> Iterator[tuple[int, Constraint]]:
        """Yield each written operator, by `id`, that runs as part of an operator that may fail."""
        if self.graph is None or executed is None:
            yield from ((key, self._fault) for key in self._nodes)
            return
        for op in self.graph.nodes:
            if id(op) in executed.open or id(op) in self._broken:
                yield from self._blame(op, f"{spec_of(op).op_type} {op.name}")

    def _blame(self, op: Operation, rewritten: str) -> Iterator[tuple[int, Constraint]]:
        return ((key, AsExecuted(rewritten=rewritten)) for key in self._parts[id(op)])


def _hull(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else a.hull(b)


class _Correspondence:
    """Which written operators each operator of another graph of the same tensors computes."""

    def __init__(self, written: Graph, graph: Graph) -> None:
        self._graph = graph
        self._writers = {name: op for op in written.nodes for name in op.output_names if name}
        self._all = frozenset(id(op) for op in written.nodes)
        self._common = {self._name(name) for op in graph.nodes for name in op.output_names if name}
        self._readers: dict[int, list[Operation]] = {}
        for op in graph.order:
            for operand in operands_in(op):
                self._readers.setdefault(id(operand), []).append(op)

    def parts(self) -> Mapping[int, frozenset[int]]:
        """Return, by `id` of each operator, the written ones that it computes; all of them if that cannot be told."""
        found: dict[int, frozenset[int]] = {}
        for op in reversed(self._graph.order):
            part = frozenset[int]()
            if not isinstance(op, (Input, OutputSelect)):
                part = frozenset().union(*(self._find_before(self._name(name)) for name in _names(op) if name))
            readers = (x for x in self._readers.get(id(op), ()) if not part or self._is_new(x))
            found[id(op)] = part.union(*(found[id(reader)] for reader in readers)) or self._all
        return found

    def _is_new(self, op: Operation) -> bool:
        """Tell whether an operation selects an output that the written graph does not have."""
        return isinstance(op, OutputSelect) and self._name(*_names(op)) not in self._writers

    def _name(self, tensor: str) -> str:
        """Return the name of a tensor as written, in whatever element type it is held."""
        return tensor if tensor in self._writers else tensor.removeprefix(_PLAIN_CAST)

    def _find_before(self, name: str) -> frozenset[int]:
        """Return the written operators between a tensor and the nearest tensors before it that both graphs have."""
        if name not in self._writers:
            return frozenset()
        part, waiting = set[int](), [self._writers[name]]
        while waiting:
            op = waiting.pop()
            if id(op) in part:
                continue
            part.add(id(op))
            for operand in operands_in(op):
                inner = operand.operation if isinstance(operand, OutputSelect) else operand
                if not isinstance(inner, Input) and self._common.isdisjoint(_names(operand)):
                    waiting.append(inner)
        return frozenset(part)


def _names(op: Operation) -> tuple[str, ...]:
    """Return the names of the tensors that an operation, or the selection of one of its outputs, writes."""
    if isinstance(op, Input):
        return (op.name,)
    return (op.operation.output_names[op.index],) if isinstance(op, OutputSelect) else tuple(op.output_names)


# constants ----------------------------------------------------------------------------------------------------------


def _find_made_infinite(written: Graph, graph: Graph, parts: Mapping[int, frozenset[int]]) -> Iterator[int]:
    """Yield the operators of a graph, by `id`, that read a constant that is not finite and was not written so.

    Args:
        written: The graph as written.
        graph: The other one.
        parts: By `id` of each of its operators, the written ones that it computes; only these may have such constants.
    """
    known = {id(op): {_pattern(x) for x in _constants(op)} for op in written.nodes}
    for op in graph.nodes:
        own = {_pattern(x) for x in _constants(op)} - {None}
        if own and not own <= set().union(*(known[key] for key in parts[id(op)])):
            yield id(op)


def _constants(op: Operation) -> Iterator[np.ndarray]:
    """Yield the constants that an operator reads, and those that the operators of its subgraphs read."""
    yield from (x for x in spec_of(op).operands_of(op) if isinstance(x, np.ndarray))
    for inner in (value for value in vars(op).values() if isinstance(value, Graph)):
        for child in inner.nodes:
            yield from _constants(child)


def _pattern(x: np.ndarray) -> tuple[object, ...] | None:
    """Return where a constant is infinite or NaN; None where it is finite."""
    if x.dtype.kind in "biu" or bool(np.isfinite(x.astype(np.float32, copy=False) if x.dtype.kind != "f" else x).all()):
        return None
    wide = x.astype(np.float64)
    return x.shape, np.isnan(wide).tobytes(), np.isposinf(wide).tobytes(), np.isneginf(wide).tobytes()
