"""Operation graph to PyTorch: a DNNF converter whose knowledge of operators is their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect
from torch import Tensor
from torch.nn import functional

from ranum_falsify import upstream
from ranum_falsify.network import Graph, OperatorSpec, spec_of
from ranum_falsify.network.evaluate import apply
from ranum_falsify.network.order import topological_order
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.operators.support.batching import Operand, batch_function


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One operation, with the slots of the tensors that it reads and of the one that it writes."""

    op: Operation
    call: Callable[..., Any]
    reads: tuple[int, ...]
    write: int
    several: bool


def fuse(steps: Sequence[Instruction], observed: Collection[int], kept: Collection[int]) -> list[Instruction]:
    """Return steps in which a product with a constant matrix and a following sum with a constant vector are one kernel.

    Operands and results of `observed` operations, by `id`, stay visible; `kept` slots are read after the last step.
    """
    readers = Counter(slot for step in steps for slot in step.reads)
    products = {
        step.write: step
        for step in steps
        if readers[step.write] == 1 and step.write not in kept and id(step.op) not in observed and _is_product(step)
    }
    result: list[Instruction] = []
    dropped: set[int] = set()
    for step in steps:
        product = None if id(step.op) in observed else _summand(step, products)
        if product is not None:
            bias = next(slot for slot in step.reads if slot != product.write)
            dropped.add(product.write)
            step = replace(step, call=_affine, reads=(*product.reads, bias))
        result.append(step)
    return [step for step in result if step.write not in dropped]


def _affine(x: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    if x.dim() == 2:
        return torch.addmm(bias, x, matrix)
    return functional.linear(x, matrix.mT, bias)


def _is_row(step: Instruction, op_type: str) -> bool:
    """Tell whether the step runs an operator's row unchanged."""
    if not isinstance(step.call, partial):
        return False
    spec = spec_of(step.op)
    return spec.op_type == op_type and step.call.func is spec.torch


def _is_product(step: Instruction) -> bool:
    matrix = getattr(step.op, "b", None)
    return isinstance(matrix, np.ndarray) and matrix.ndim == 2 and matrix.dtype.kind == "f" and _is_row(step, "MatMul")


def _summand(step: Instruction, products: Mapping[int, Instruction]) -> Instruction | None:
    """Return the product to which the step adds a constant vector, if it does."""
    product = next((products[slot] for slot in step.reads if slot in products), None)
    if product is None or not _is_row(step, "Add"):
        return None
    width = product.op.b.shape[1]
    constants = (value for value in (step.op.a, step.op.b) if isinstance(value, np.ndarray))
    return product if any(value.shape == (width,) for value in constants) else None


Probe = Callable[[Operation, Sequence[Any], Sequence[Tensor]], Tensor]
"""`probe(op, operands, outputs)` observes an operation while it runs."""

_Planned = tuple[Callable[..., Any], tuple[int, ...], int, bool, Operation | None, tuple[int, ...]]
"""A step as the loop unpacks it: call, reads, write, several, the operation if it is observed, slots to free."""


# Loaded without the rest of DNNF, which takes half a second that the start does not have.
_PytorchConverter: Any = upstream.load("dnnf.pytorch").PytorchConverter


class TorchConverter(_PytorchConverter):
    """Visit operations in topological order; each becomes a step.

    `generic_visit` looks the row up; a subclass may override single operators with `visit_<Op>` methods that return
    a function of the operands, as in DNNF.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[int, Instruction] = {}
        self.slots: dict[int, int] = {}
        self.constants: list[Any] = []
        self._constant_slots: dict[tuple[int, bool], int] = {}
        self._keep: list[Any] = []

    def convert(self, graph: Graph) -> TorchModel:
        """Return the graph as a module."""
        for op in graph.order:
            self.slots[id(op)] = len(self.slots)
        for op in graph.order:
            self.visit(op)
        return TorchModel(graph, self.steps, self.slots, self.constants)

    def visit(self, operation: Operation) -> Instruction | None:
        """Convert one operation after its operands; operations are told apart by identity, never by equality."""
        if isinstance(operation, Input):
            return None
        if id(operation) not in self.steps:
            self.steps[id(operation)] = self._step(operation)
        return self.steps[id(operation)]

    def generic_visit(self, operation: Operation) -> Callable[..., Any]:
        """Return the row's function, bound to the operation."""
        spec = spec_of(operation)
        if _reads_dynamic_static(operation, spec):
            return partial(apply, spec, operation)
        return partial(spec.torch, operation)

    def _step(self, op: Operation) -> Instruction:
        slot = self.slots[id(op)]
        if isinstance(op, OutputSelect):
            index = op.index
            return Instruction(op, lambda results: results[index], (self.slots[id(op.operation)],), slot, several=False)
        function = self._override(op) or self.generic_visit(op)
        spec = spec_of(op)
        if isinstance(function, partial) and function.func is apply:
            operands = tuple(self._slot(value, static=False) for value in spec.operands_of(op))
            function = _listed(function)
        else:
            names = (*spec.operands, *([""] * len(spec.operands_of(op))))
            operands = tuple(
                self._slot(value, static=name in spec.static)
                for name, value in zip(names, spec.operands_of(op), strict=False)
            )
        return Instruction(op, function, operands, slot, several=len(op.output_names) > 1)

    def _override(self, op: Operation) -> Callable[..., Any] | None:
        """Return what a subclass's `visit_<Op>` returns; DNNF's own methods deviate from ONNX and are skipped."""
        for cls in type(self).__mro__[: type(self).__mro__.index(TorchConverter)]:
            if method := cls.__dict__.get(f"visit_{type(op).__name__}"):
                return method(self, op)  # type: ignore[no-any-return]
        return None

    def _slot(self, value: Operation | np.ndarray | None, *, static: bool) -> int:
        if isinstance(value, Operation):
            return self.slots[id(value)]
        key = (id(value), static)
        if key not in self._constant_slots:
            self._keep.append(value)
            self.constants.append(value if static or value is None else to_torch(value))
            self._constant_slots[key] = -len(self.constants)
        return self._constant_slots[key]


def _listed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: function(operands)


def _reads_dynamic_static(op: Operation, spec: OperatorSpec) -> bool:
    return any(isinstance(getattr(op, name), Operation) for name in spec.static)


class TorchModel(torch.nn.Module):
    """A network as a PyTorch module, one sample at a time; batch it with `torch.func.vmap`.

    Constants are buffers; tensors that nothing reads any more are freed on the way.

    Attributes:
        graph: The graph it was made from.
        separable: Whether no value of a tensor decides shapes or branches, so that `torch.func.vmap` applies.
    """

    def __init__(
        self,
        graph: Graph,
        steps: dict[int, Instruction],
        slots: dict[int, int],
        constants: Sequence[Tensor | np.ndarray | None],
    ) -> None:
        super().__init__()
        self.graph = graph
        self._steps = steps
        self._slots = slots
        self._count = len(graph.order)
        self._host: list[Tensor | np.ndarray | None] = list(constants)
        for position, value in enumerate(constants):
            if isinstance(value, Tensor):
                self.register_buffer(f"constant_{position}", value, persistent=False)
        self._tail = self._host[::-1]
        self._plans: dict[tuple[int, ...], list[_Planned]] = {}
        self.separable = not any(
            _reads_dynamic_static(op, spec_of(op)) or spec_of(op).dynamic_shape for op in graph.nodes
        )
        self._alongside = _batch_calls(graph) if self.separable else None

    @property
    def batches(self) -> bool:
        """Whether every operator keeps samples along dimension 0 apart, so that a batch needs no `torch.func.vmap`."""
        return self._alongside is not None

    def _apply(self, *args: Any, **kwargs: Any) -> TorchModel:
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        for position, value in enumerate(self._host):
            if isinstance(value, Tensor):
                self._host[position] = getattr(self, f"constant_{position}")
        self._tail = self._host[::-1]
        return self

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Evaluate one sample; inputs and outputs have the model's shapes."""
        return self.observe(inputs, {})[0]

    def observe(
        self, inputs: Sequence[Tensor], probes: Mapping[int, Probe], *, outputs: bool = True, batch: bool = False
    ) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """Evaluate one sample, or a `batch` along dimension 0, and observe operations, by `id`, on the way.

        Without outputs, only what the probes need is evaluated.  What these saw comes in topological order.
        """
        plan = self._plan(tuple(probes), outputs, batch)
        values: list[Any] = [None] * self._count + self._tail
        for op, x in zip(self.graph.inputs, inputs, strict=True):
            values[self._slots[id(op)]] = x
        seen = []
        for call, reads, write, several, op, dead in plan:
            operands = [values[slot] for slot in reads]
            result = call(*operands)
            if op is not None:
                seen.append(probes[id(op)](op, operands, result if isinstance(result, tuple) else (result,)))
            values[write] = result if several or not isinstance(result, tuple) else result[0]
            for slot in dead:
                values[slot] = None
        if not outputs:
            return (), seen
        return tuple(values[self._slots[id(op)]] for op in self.graph.output_operations), seen

    def _plan(self, probed: tuple[int, ...], outputs: bool, batch: bool) -> list[_Planned]:
        key = (*probed, -1 - outputs - 2 * batch)
        if key not in self._plans:
            wanted = set(probed)
            goals: list[Operation] = [op for op in self.graph.order if id(op) in wanted]
            ends = list(self.graph.output_operations) if outputs else []
            needed = {id(op) for op in topological_order([*goals, *ends])}
            steps = [self._steps[id(op)] for op in self.graph.order if id(op) in needed and not isinstance(op, Input)]
            if batch and self._alongside is not None:
                calls = self._alongside
                steps = [replace(step, call=calls.get(id(step.op), step.call)) for step in steps]
            kept = {self._slots[id(op)] for op in ends}
            self._plans[key] = _plan(fuse(steps, wanted, kept), wanted, kept)
        return self._plans[key]


def _batch_calls(graph: Graph) -> dict[int, Callable[..., Any]] | None:
    """Return the function of each operator on a batch along dimension 0, None if one may mix samples."""
    calls: dict[int, Callable[..., Any]] = {}
    if any(len(details.shape) == 0 or details.shape[0] != 1 for details in graph.input_details):
        return None
    for op in graph.order:
        if isinstance(op, Input):
            continue
        if isinstance(op, OutputSelect):
            if graph.details_of(op).shape[:1] != (1,):
                return None
            continue
        operands = [_as_operand(graph, value) for value in spec_of(op).operands_of(op)]
        function = batch_function(op, operands, graph.details_of(op).shape)
        if function is None:
            return None
        calls[id(op)] = partial(function, op)
    return calls


def _as_operand(graph: Graph, value: Operation | np.ndarray | None) -> Operand | None:
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return Operand(value.shape, batched=False)
    return Operand(tuple(graph.details_of(value).shape), batched=True)


def _plan(steps: Sequence[Instruction], observed: Collection[int], kept: Collection[int]) -> list[_Planned]:
    last: dict[int, int] = {}
    for position, step in enumerate(steps):
        for slot in step.reads:
            if slot >= 0 and slot not in kept:
                last[slot] = position
    dead: dict[int, list[int]] = {}
    for slot, position in last.items():
        dead.setdefault(position, []).append(slot)
    return [
        (
            step.call,
            step.reads,
            step.write,
            step.several,
            step.op if id(step.op) in observed else None,
            tuple(dead.get(position, ())),
        )
        for position, step in enumerate(steps)
    ]


def convert(graph: Graph) -> TorchModel:
    """Return a graph as a PyTorch module on the CPU."""
    return TorchConverter().convert(graph)
