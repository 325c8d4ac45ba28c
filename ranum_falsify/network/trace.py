"""The reader's knowledge of each tensor while it builds a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.utils import TensorDetails

from ranum_falsify.errors import ModelError
from ranum_falsify.network.evaluate import Value
from ranum_falsify.network.registry import OperatorSpec
from ranum_falsify.network.tensors import to_torch, torch_dtype
from ranum_falsify.process.heap import heap


@dataclass(eq=False)
class Run:
    """A node's run on the example input; if the shapes of its outputs are known, it waits until a value is needed.

    Attributes:
        evaluate: Returns the outputs; the operands must have their values.
        operands: What the node reads.
        outputs: What it writes, None where nothing can read it.
    """

    evaluate: Callable[[], tuple[torch.Tensor, ...]]
    operands: Sequence[Traced | None] = ()
    outputs: list[Traced | None] = field(default_factory=list)

    def keep(self, values: Sequence[torch.Tensor]) -> None:
        """Store the values of the outputs that are kept."""
        heap.note(sum(value.nbytes for value in values))
        for traced, value in zip(self.outputs, values, strict=False):
            if traced is not None:
                traced.example = value

    def make_examples(self) -> None:
        """Run the node, after those nodes before it whose values are missing."""
        waiting, done = [self], list[Run]()
        while waiting:
            missing = [t.run for t in waiting[-1].operands if t is not None and t.run is not None and not t.has_value]
            if missing:
                waiting += missing
                continue
            run = waiting.pop()
            if not all(t is None or t.has_value for t in run.outputs):
                run.keep(run.evaluate())
                done.append(run)
        for traced in (traced for run in done[:-1] for traced in run.outputs):
            if traced is not None and traced.is_forgotten:
                traced.example = None


@dataclass(eq=False)
class Traced:
    """A tensor of the model: where it comes from, and its value on the example input.

    Attributes:
        source: The operation that writes it, or its value if no input reaches it.
        details: Its shape, on the example input at least, and its dtype.
        fixed_shape: Whether its shape is the same for every input.
        example: Its value on the example input, if that was needed; dropped when nothing reads it any more.
        run: The run that computes the example; None for a constant.
        is_forgotten: Whether everything that reads it has been built.
    """

    source: Operation | np.ndarray
    details: TensorDetails
    fixed_shape: bool
    example: torch.Tensor | None = None
    run: Run | None = None
    is_forgotten: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether no input of the model reaches it."""
        return isinstance(self.source, np.ndarray)

    @property
    def has_value(self) -> bool:
        """Whether its value on the example input is available."""
        return self.is_constant or self.example is not None

    def tensor(self) -> torch.Tensor:
        """Return its value on the example input."""
        if self.example is None and isinstance(self.source, np.ndarray):
            self.example = to_torch(self.source)
        elif self.example is None and self.run is not None:
            self.run.make_examples()
        assert self.example is not None, "what is not a constant was written by a node"
        return self.example

    def number(self) -> int:
        """Return the value on the example input of what steers the flow of control.

        Raises:
            ModelError: It has not one element.
        """
        if math.prod(self.details.shape) != 1:
            raise ModelError(
                f"what an If or a Loop is steered by has shape {list(self.details.shape)}, not one element; "
                "ONNX Runtime refuses it too"
            )
        return int(self.tensor().reshape(-1)[0])

    def borrow(self) -> Traced:
        """Return the same tensor for another scope, which drops its example without harm to this one's."""
        if self.is_constant:
            return self
        run = Run(lambda: (self.tensor(),), [self])
        run.outputs.append(replace(self, run=run, is_forgotten=False))
        return cast(Traced, run.outputs[0])

    def make_placeholder(self) -> Traced:
        """Return a tensor of the same shape for nodes that look at nothing else; one number is stored for it."""
        number = torch.zeros((), dtype=torch_dtype(self.details.dtype))
        return replace(self, example=number.expand(self.details.shape))

    def value_for(self, spec: OperatorSpec, position: int) -> Value:
        """Return what the row reads at an operand position: an array where static, else a tensor."""
        name = spec.operands[position] if position < len(spec.operands) else ""
        if name in spec.static and isinstance(self.source, np.ndarray):
            return self.source
        return self.tensor()


def constant(array: np.ndarray) -> Traced:
    """Return a tensor that no input reaches."""
    array = np.asarray(array)
    return Traced(source=array, details=TensorDetails(array.shape, array.dtype), fixed_shape=True)


@dataclass(frozen=True)
class UnfitBranch:
    """A branch of an `If` that cannot run at the given dimensions; for example, each branch may take another length.

    Attributes:
        error: Why, and what to do.
    """

    error: str

    def evaluate(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Refuse to run.

        Raises:
            ModelError: Always.
        """
        raise ModelError(self.error)


class Scope:
    """Tensors by name; a child scope sees its parent's.

    Attributes:
        tensors: Those of this scope.
        parent: The scope around it.
        details: Shape and dtype of what operations write, by their names.
        conditioned: The operations of its graph that have conditions, whether their results are read or not; an output
            of those that have several.
    """

    def __init__(self, tensors: Mapping[str, Traced], parent: Scope | None = None, *, is_apart: bool = True) -> None:
        self.tensors = dict(tensors)
        self.parent = parent
        self.details: dict[str, TensorDetails] = {} if parent is None else parent.details
        self.conditioned: list[Operation] = [] if parent is None or is_apart else parent.conditioned

    def child(self, tensors: Mapping[str, Traced], *, is_apart: bool = False) -> Scope:
        """Return the scope of a subgraph, whose operations are in a graph apart or in that of this scope."""
        return Scope(tensors, parent=self, is_apart=is_apart)

    def __getitem__(self, name: str) -> Traced:
        """Return a visible tensor."""
        if name in self.tensors or self.parent is None:
            return self.tensors[name]
        return self.parent[name]

    def __setitem__(self, name: str, traced: Traced) -> None:
        """Add a tensor to this scope."""
        self.tensors[name] = traced

    def define(self, name: str, op: Operation, details: TensorDetails, run: Run, *, fixed_shape: bool = True) -> None:
        """Add a tensor that an operation writes, as the next output of a run, and note its shape and dtype."""
        traced = Traced(source=op, details=details, fixed_shape=fixed_shape, run=run)
        run.outputs.append(traced)
        self.tensors[name] = traced
        self.details[op.name] = details

    def constant_value(self, name: str) -> np.ndarray | None:
        """Return the value of a tensor that no input reaches, else None."""
        source = self[name].source
        return source if isinstance(source, np.ndarray) else None

    def forget_example(self, name: str) -> None:
        """Drop the example of a tensor of this scope that nothing reads any more."""
        if name in self.tensors and not self.tensors[name].is_constant:
            self.tensors[name].example, self.tensors[name].is_forgotten = None, True

    def names(self) -> Iterator[str]:
        """Yield all visible names."""
        yield from self.tensors
        if self.parent is not None:
            yield from self.parent.names()
