"""The graph that ONNX Runtime runs in place of a network, compared with the network as written.

ONNX Runtime's optimiser folds and fuses operators, but keeps the names of the tensors that remain.  So an operator of
the graph that it writes computes a *part* of the written one: the operator of the same name, if it is the same but for
what it reads, else everything that lies between its output and the nearest tensors before it that both graphs have.  If
it may fail, its part is not proved.
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
from ranum_falsify.network.order import maker_of, operands_in
from ranum_falsify.operators.relations.rewrites import pair_operands
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.prove.checked import Checked, Unprovable, branches_of

_PLAIN_CAST = "InsertedPrecisionFreeCast_"
"""Prefix that ONNX Runtime gives the name of a tensor that it holds in float32 instead of float16."""


@dataclass(frozen=True)
class ValidWhenOptimised(Unprovable):
    """The operator that ONNX Runtime runs in place of another is valid: `rewritten`, or what is known of it."""

    rewritten: str = ""
    reason: str = "ONNX Runtime's graph optimisations may make an invalid operator of it"

    def describe(self) -> str:
        """See :meth:`Constraint.describe`."""
        return f"valid as ONNX Runtime runs it ({self.rewritten})"


@dataclass(frozen=True)
class Uncovered(Unprovable):
    """The operator is valid where processors have kernels of which no bounds are known."""

    where: str = ""
    reason: str = "no bounds are known of kernels that the network runs there"

    def describe(self) -> str:
        """See :meth:`Constraint.describe`."""
        return f"valid on {self.where}"


class OptimisedGraph:
    """The graph that runs in place of a written one; None if it is not known, so that nothing is proved for it."""

    def __init__(self, written: Graph, optimised: Optimised, uncovered: str = "") -> None:
        self.graph = optimised.graph
        fault = ValidWhenOptimised(rewritten=optimised.fault or optimised.refusal)
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
        """Return bounds of the inputs of the graph that runs, given those of the written one."""
        boxes = dict(zip(self._inputs, written, strict=True))
        return [boxes[name] for name in graph.input_names]

    def runs(self, written: frozenset[int]) -> frozenset[int]:
        """Return the operators that compute a part of some written ones, all by `id`."""
        return frozenset(key for key, part in self._parts.items() if not written.isdisjoint(part))

    def narrow(self, written: Checked, executed: Checked | None) -> Checked:
        """Return what holds for the written graph if it must also hold as it is run, of which nothing may be known."""
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
                fault = ValidWhenOptimised(rewritten=f"{spec_of(op).op_type} {op.name}")
                yield from ((key, fault) for key in self._parts[id(op)])


def _hull(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else a.hull(b)


class _Correspondence:
    """Which written operators each operator of another graph of the same tensors computes."""

    def __init__(self, written: Graph, graph: Graph) -> None:
        self._graph = graph
        self._writers = {name: op for op in written.nodes for name in op.output_names if name}
        self._all = frozenset(id(op) for op in written.nodes)
        self._common = {self._name(name) for op in graph.nodes for name in op.output_names if name}
        self._parts: dict[int, set[int]] = {id(op): set() for op in graph.nodes}
        self._merging: set[int] = set()
        self._readers: dict[int, list[Operation]] = {}
        for op in graph.nodes:
            for operand in operands_in(op):
                if self._name(*_names(operand)) not in self._writers:
                    self._readers.setdefault(id(maker_of(operand)), []).append(op)

    def parts(self) -> Mapping[int, frozenset[int]]:
        """Return, by `id` of each operator, the written ones that it computes; all of them if that cannot be told.

        A new tensor is a part of what reads it, unless that operator is a written one: then it stands for an operand.
        """
        for op in reversed(self._graph.nodes):
            for name in map(self._name, _names(op)):
                if name in self._writers:
                    self._pair(op, self._writers[name])
            part, readers = self._parts[id(op)], self._readers.get(id(op), ())
            part.update(*(self._parts[id(reader)] for reader in readers if id(reader) in self._merging))
            if not part:
                part.update(*(self._parts[id(reader)] for reader in readers))
        return {key: frozenset(part) or self._all for key, part in self._parts.items()}

    def _name(self, tensor: str) -> str:
        """Return the name of a tensor as written, in whatever element type it is held."""
        return tensor if tensor in self._writers else tensor.removeprefix(_PLAIN_CAST)

    def _pair(self, op: Operation, written: Operation) -> None:
        """Note that an operator computes what a written one does, and what follows for what the two read."""
        waiting = [(op, written, "")]
        while waiting:
            op, written, read = waiting.pop()
            part = self._parts[id(op)]
            if id(written) in part:
                continue
            pairs = pair_operands(op, written)
            if pairs is None:
                between, ends = self._find_before(written)
                if read not in ends:  # else what is between was dropped, and is computed by none
                    part |= between
                    self._merging.add(id(op))
                continue
            part.add(id(written))
            for a, b in pairs:
                name = self._name(*_names(a))
                if isinstance(b, Input) and name != b.name:
                    self._merging.add(id(op))
                elif not isinstance(a, Input) and name not in _names(b):
                    waiting.append((maker_of(a), maker_of(b), name))

    def _find_before(self, written: Operation) -> tuple[set[int], set[str]]:
        """Return the operators from the nearest tensors before one that both graphs have to it, and these tensors."""
        part, ends, waiting = set[int](), set[str](), [written]
        while waiting:
            op = waiting.pop()
            if id(op) in part:
                continue
            part.add(id(op))
            for operand in operands_in(op):
                if isinstance(operand, Input) or not self._common.isdisjoint(_names(operand)):
                    ends.update(_names(operand))
                else:
                    waiting.append(maker_of(operand))
        return part, ends


def _names(op: Operation) -> tuple[str, ...]:
    """Return the names of the tensors that an operation, or the selection of one of its outputs, writes."""
    if isinstance(op, Input):
        return (op.name,)
    return (op.operation.output_names[op.index],) if isinstance(op, OutputSelect) else tuple(op.output_names)


# constants ----------------------------------------------------------------------------------------------------------


def _find_made_infinite(written: Graph, graph: Graph, parts: Mapping[int, frozenset[int]]) -> Iterator[int]:
    """Yield the operators of a graph, by `id`, that read a constant that is not finite and was not written so.

    Only the written operators that one computes, its part, may have such constants.
    """
    known = {id(op): {_pattern(x) for x in _constants(op)} for op in written.nodes}
    for op in graph.nodes:
        own = {_pattern(x) for x in _constants(op)} - {None}
        if own and not own <= set().union(*(known[key] for key in parts[id(op)])):
            yield id(op)


def _constants(op: Operation) -> Iterator[np.ndarray]:
    """Yield the constants that an operator reads, and those that the operators of its subgraphs read."""
    yield from (x for x in spec_of(op).operands_of(op) if isinstance(x, np.ndarray))
    for inner in branches_of(op):
        for child in inner.nodes:
            yield from _constants(child)


def _pattern(x: np.ndarray) -> tuple[object, ...] | None:
    """Return where a constant is infinite or NaN; None where it is finite."""
    if x.dtype.kind in "biu" or bool(np.isfinite(x.astype(np.float32, copy=False) if x.dtype.kind != "f" else x).all()):
        return None
    wide = x.astype(np.float64)
    return x.shape, np.isnan(wide).tobytes(), np.isposinf(wide).tobytes(), np.isneginf(wide).tobytes()
