"""A model run without optimisations, every tensor inspected."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from .graph import (
    FLOAT_INITIALIZERS,
    GOOD,
    Status,
    Value,
    attribute_status,
    find_bad,
    find_statuses,
    is_numeric,
    range_of,
    read_stored,
    reads_of,
    sort_nodes,
    status_of,
    tensor_status,
    to_number,
)
from .recurrent import find_hidden_nan
from .session import Session, Setting
from .stops import Stops, find_impossible

STOP = ""  # among outputs: the run stopped, at a node that ONNX Runtime refuses to run
STOPPED = {STOP: (True, False)}
_MOST_ELEMENTS = 1 << 20  # of all operands of a finding, to be passed on


@dataclass(frozen=True)
class Look:
    """The result of one run with all tensors exposed.

    Attributes:
        outputs: the graph outputs that are arrays.
        findings: the fields of `ranum_falsify.verify.replay.replayer.Finding`, by node, in topological order.
        reaches: for each finding, the non-finite graph outputs that depend on what it writes, or `STOP`.
        bad: names of the tensors that are not finite.
        ends: status of each graph output that is not finite, or of `STOP`.
        traps: whether going on would have ended the process.
    """

    outputs: dict[str, np.ndarray]
    findings: dict[int, dict[str, Any]]
    reaches: dict[int, set[str]]
    bad: set[str]
    ends: dict[str, Status]
    traps: bool = False


class InspectedModel:
    """A model run without optimisations, with those facts about it that do not depend on the input.

    Attributes:
        proto: the content of the file, without external data.
        order: positions of its nodes in topological order.
        producers: position of the node that writes a tensor, by name.
        constants: status of each of its floating constants, by name.
        is_random: whether another run draws other numbers.
    """

    def __init__(self, path: str, setting: Setting) -> None:
        self.proto = onnx.load(path, load_external_data=False)
        self._setting, self._operators, folder = setting, setting.operators, setting.folder
        # Before anything else looks at the graph, because ONNX Runtime's complaint about a bad one is better.
        names = [n for node in self.proto.graph.node if not read_stored(node) for n in node.output]
        self._exposed = Session(self.proto, names, setting)
        self._plain: Session | None = None
        self._nodes = list(self.proto.graph.node)
        self.order = sort_nodes(self.proto.graph)
        self._reads = [reads_of(node) for node in self._nodes]
        self.producers = {name: k for k, node in enumerate(self._nodes) for name in node.output if name}
        self._hiding = {k for k, node in enumerate(self._nodes) if self._operators.may_hide_nan(node)}
        self._attributes = [attribute_status(node, folder) for node in self._nodes]
        self._tensors = {tensor.name: tensor for tensor in self.proto.graph.initializer}
        self._tensors |= {node.output[0]: t for node in self._nodes for t in read_stored(node)}
        self._stops = Stops(
            self.proto, self.order, self._reads, lambda name: self._value(name, {}, {}), self._exposed.types, setting
        )
        flags = [name for name, tensor in self._tensors.items() if tensor.data_type == onnx.TensorProto.BOOL]
        false = {name for name in flags if not self._constant(name).any()}
        self._random = {k for k, node in enumerate(self._nodes) if self._operators.is_random(node, false)}
        self.is_random = bool(self._random)
        self.constants = {
            name: tensor_status(tensor, folder)
            for name, tensor in self._tensors.items()
            if tensor.data_type in FLOAT_INITIALIZERS
        }

    def _constant(self, name: str) -> np.ndarray:
        return numpy_helper.to_array(self._tensors[name], self._setting.folder)

    def outputs(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the graph outputs, computed without optimisations and without exposing anything else."""
        if self._plain is None:
            self._plain = Session(self.proto, [], self._setting)
        return self._graph_outputs(self._plain.run(feeds))

    def _graph_outputs(self, values: Mapping[str, Value]) -> dict[str, np.ndarray]:
        names = [value.name for value in self.proto.graph.output]
        return {name: values[name] for name in names if isinstance(values.get(name), np.ndarray)}

    @property
    def bad_constants(self) -> set[str]:
        """Names of stored tensors that are not finite."""
        return {name for name, status in self.constants.items() if any(status)}

    def look(self, feeds: Mapping[str, np.ndarray], forgiven: Iterable[str] = ()) -> Look:
        """Run with all tensors exposed; ``forgiven`` constants count as finite whatever they hold."""
        values, outputs, stops = self._run(feeds)
        known = self.constants | dict.fromkeys(forgiven, GOOD)
        known |= {name: status_of(value) for name, value in (*values.items(), *feeds.items())}
        found = self._findings(feeds, values, known, stops)
        reaches = self._reaches(known, stops) if found else {}
        for k, finding in found.items():
            reaches.setdefault(k, set())
            finding["reach"] = "output" if reaches[k] else "masked"
        ends = {value.name: known.get(value.name, GOOD) for value in self.proto.graph.output}
        return Look(
            outputs,
            found,
            {k: reaches[k] for k in found},
            {name for name, status in known.items() if any(status)},
            {name: status for name, status in ends.items() if any(status)} | (STOPPED if stops else {}),
            any(k in self._stops.find_trapping(feeds) for k in stops),
        )

    def find_bad(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Status]:
        """Return the tensors that are not finite, with their status; `STOP` where the run stops. Explains nothing."""
        if self.may_trap(feeds):
            return STOPPED
        try:
            return find_statuses(self._exposed.run(feeds))
        except Exception:
            return STOPPED

    def may_trap(self, feeds: Mapping[str, np.ndarray]) -> bool:
        """Tell whether a division may end the process, judging by the inputs alone."""
        return bool(self._stops.find_trapping(feeds))

    def _run(self, feeds: Mapping[str, np.ndarray]) -> tuple[dict[str, Value], dict[str, np.ndarray], list[int]]:
        """Return all values, the graph outputs among them, and the nodes at which the run stops."""
        if self.may_trap(feeds):
            values, stops = self._stops.find_divisions(feeds)
            if stops:
                return values, {}, stops
        try:
            values = self._exposed.run(feeds)
            return values, self._graph_outputs(values), []
        except Exception as error:
            try:
                values, stops = self._stops.find_refused(feeds)
            except Exception:
                raise error from None  # what went wrong first says more
            if not stops:
                raise
            return values, {}, stops

    def _value(self, name: str, feeds: Mapping[str, np.ndarray], values: Mapping[str, Value]) -> Value:
        if name in feeds:
            return feeds[name]
        if name in values:
            return values[name]
        return self._constant(name) if name in self._tensors else None

    def _findings(
        self,
        feeds: Mapping[str, np.ndarray],
        values: Mapping[str, Value],
        known: Mapping[str, Status],
        stops: list[int],
    ) -> dict[int, dict[str, Any]]:
        suspects = {self.producers[name] for name in values if name in self.producers and any(known[name])}
        suspects |= self._hiding | set(stops)
        if not suspects:
            return {}
        varying, stored = self._find_varying(feeds), self._find_stored_nan(known)
        found: dict[int, dict[str, Any]] = {}
        for k in (k for k in self.order if k in suspects):
            if k in stops:
                found[k] = self._stop_finding(k, feeds, values)
                continue
            # Computed infinities that no input can change are constants, such as an attention mask.
            good = dict.fromkeys(stored, GOOD) if self._operators.originates_nonfinite(self._nodes[k]) else {}
            finding = self._find_invalid(k, feeds, values, {**known, **good} if good else known, varies=k in varying)
            if finding is not None:
                found[k] = finding
        for k, finding in found.items():
            finding |= self._operands(k, finding["index"], feeds, values)
        return found

    def _find_stored_nan(self, known: Mapping[str, Status]) -> set[str]:
        """Return the tensors that hold NaN only because a stored one does: no operator was invalid before them."""
        stored = {name for name, (nan, _) in self.constants.items() if nan}
        for k in self.order if stored else ():
            holding = {name for name in self._reads[k] if known.get(name, GOOD)[0]}
            if holding and holding <= stored and not self._operators.originates_nonfinite(self._nodes[k]):
                stored.update(name for name in self._nodes[k].output if known.get(name, GOOD)[0])
        return stored

    def _find_invalid(
        self,
        k: int,
        feeds: Mapping[str, np.ndarray],
        values: Mapping[str, Value],
        known: Mapping[str, Status],
        *,
        varies: bool,
    ) -> dict[str, Any] | None:
        """Return what is wrong with the first output of a node that is invalid; None if nothing is."""
        node, reads = self._nodes[k], self._reads[k]
        bad = [(name, known.get(name, GOOD)) for name in node.output if any(known.get(name, GOOD))]
        if self._operators.is_elementwise(node):
            nan, inf = self._attributes[k]
            operands = [self._value(name, feeds, values) for name in reads if any(known.get(name, GOOD))]
            for name, _ in [] if nan else bad:
                invalid = _judge_elements(values[name], operands, overflow=varies and not inf)
                if invalid is not None:
                    return self.finding(k, name, *invalid, "onnxruntime")
            return None
        statuses = [*(known.get(name, GOOD) for name in reads), self._attributes[k]]
        if any(nan for nan, _ in statuses):
            return None
        overflow = varies and not any(inf for _, inf in statuses)
        for name, (nan, inf) in bad:
            if nan or (inf and overflow):
                kind = "nan" if nan else "inf"
                return self.finding(k, name, kind, find_bad(values[name], kind), "onnxruntime")
        hidden = self._find_hidden(k, feeds, values)
        if hidden is None:
            return None
        name, places = hidden[0], np.isnan(hidden[1])
        returned = range_of(values[name][places], skips_nan=True) if is_numeric(values.get(name)) else None
        return self.finding(k, name, "nan", places, "reference") | {"returned": returned}

    def _find_varying(self, feeds: Mapping[str, np.ndarray]) -> set[int]:
        """Return the nodes whose value depends on an input's value, not only on its shape, or is random."""
        names, nodes = set(feeds), set()
        # Tensors of which values of inputs decide the shape, and numbers that are such sizes.
        loose, sizes = set[str](), set[str]()
        for k in self.order:
            node, reads = self._nodes[k], set(self._reads[k])
            if self._operators.is_shape_only(node):
                sizes.update(() if loose.isdisjoint(reads) else node.output)
                continue
            shaping = self._operators.list_shaping(node)
            if not (loose.isdisjoint(reads) and shaping.isdisjoint(names | sizes)):
                loose.update(node.output)
            counts = not sizes.isdisjoint(reads - shaping)
            if counts or not names.isdisjoint(reads) or k in self._random:
                nodes.add(k)
                names.update(node.output)
        return nodes

    def finding(self, k: int, name: str, kind: str, bad: np.ndarray | None, oracle: str) -> dict[str, Any]:
        """Return a `record` with the position of the first ``bad`` element; with none for what has no elements."""
        index = () if bad is None else np.unravel_index(int(np.argmax(bad)), bad.shape)
        return self.record(k, name, kind, tuple(map(int, index)), oracle)

    def _stop_finding(self, k: int, feeds: Mapping[str, np.ndarray], values: Mapping[str, Value]) -> dict[str, Any]:
        node = self._nodes[k]
        impossible = None
        if self._operators.may_divide(node):
            impossible = find_impossible(node, *(self._value(name, feeds, values) for name in node.input))
        kind, bad = impossible or ("error", None)
        return self.finding(k, next(name for name in node.output if name), kind, bad, "onnxruntime")

    def record(self, k: int, name: str, kind: str, index: tuple[int, ...], oracle: str) -> dict[str, Any]:
        """Return the fields of a finding about a node: its operands, its tensor ``name``, and who saw it."""
        node = self._nodes[k]
        return {
            "node_index": k,
            "node": node.name,
            "op_type": node.op_type,
            "output": name,
            "kind": kind,
            "index": index,
            "oracle": oracle,
        }

    def _operands(
        self, k: int, index: tuple[int, ...], feeds: Mapping[str, np.ndarray], values: Mapping[str, Value]
    ) -> dict[str, Any]:
        """Return the fields of a finding about what node ``k`` read, where its output at ``index`` is invalid."""
        node = self._nodes[k]
        read = {name: self._value(name, feeds, values) for name in self._reads[k]}
        limits = {name: limits for name, value in read.items() if (limits := range_of(value)) is not None}
        arrays = {name: value for name, value in read.items() if is_numeric(value)}
        elements = {}
        if self._operators.is_elementwise(node):
            arrays = {name: _element_at(value, index) for name, value in arrays.items()}
            elements = {name: to_number(arrays[name]) for name in limits}
        few = sum(value.size for value in arrays.values()) <= _MOST_ELEMENTS
        told = arrays if few and self._operators.has_conditions(node) else {}
        return {"operands": limits, "values": elements, "arrays": told}

    def _reaches(self, known: Mapping[str, Status], stops: Iterable[int]) -> dict[int, set[str]]:
        """Return, for each node, the non-finite outputs that depend on what it writes; `STOP` from ``stops``.

        What is not finite goes no further at operators that compute nothing, where they leave it out: `Where`, `IsNaN`.
        An operator that computes with it may return a number, 0 = 1 / inf, by which another one then divides.
        """
        bad = {name for name, status in known.items() if any(status)}
        live = {value.name: {value.name} for value in self.proto.graph.output if value.name in bad}
        reaches: dict[int, set[str]] = {}
        for k in reversed(self.order):
            reached = {STOP} if k in stops else set[str]()
            reached = reached.union(*(live.get(name, ()) for name in self._nodes[k].output))
            if reached:
                reaches[k] = reached
                leaves_out = bad.isdisjoint(self._nodes[k].output) and not self._operators.originates_nonfinite(
                    self._nodes[k]
                )
                for name in self._reads[k]:
                    if leaves_out and name in bad:
                        continue
                    live.setdefault(name, set()).update(reached)
        return reaches

    def spread(self, k: int, bad: set[str]) -> set[str]:
        """Return the outputs of a node, and the ``bad`` tensors that a path of such tensors leads to from there."""
        reached = set(self._nodes[k].output)
        for node, reads in ((self._nodes[n], self._reads[n]) for n in self.order):
            if not reached.isdisjoint(bad.intersection(reads)):
                reached |= bad.intersection(node.output)
        return reached

    def varies(self, name: str, feeds: Mapping[str, np.ndarray]) -> bool:
        """Tell whether the value of a tensor depends on that of an input, or is random."""
        return self.producers.get(name, -1) in self._find_varying(feeds)

    def find_known_name(self, name: str, known: Container[str]) -> str | None:
        """Return the first name in ``known`` among a tensor's own and those of tensors computed from it."""
        waiting = deque([name])
        seen = {name}
        while waiting:
            name = waiting.popleft()
            if name in known:
                return name
            users = (node for node, reads in zip(self._nodes, self._reads, strict=True) if name in reads)
            fresh = {output for node in users for output in node.output} - seen
            seen |= fresh
            waiting += sorted(fresh)
        return None

    def _find_hidden(
        self, k: int, feeds: Mapping[str, np.ndarray], values: Mapping[str, Value]
    ) -> tuple[str, np.ndarray] | None:
        if k not in self._hiding:
            return None
        node = self._nodes[k]
        return find_hidden_nan(node, {name: self._value(name, feeds, values) for name in node.input if name})


# elementwise operators ------------------------------------------------------------------------------------------------


def _element_at(x: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """Return the element of an operand that the output's element at ``index`` is computed from, its dimensions kept."""
    tail = index[len(index) - x.ndim :]
    at = (0 if n == 1 else i for n, i in zip(x.shape, tail, strict=True))
    return np.asarray(x[tuple(slice(i, i + 1) for i in at)])


def _judge_elements(y: np.ndarray, operands: Iterable[np.ndarray], *, overflow: bool) -> tuple[str, np.ndarray] | None:
    """Return kind and places of the elements that are invalid although the operands' elements there are good.

    Only operands that hold NaN or infinity are needed; an infinity is invalid only if it may be an `overflow`.
    """
    clean, finite = np.ones(y.shape, bool), np.ones(y.shape, bool)
    for x in operands:
        clean &= ~np.isnan(x)
        finite &= np.isfinite(x)
    for kind, bad in (("nan", np.isnan(y) & clean), ("inf", np.isinf(y) & finite & overflow)):
        if bad.any():
            return kind, bad
    return None
