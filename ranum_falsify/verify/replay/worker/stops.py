"""Stops of a run: ONNX Runtime refuses to go on, or the process would end.

Integers divided by zero, and the least integer divided by -1, have no result.  ONNX Runtime refuses the first with an
error; at the second the processor may end the process (SIGFPE), so it must be found before it is run.  Where an operand
asks for both, ONNX Runtime refuses: it looks for zeros first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import onnx

from .graph import Value
from .session import Session, Setting

_OUT_OF_MEMORY = "allocat"  # in ONNX Runtime's message: this is no fault of the operands
_BY_ZERO = " by zero"  # in its message about an integer division or remainder


class Stops:
    """Finds the nodes at which runs of a model stop.

    What each node ``reads`` goes by its position, ``types`` by the tensor's name; ``read_constant`` returns a stored
    tensor, None for a name that is none.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        order: Sequence[int],
        reads: Sequence[Collection[str]],
        read_constant: Callable[[str], Value],
        types: Mapping[str, str],
        setting: Setting,
    ) -> None:
        self._proto = proto
        self._nodes = list(proto.graph.node)
        self._order = order
        self._reads = reads
        self._read_constant = read_constant
        self._setting = setting
        self._cut: dict[frozenset[int], Session | None] = {}
        operators = setting.operators
        divided = {k: types.get(node.output[0], "") for k, node in enumerate(self._nodes) if operators.may_divide(node)}
        self._divisions = [k for k, kind in divided.items() if "int" in kind]
        self._trapping = [k for k in self._divisions if divided[k] in ("tensor(int32)", "tensor(int64)")]
        self._dividing = [k for k in order if k in self._divisions or operators.may_divide_inside(self._nodes[k])]
        self._refusing = [
            k for k in order if operators.may_refuse(self._nodes[k], lambda name: read_constant(name) is not None)
        ]

    def find_trapping(self, feeds: Mapping[str, np.ndarray]) -> list[int]:
        """Return the divisions that may end the process, judging by what is known before anything is run."""
        operands = {k: self._operands(k, feeds, {}) for k in self._trapping}
        return [k for k, values in operands.items() if _may_trap(self._nodes[k], *values)]

    def find_divisions(self, feeds: Mapping[str, np.ndarray]) -> tuple[dict[str, Value], list[int]]:
        """Return the values computed without integer divisions that have no result, and these divisions.

        At such a division the process may end. So the graph is first run as far as it goes without any division;
        divisions whose operands turn out to be good join it, until one is not or nothing new comes out.
        """
        safe: frozenset[int] = frozenset()
        while self._divisions:
            values = self._run_without(feeds, [k for k in self._divisions if k not in safe])
            known = set(safe)
            stops = []
            for k in (k for k in self._divisions if k not in safe):
                dividend, divisor = self._operands(k, feeds, values)
                if dividend is None or divisor is None:
                    continue
                known.add(k)
                if find_impossible(self._nodes[k], dividend, divisor) is not None:
                    stops.append(k)
            if stops:
                return values, stops
            if known == safe:
                break
            safe = frozenset(known)
        return {}, []

    def find_refused(self, feeds: Mapping[str, np.ndarray]) -> tuple[dict[str, Value], list[int]]:
        """Return the values computed without nodes that ONNX Runtime refuses to run, and these nodes."""
        stops: list[int] = []
        while message := self._refusal(feeds, stops):
            found = self._find_first(feeds, stops, by_zero=_BY_ZERO in message)
            if found is None:
                return {}, []
            stops.append(found)
        return (self._run_without(feeds, stops), stops) if stops else ({}, [])

    def _find_first(self, feeds: Mapping[str, np.ndarray], stops: Sequence[int], *, by_zero: bool) -> int | None:
        """Return the first node that is refused, None where it is none of those whose operands may be the reason.

        The message, which may be about integers divided by 0, need not identify a node, so that it is found by leaving
        out those from some on.  The nodes of ``stops`` are known to be refused.
        """
        left = [k for k in (self._dividing if by_zero else self._refusing) if k not in stops]

        def is_refused(left_out: Collection[int]) -> bool:
            message = self._refusal(feeds, [*stops, *left_out])
            return bool(message) and (_BY_ZERO in message) == by_zero

        low, high = 0, len(left)  # what comes before `low` runs, what comes before `high` + 1 may not
        while low < high:
            middle = (low + high) // 2
            if is_refused(left[middle + 1 :]):
                high = middle
            else:
                low = middle + 1
        if low == len(left) or is_refused(left[low:]):
            return None  # what is refused is none of these
        if not is_refused([*left[low + 1 :], *self._find_readers(left[low])]):
            return None  # it runs, and what is refused comes after it
        return left[low]

    def _find_readers(self, k: int) -> list[int]:
        """Return the nodes that read what a node writes."""
        written = set(self._nodes[k].output)
        return [reader for reader in self._order if not written.isdisjoint(self._reads[reader])]

    def _refusal(self, feeds: Mapping[str, np.ndarray], left_out: Collection[int]) -> str:
        """Return why ONNX Runtime refuses what `_run_without` runs; "" where it does not.  Lack of memory is raised."""
        try:
            self._run_without(feeds, left_out)
        except Exception as error:
            if _OUT_OF_MEMORY in str(error):
                raise
            return str(error) or type(error).__name__
        return ""

    def _run_without(self, feeds: Mapping[str, np.ndarray], left_out: Collection[int]) -> dict[str, Value]:
        """Run the nodes that depend on none of ``left_out``."""
        key = frozenset(left_out)
        if key not in self._cut:
            gone: set[str] = set()
            kept = []
            for k in self._order:
                if k in key or not gone.isdisjoint(self._reads[k]):
                    gone.update(self._nodes[k].output)
                else:
                    kept.append(self._nodes[k])
            model = onnx.ModelProto()
            model.CopyFrom(self._proto)
            del model.graph.node[:], model.graph.output[:]
            model.graph.node.extend(kept)
            names = [name for node in kept for name in node.output]
            # ONNX Runtime accepts no graph without nodes.
            self._cut[key] = Session(model, names, self._setting) if kept else None
        session = self._cut[key]
        return session.run(feeds) if session else {}

    def _operands(self, k: int, feeds: Mapping[str, np.ndarray], values: Mapping[str, Value]) -> list[Value]:
        known = {**values, **feeds}
        return [known[name] if name in known else self._read_constant(name) for name in self._nodes[k].input]


# divisions ------------------------------------------------------------------------------------------------------------

_TRAPPING = (np.dtype(np.int32), np.dtype(np.int64))  # C computes shorter ones in 32 bits, where the quotient fits


def find_impossible(node: onnx.NodeProto, dividend: Value, divisor: Value) -> tuple[str, np.ndarray] | None:
    """Return the kind of the finding where a division of integers has no result, and the places in its output."""
    if divisor.dtype.kind not in "iu":
        return None
    shape = np.broadcast_shapes(np.shape(dividend), np.shape(divisor))
    kinds = [("error", divisor == 0)]
    if _overflows(node, divisor):
        kinds.append(("crash", (divisor == -1) & (dividend == np.iinfo(divisor.dtype).min)))
    places = ((kind, np.broadcast_to(bad, shape)) for kind, bad in kinds)
    return next(((kind, bad) for kind, bad in places if bad.any()), None)


def _may_trap(node: onnx.NodeProto, dividend: Value, divisor: Value) -> bool:
    """Tell whether a division may end the process, given those of its operands that are known (None if not)."""
    for value, fatal in ((dividend, None), (divisor, -1)):
        if value is None:
            continue
        if not _overflows(node, value):
            return False
        if not (value == (np.iinfo(value.dtype).min if fatal is None else fatal)).any():
            return False
    return True


def _overflows(node: onnx.NodeProto, value: Value) -> bool:
    # When the remainder takes the dividend's sign, it is computed in floating point.
    by_value = any(a.name == "fmod" and a.i for a in node.attribute)
    return value.dtype in _TRAPPING and not by_value
