"""PyTorch beside ONNX Runtime: which operators fail there at a counterexample."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect
from torch import Tensor

from ranum_falsify.config import FailureKind, Reach, Runtime
from ranum_falsify.errors import is_interruption
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.evaluate import Value
from ranum_falsify.network.nesting import is_evaluated_outside
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.operators.support.conditions import list_refusals, list_stated_conditions, originates_nonfinite
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.replay.broken import find_broken_at, operand_ranges
from ranum_falsify.verify.search.batching import least_margins
from ranum_falsify.verify.search.result import Counterexample, OperatorResult, Oracle

Key = tuple[int, str]


def compare(found: Mapping[Key, OperatorResult], graph: Graph, example: Counterexample) -> Mapping[Key, OperatorResult]:
    """Return the violations of operators of `graph` at a counterexample, with the runtimes on which they occur."""
    nodes = {op.name for op in graph.nodes}
    fresh = {key: r for key, r in found.items() if r.counterexample is example and r.node in nodes}
    failing = find_failing_in_torch(graph, example.feeds) if fresh else None
    return {key: add_runtimes(result, failing) for key, result in fresh.items()}


@dataclass(frozen=True, kw_only=True)
class TorchFailure:
    """An operator whose operands are good on PyTorch, and whose output is not.

    Attributes:
        op_type: ONNX operator.
        kind: What came out; `error` where it has no result, `crash` where the process ends.
        reach: `output` where non-finite tensors lead from it to an output.
        operands: Least and greatest element of each operand that holds numbers.
        broken: The condition that it breaks.
    """

    op_type: str
    kind: FailureKind
    reach: Reach
    operands: Mapping[str, tuple[float, float]]
    broken: Constraint


def find_failing_in_torch(graph: Graph, feeds: Mapping[str, np.ndarray]) -> Mapping[str, TorchFailure] | None:
    """Return the operators, by name, whose operands are good and output is not, by the rules of replay, on the CPU.

    Operators that write no floating numbers fail where the conditions of their rows do.  None is returned where the
    network draws random numbers, which differ from those of the replay, or has operators that PyTorch cannot run, on
    these inputs or on any.
    """
    if any(spec_of(op).is_random(op) for op in graph.nodes) or is_evaluated_outside(graph):
        return None
    failing: dict[str, tuple[Operation, TorchFailure]] = {}
    bad, stopping = set[int](), set[int]()
    stored = StoredNan(graph)

    def watch(op: Operation, operands: Sequence[Value], results: tuple[Tensor, ...]) -> None:
        written = [_status(value) for value in results]
        if any(nan or inf for nan, inf in written):
            bad.add(id(op))
        refusal = _find_refusal(op, operands, results)
        if refusal is not None:
            bad.add(id(op))
            stopping.add(id(op))
        if refusal is not None or _fails(op, stored.replace(op, operands, results), results):
            failing[op.name] = (
                op,
                TorchFailure(
                    op_type=spec_of(op).op_type,
                    kind=_kind(refusal, written),
                    reach="masked",
                    operands=operand_ranges(op, [_to_array(value) for value in operands]),
                    broken=refusal or find_broken_at(op, operands, results),
                ),
            )

    try:
        with torch.no_grad():
            graph.evaluate([to_torch(feeds[name]) for name in graph.input_names], watch)
    except (MemoryError, RuntimeError, ValueError, IndexError) as error:
        if is_interruption(error):
            raise
        return None  # inputs decide shapes, and PyTorch has no result of such, or no memory for it
    reaching = _reach_outputs(graph, bad) | stopping if failing else stopping
    return {
        name: replace(failure, reach="output") if id(op) in reaching else failure
        for name, (op, failure) in failing.items()
    }


def _kind(refusal: Constraint | None, written: Sequence[tuple[bool, bool]]) -> FailureKind:
    """Return what came out, given why there is no result, and of each output whether it holds NaN, and infinity."""
    if refusal is not None:
        return "crash" if refusal.crashes else "error"
    return "inf" if any(inf for _, inf in written) and not any(nan for nan, _ in written) else "nan"


def _find_refusal(op: Operation, operands: Sequence[Value], results: Sequence[Tensor]) -> Constraint | None:
    """Return the condition without which PyTorch ends the run; here there is some result, so that a batch can go on."""
    integers = not any(isinstance(y, Tensor) and y.is_floating_point() for y in results)
    refusals = (c for c in list_refusals(op, integers=integers) if not c.only_onnxruntime)
    return next((c for c in refusals if bool((least_margins([c], op, operands, results) < 0).any())), None)


def _reach_outputs(graph: Graph, bad: Collection[int]) -> frozenset[int]:
    """Return the operators, by `id`, from which operators with non-finite results lead to an output."""
    reaching = {id(op) for op in graph.output_operations}
    for op in reversed(graph.order):
        if id(op) in reaching and (id(op) in bad or isinstance(op, OutputSelect)):
            reaching.update(graph.reads[id(op)])
    return frozenset(reaching & set(bad))


def _to_array(value: Value) -> np.ndarray | None:
    return to_numpy(value) if isinstance(value, Tensor) else value


class StoredNan:
    """NaN that constants of a model hold, followed through the operators that cannot be the first to be invalid."""

    def __init__(self, graph: Graph) -> None:
        self._computed = {id(array) for _, arrays in graph.folded for array in arrays}
        self._carriers: set[int] = set()
        for op, arrays in graph.folded:
            read = [x for x in spec_of(op).operands_of(op) if x is not None]
            held = [x for x in read if isinstance(x, np.ndarray) and _status(x)[0]]
            if not read or (held and not originates_nonfinite(op) and all(map(self._is_stored, held))):
                self._computed.difference_update(map(id, arrays))

    def _is_stored(self, value: Value) -> bool:
        return isinstance(value, np.ndarray) and id(value) not in self._computed and _status(value)[0]

    def replace(self, op: Operation, operands: Sequence[Value], results: Sequence[Tensor]) -> Sequence[Value]:
        """Return the operands of an operator that computes, with 0 for NaN that comes from constants alone.

        To be called for every operator, in topological order.
        """
        fields = spec_of(op).operands_of(op)
        carried = [id(field) in self._carriers or self._is_stored(field) for field in fields]
        if not any(carried):
            return operands
        if not originates_nonfinite(op):
            if all(is_carried for is_carried, x in zip(carried, operands, strict=True) if _status(x)[0]):
                self._carriers.add(id(op))
            return operands
        return [
            torch.nan_to_num(to_torch(x) if isinstance(x, np.ndarray) else x, posinf=torch.inf, neginf=-torch.inf)
            if is_carried and x is not None
            else x
            for is_carried, x in zip(carried, operands, strict=True)
        ]


def _fails(op: Operation, operands: Sequence[Value], results: tuple[Tensor, ...]) -> bool:
    conditions = [c for c in list_stated_conditions(op) if not c.only_onnxruntime]
    if conditions and not any(isinstance(y, Tensor) and y.is_floating_point() for y in results):
        return bool((least_margins(conditions, op, operands, results) < 0).any())
    read = [to_torch(value) if isinstance(value, np.ndarray) else value for value in operands]
    floating = [x for x in read if isinstance(x, Tensor) and x.is_floating_point()]
    if not spec_of(op).elementwise:
        floating = [x.abs().amax() for x in floating if x.numel()]
    return any(_is_invalid(y, floating) for y in results if isinstance(y, Tensor) and y.is_floating_point())


def _is_invalid(y: Tensor, read: Sequence[Tensor]) -> bool:
    """Tell whether an element is NaN, or infinite, although those that it is computed from are not."""
    clean, finite = torch.ones_like(y, dtype=torch.bool), torch.ones_like(y, dtype=torch.bool)
    for x in read:
        clean &= ~x.isnan()
        finite &= x.isfinite()
    return bool(((y.isnan() & clean) | (y.isinf() & finite)).any())


def add_runtimes(result: OperatorResult, failing: Collection[str] | None) -> OperatorResult:
    """Return what ONNX Runtime confirmed, with the runtimes that fail, given those `find_failing_in_torch` found."""
    return result if failing is None else replace(result, runtimes=runtimes_of(result.node, result.oracle, failing))


def runtimes_of(node: str, oracle: Oracle | None, failing: Collection[str]) -> tuple[Runtime, ...]:
    """Return the runtimes on which an operator fails, given who has shown it, and what fails on PyTorch."""
    runtimes: tuple[tuple[Runtime, bool], ...] = (("onnxruntime", oracle == "onnxruntime"), ("torch", node in failing))
    return tuple(name for name, fails in runtimes if fails)


def _status(value: Value) -> tuple[bool, bool]:
    """Tell whether an operand holds NaN and whether it holds infinity."""
    tensor = to_torch(value) if isinstance(value, np.ndarray) else value
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        return False, False
    return bool(tensor.isnan().any()), bool(tensor.isinf().any())
