# ruff: noqa: D102 - `compute` and `affine` are described in Term
"""Numeric terms of a property: tensors that depend on the inputs, with shapes known beforehand, and their values.

A term's value has one leading batch dimension and is float64, whatever the dtype of inputs and outputs: float16,
float32 and integers up to 2^53 are compared as they are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ranum_falsify.errors import PropertyError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph
from ranum_falsify.network.tensors import torch_dtype

_MOST_EXACT = 2**53  # up to here every integer is a float64 number
_GREATEST = {2**63 - 1, 2**64 - 1}


@dataclass(frozen=True, eq=False)
class AffineForm:
    """`scale * x[index] + offset`, elementwise, for a variable x flattened."""

    variable: Variable
    index: np.ndarray
    scale: np.ndarray
    offset: np.ndarray

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> AffineForm:
        """Rearrange or broadcast all elements alike."""
        return AffineForm(self.variable, function(self.index), function(self.scale), function(self.offset))


class Term(ABC):
    """A tensor that depends on the inputs.

    Attributes:
        shape: Shape without the batch dimension.
        operands: The terms it is computed from.
    """

    shape: tuple[int, ...]
    operands: tuple[Term, ...] = ()

    @abstractmethod
    def compute(self, frame: Frame) -> Tensor:
        """Return the value `(batch, *shape)` in float64."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def variable_name(self) -> str | None:
        """The variable's name, if the term is a variable."""
        return None

    @cached_property
    def affine(self) -> AffineForm | None:
        """The term as an elementwise affine function of one variable, if it is one."""
        return None

    @cached_property
    def applies_network(self) -> bool:
        """Whether the value depends on a network."""
        return any(operand.applies_network for operand in self.operands)


class Variable(Term):
    """A quantified input."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype

    def compute(self, frame: Frame) -> Tensor:
        return frame.env[self.name].to(torch.float64)

    @property
    def variable_name(self) -> str:
        return self.name

    @cached_property
    def affine(self) -> AffineForm:
        index = np.arange(self.size).reshape(self.shape)
        return AffineForm(self, index, np.broadcast_to(1.0, self.shape), np.broadcast_to(0.0, self.shape))


class Const(Term):
    """A value known beforehand."""

    def __init__(self, value: Any) -> None:
        try:
            array = np.asarray(value)
        except ValueError:  # rows of different lengths
            array = np.empty((), object)
        if array.dtype == object or array.dtype.kind not in "biufV" or (array.dtype.kind == "V" and array.dtype.names):
            raise PropertyError(f"property: a number or an array of numbers is needed, got {_shorten(value)}")
        _check_exact(array)
        self.array: np.ndarray = array.astype(np.float64)
        self.shape = array.shape
        self._tensors: dict[torch.device, Tensor] = {}

    def compute(self, frame: Frame) -> Tensor:
        if frame.device not in self._tensors:
            self._tensors[frame.device] = torch.from_numpy(self.array.copy()[None]).to(frame.device)
        return self._tensors[frame.device]


def _check_exact(array: np.ndarray) -> None:
    """Refuse integers that are no float64 numbers, except the greatest ones, which boxes know how to reach."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8:
        return
    large = array[(array > _MOST_EXACT) | (array < -_MOST_EXACT)]
    for value in {int(value) for value in large} - _GREATEST:
        if int(float(value)) != value:
            raise PropertyError(
                f"property: {value} is not a float64 number, and properties compute in float64; take one that is, "
                f"such as {int(np.nextafter(float(value), 0.0))}"
            )


def _shorten(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


class Output(Term):
    """An output of a network application."""

    def __init__(self, call: NetworkCall, index: int) -> None:
        self.call = call
        self.index = index
        self.operands = call.arguments
        self.shape = tuple(int(d) for d in call.graph.output_details[index].shape)

    def compute(self, frame: Frame) -> Tensor:
        return frame.outputs(self.call)[self.index].to(torch.float64)

    @cached_property
    def applies_network(self) -> bool:
        return True


class Elementwise(Term):
    """A function of broadcast operands, element by element."""

    def __init__(self, name: str, function: Callable[..., Tensor], *operands: Term) -> None:
        try:
            self.shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        except ValueError as error:
            shapes = " and ".join(str(operand.shape) for operand in operands)
            raise PropertyError(f"property: shapes {shapes} do not fit together in {name!r}") from error
        self.name = name
        self.function = function
        self.operands = operands

    def compute(self, frame: Frame) -> Tensor:
        return self.function(*(align(frame.value(operand), len(self.shape)) for operand in self.operands))

    @cached_property
    def affine(self) -> AffineForm | None:
        if self.name not in _AFFINE:
            return None
        constants = [operand.array if isinstance(operand, Const) else None for operand in self.operands]
        affines = [None if isinstance(operand, Const) else operand.affine for operand in self.operands]
        known = [affine for affine in affines if affine is not None]
        if len(known) != 1 or any(c is None and a is None for c, a in zip(constants, affines, strict=True)):
            return None
        inner = known[0].map(lambda array: np.broadcast_to(array, self.shape))
        return _AFFINE[self.name](inner, constants)


def align(value: Tensor, rank: int) -> Tensor:
    """Insert dimensions after the batch, so that operands of different ranks broadcast as without it."""
    missing = rank - (value.dim() - 1)
    return value if missing <= 0 else value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:])


def _affine_add(inner: AffineForm, constants: list[np.ndarray | None]) -> AffineForm:
    constant = next(c for c in constants if c is not None)
    return AffineForm(inner.variable, inner.index, inner.scale, inner.offset + constant)


def _affine_sub(inner: AffineForm, constants: list[np.ndarray | None]) -> AffineForm:
    left, right = constants
    if left is None:
        assert right is not None
        return AffineForm(inner.variable, inner.index, inner.scale, inner.offset - right)
    return AffineForm(inner.variable, inner.index, -inner.scale, left - inner.offset)


def _affine_mul(inner: AffineForm, constants: list[np.ndarray | None]) -> AffineForm:
    constant = next(c for c in constants if c is not None)
    return AffineForm(inner.variable, inner.index, inner.scale * constant, inner.offset * constant)


def _affine_div(inner: AffineForm, constants: list[np.ndarray | None]) -> AffineForm | None:
    left, right = constants
    if left is not None or right is None:
        return None
    with np.errstate(all="ignore"):
        return AffineForm(inner.variable, inner.index, inner.scale / right, inner.offset / right)


def _affine_neg(inner: AffineForm, constants: list[np.ndarray | None]) -> AffineForm:
    return AffineForm(inner.variable, inner.index, -inner.scale, -inner.offset)


_AFFINE: dict[str, Callable[[AffineForm, list[np.ndarray | None]], AffineForm | None]] = {
    "+": _affine_add,
    "-": _affine_sub,
    "*": _affine_mul,
    "/": _affine_div,
    "negate": _affine_neg,
}


class Gather(Term):
    """Elements of another term: any NumPy index, reshape or transposition."""

    def __init__(self, base: Term, index: np.ndarray) -> None:
        self.base: Term = base.base if isinstance(base, Gather) else base
        self.index: np.ndarray = base.index.reshape(-1)[index] if isinstance(base, Gather) else index
        self.shape = index.shape
        self.operands = (self.base,)
        self._indices: dict[torch.device, Tensor] = {}

    def compute(self, frame: Frame) -> Tensor:
        value = frame.value(self.base)
        if frame.device not in self._indices:
            self._indices[frame.device] = torch.from_numpy(np.array(self.index).reshape(-1)).to(frame.device)
        if value.dim() != 2:
            value = value.reshape(value.shape[0], -1)
        flat = value.index_select(1, self._indices[frame.device])
        return flat if len(self.shape) == 1 else flat.reshape(value.shape[0], *self.shape)

    @cached_property
    def affine(self) -> AffineForm | None:
        inner = self.base.affine
        return None if inner is None else inner.map(lambda array: array.reshape(-1)[self.index])


@cache
def _positions(shape: tuple[int, ...]) -> np.ndarray:
    positions = np.arange(math.prod(shape)).reshape(shape)
    positions.setflags(write=False)
    return positions


def rearrange(term: Term, rearrange: Callable[[np.ndarray], Any]) -> Term:
    """Return the elements that a NumPy operation picks, such as `lambda a: a[0, 1:]`."""
    return Gather(term, np.asarray(rearrange(_positions(term.shape))))


_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "max": torch.amax,
    "min": torch.amin,
    "sum": torch.sum,
    "mean": torch.mean,
}


class Reduce(Term):
    """Maximum, minimum, sum or mean along axes."""

    def __init__(self, kind: str, base: Term, axis: Any = None, keepdims: bool = False) -> None:
        self.kind = kind
        self.base = base
        self.operands = (base,)
        rank = len(base.shape)
        axes = range(rank) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
        self.axes = tuple(sorted(_axis(a, rank, kind) for a in axes))
        if kind in ("max", "min") and any(base.shape[a] == 0 for a in self.axes):
            raise PropertyError(f"property: {kind} of no elements")
        self.keepdims = keepdims
        kept = [1 if i in self.axes else d for i, d in enumerate(base.shape) if keepdims or i not in self.axes]
        self.shape = tuple(kept)

    def compute(self, frame: Frame) -> Tensor:
        value = frame.value(self.base)
        if not self.axes:
            return value
        return _REDUCTIONS[self.kind](value, dim=tuple(a + 1 for a in self.axes), keepdim=self.keepdims)


def _axis(axis: Any, rank: int, name: str) -> int:
    if not isinstance(axis, int | np.integer) or not -rank <= axis < rank:
        raise PropertyError(f"property: {name} along axis {axis!r} of a value with {rank} dimensions")
    return int(axis) % rank


class Arg(Term):
    """Index of the first maximum or minimum, along an axis or of the flattened value."""

    def __init__(self, kind: str, base: Term, axis: Any = None) -> None:
        self.kind = kind
        if axis is None:
            base, self.axis = rearrange(base, np.ravel), 0
        else:
            self.axis = _axis(axis, len(base.shape), kind)
        if base.shape[self.axis] == 0:
            raise PropertyError(f"property: {kind} of no elements")
        self.base = base
        self.operands = (base,)
        self.shape = base.shape[: self.axis] + base.shape[self.axis + 1 :]

    @property
    def choices(self) -> int:
        """Number of indices to choose from."""
        return self.base.shape[self.axis]

    def scores(self, frame: Frame) -> Tensor:
        """Return `(batch, *shape, choices)`: the index is that of the highest score."""
        value = frame.value(self.base).movedim(self.axis + 1, -1)
        return value if self.kind == "argmax" else -value

    def compute(self, frame: Frame) -> Tensor:
        return self.scores(frame).argmax(-1).to(torch.float64)


# applications of networks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Trainable:
    """What a property says about the training of a network.

    Attributes:
        weights: The freed initializers, which training changes.
        loss: Nodes or outputs whose sum training makes small.
        one_hot: Labels; each row of one of floating type is 0 but for a single 1.
        parts: For each loss, how the names of those weights begin that make it small; if empty, all weights do.
    """

    weights: tuple[str, ...]
    loss: tuple[str, ...]
    one_hot: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkCall:
    """One application of a network; equal applications in a property are one object.

    Attributes:
        network: The network as the property writes it, such as `N` or `N[2:-3]`.
        graph: The graph applied.
        arguments: What it is applied to, in the order of the graph's inputs.
        trainable: How it is trained, None if the property does not say.
    """

    network: str
    graph: Graph
    arguments: tuple[Term, ...]
    trainable: Trainable | None = None

    @property
    def variables(self) -> tuple[str | None, ...]:
        """The variable that each argument is; None for an expression or a constant."""
        return tuple(argument.variable_name for argument in self.arguments)


@dataclass(frozen=True, kw_only=True, eq=False)
class ValidityGoal:
    """`no_invalid_input(N(x), ...)`: no operator of this application receives an invalid input.

    Attributes:
        call: The application.
        only: ONNX operator types to look at, all if None.
        nodes: ONNX node names to look at, all if None.
        gradient: Whether derivatives must be finite too.
    """

    call: NetworkCall
    only: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None
    gradient: bool = False


class Evaluator(Protocol):
    """Runs networks for a problem.  All tensors have one leading batch dimension."""

    def outputs(self, call: NetworkCall, arguments: tuple[Tensor, ...]) -> Sequence[Tensor]:
        """Return the outputs, each `(batch, *output_shape)`, for arguments `(batch, *input_shape)`.

        Arguments have the dtypes of the graph's inputs.  A constant argument has a batch of 1.
        """

    def validity(self, goal: ValidityGoal, arguments: tuple[Tensor, ...]) -> Tensor:
        """Return the least margin `(batch,)` of the goal's constraints; negative is violated."""


# evaluation -----------------------------------------------------------------------------------------------------------


class Frame:
    """The values of one evaluation, each computed once."""

    def __init__(self, env: Mapping[str, Tensor], evaluator: Evaluator | None) -> None:
        self.env = env
        self._evaluator = evaluator
        self._values: dict[int, Tensor] = {}
        self._calls: dict[int, tuple[Tensor, ...]] = {}
        first = next(iter(env.values()))
        self.batch = first.shape[0]
        self.device = first.device

    @property
    def evaluator(self) -> Evaluator:
        """What runs the networks."""
        assert self._evaluator is not None, "only terms without networks can be evaluated without an evaluator"
        return self._evaluator

    def value(self, term: Term) -> Tensor:
        """Return a term's value `(batch, *term.shape)`, or `(1, *term.shape)` where it is constant."""
        key = id(term)
        if key not in self._values:
            self._values[key] = term.compute(self)
        return self._values[key]

    def arguments(self, call: NetworkCall) -> tuple[Tensor, ...]:
        """Return the arguments of an application in the graph's input dtypes."""
        tensors = []
        for argument, details in zip(call.arguments, call.graph.input_details, strict=True):
            if argument.variable_name is not None:
                tensors.append(self.env[argument.variable_name])
            else:
                tensors.append(self.value(argument).to(torch_dtype(details.dtype)))
        batched = [tensor.shape[0] != 1 for tensor in tensors]
        if any(batched):
            tensors = [t if t.shape[0] != 1 else t.expand(self.batch, *t.shape[1:]) for t in tensors]
        return tuple(tensors)

    def outputs(self, call: NetworkCall) -> tuple[Tensor, ...]:
        """Return the outputs of an application, evaluated once."""
        key = id(call)
        if key not in self._calls:
            self._calls[key] = tuple(self.evaluator.outputs(call, self.arguments(call)))
        return self._calls[key]

    def validity(self, goal: ValidityGoal) -> Tensor:
        """Return the margin `(batch,)` of a validity goal in float64."""
        key = id(goal)
        if key not in self._values:
            margin = self.evaluator.validity(goal, self.arguments(goal.call)).to(torch.float64)
            self._values[key] = margin.expand(self.batch)
        return self._values[key]
