"""Inputs on which two models are compared: ordinary ones, and those at which rewrites go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from ranum_falsify.errors import TransformError
from ranum_falsify.rewrite.model import tensors_of

_Bound = np.ndarray | np.floating[Any]

Box = Mapping[str, tuple[_Bound, _Bound]]
"""Least and greatest value of inputs, by name; scalars, or arrays that broadcast to the input."""

_FLOATS = ("float16", "float32", "float64", "bfloat16")
_MOST_TINY = 50
_HALVES = np.arange(-5, 6) / 2


@dataclass(frozen=True)
class InputSpec:
    """An input of a model.

    Attributes:
        name: Its name.
        dtype: Its element type.
        shape: Its shape; a symbolic dimension is its name, or `INPUT:AXIS` without one.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int | str, ...]

    def sized(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape with sizes for its symbolic dimensions."""
        return tuple(dim if isinstance(dim, int) else sizes[dim] for dim in self.shape)


def input_specs(model: ir.Model) -> list[InputSpec]:
    """Return the inputs of a model that have no initializer.

    Raises:
        TransformError: An input is none that can be drawn.
    """
    specs = []
    for value in model.graph.inputs:
        if value.is_initializer():
            continue
        if not isinstance(value.type, ir.TensorType) or value.shape is None:
            raise TransformError(
                f"input {value.name!r} is no tensor of known rank, so that no samples can be drawn; "
                "give inputs with --reference"
            )
        dtype = value.type.dtype.numpy()
        if dtype.kind not in "iub" and dtype.name not in _FLOATS:
            raise TransformError(
                f"input {value.name!r} holds {value.type.dtype.name.lower()}, of which no samples can be drawn; "
                "give inputs with --reference"
            )
        sizes = [dim if isinstance(dim, int) else str(dim.value or "") for dim in value.shape]
        shape = tuple(
            # Some exporters write -1 for a size that is not known.
            f"{value.name}:{axis}" if dim == "" or (isinstance(dim, int) and dim < 0) else dim
            for axis, dim in enumerate(sizes)
        )
        specs.append(InputSpec(value.name or "", np.dtype(dtype), shape))
    return specs


def draw_inputs(
    specs: Sequence[InputSpec],
    number: int,
    *,
    box: Box,
    sizes: Callable[[InputSpec], tuple[int, ...]],
    seed: int,
    landmarks: Sequence[float] = (),
) -> dict[str, np.ndarray]:
    """Return inputs of one kind; numbers that follow each other are of each kind in turn.

    Args:
        specs: The inputs.
        number: The number of the sample.
        box: Where they lie; an input that is not in it ranges over a quarter of its element type's finite range.
        sizes: The shape of an input.
        seed: Seed of the random choices.
        landmarks: Values at which the model may change what it does.
    """
    turn, place = divmod(number, KINDS)
    choice = _Choice(_KINDS[place], turn, np.random.default_rng((seed, number)), np.asarray(landmarks, np.float64))
    return {spec.name: _draw(spec, sizes(spec), box.get(spec.name), choice) for spec in specs}


def draw_special_inputs(
    specs: Sequence[InputSpec], number: int, *, box: Box, sizes: Callable[[InputSpec], tuple[int, ...]], seed: int
) -> dict[str, np.ndarray] | None:
    """Return inputs that hold infinities or NaN, or both; None where all inputs have a range, to which they keep.

    Arguments are those of `draw_inputs`.
    """
    free = {spec.name for spec in specs if spec.name not in box and spec.dtype.name in _FLOATS}
    special = ([np.inf, -np.inf], [np.nan], [np.inf, -np.inf, np.nan])
    if not free:
        return None
    inputs = draw_inputs(specs, number, box=box, sizes=sizes, seed=seed)
    rng = np.random.default_rng((seed, number))
    for name in free:
        array = inputs[name]
        values = rng.choice(special[number % len(special)], array.shape).astype(array.dtype)
        inputs[name] = np.where(rng.random(array.shape) < 0.3, values, array)
    return inputs


@dataclass(frozen=True)
class _Choice:
    """Which kind of sample is drawn, for the how-manieth time, and from what."""

    kind: _Kind
    turn: int
    rng: np.random.Generator
    landmarks: np.ndarray


def _draw(spec: InputSpec, shape: tuple[int, ...], limits: tuple[_Bound, _Bound] | None, choice: _Choice) -> np.ndarray:
    rng, turn = choice.rng, choice.turn
    if spec.dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if spec.dtype.kind in "iu":
        # Without a box they may well be indices, which must be small.
        ends = (0, 3 if turn else 1) if limits is None else limits
        low, high = (np.asarray(end).astype(spec.dtype) for end in ends)
        values = rng.integers(low, high, shape, dtype=spec.dtype, endpoint=True)
        corner = np.where(rng.random(shape) < 0.5, low, high)
        return corner.astype(spec.dtype) if choice.kind is _corners else values
    quarter = float(_limits(spec.dtype).max) / 4
    bounds = (np.float64(-quarter), np.float64(quarter)) if limits is None else limits
    least, greatest = (np.broadcast_to(np.asarray(bound, np.float64), shape) for bound in bounds)
    drawn = choice.kind(_Draw(shape, least, greatest, limits is not None, turn, spec.dtype, rng, choice.landmarks))
    with np.errstate(over="ignore"):
        return np.clip(drawn, least, greatest).astype(spec.dtype)


@dataclass(frozen=True)
class _Draw:
    """What a kind of sample is drawn from."""

    shape: tuple[int, ...]
    low: np.ndarray
    high: np.ndarray
    is_boxed: bool
    turn: int
    dtype: np.dtype
    rng: np.random.Generator
    landmarks: np.ndarray


def _limits(dtype: np.dtype) -> Any:
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


_Kind = Callable[[_Draw], np.ndarray]


def _uniform(draw: _Draw) -> np.ndarray:
    if draw.is_boxed:
        share = draw.rng.random(draw.shape)
        return draw.low * (1 - share) + draw.high * share
    return draw.rng.normal(size=draw.shape) * (1.0, 0.05, 8.0)[draw.turn % 3]


def _corners(draw: _Draw) -> np.ndarray:
    low, high = (draw.low, draw.high) if draw.is_boxed else (-np.ones(draw.shape), np.ones(draw.shape))
    share = (0.0, 1.0, 0.5)[draw.turn % 3]
    return np.where(draw.rng.random(draw.shape) < share, high, low)


def _zeros(draw: _Draw) -> np.ndarray:
    zeros = np.where(draw.rng.random(draw.shape) < 0.5, 0.0, -0.0)
    return np.where(draw.rng.random(draw.shape) < (0.0, 0.3)[draw.turn % 2], _uniform(draw), zeros)


def _denormals(draw: _Draw) -> np.ndarray:
    least = float(_limits(draw.dtype).smallest_subnormal)
    return draw.rng.integers(-_MOST_TINY, _MOST_TINY + 1, draw.shape) * least


def _ties(draw: _Draw) -> np.ndarray:
    """Few values, some of them neighbours in the element type."""
    values: np.ndarray = _uniform(draw).reshape(-1)[:3] if draw.turn % 2 else np.array([-1.0, 0.0, 1.0])
    return _pick(draw, values, (0.0, 0.3)[draw.turn % 2])


def _landmarks(draw: _Draw) -> np.ndarray:
    """Constants of the model, halves, and their neighbours in the element type; every other time as `_uniform`."""
    if not draw.turn % 2:
        return _uniform(draw)
    own = _pick(draw, draw.landmarks if draw.landmarks.size else _HALVES, 0.3)
    return np.where(draw.rng.random(draw.shape) < 0.5, own, _pick(draw, _HALVES, 0.1))


def _pick(draw: _Draw, values: np.ndarray, share: float) -> np.ndarray:
    """Return elements out of some values, a share of them moved to a neighbour."""
    if not values.size:
        return np.zeros(draw.shape)
    picked = draw.rng.choice(values, draw.shape)
    step = float(_limits(draw.dtype).eps) * np.abs(picked) * draw.rng.choice([-0.5, 1.0], draw.shape)
    moved: np.ndarray = picked + np.where(draw.rng.random(draw.shape) < share, step, 0.0)
    return moved


def _huge(draw: _Draw) -> np.ndarray:
    """Magnitudes up to the largest, spread over all exponents; or up to a hundred, where exponentials overflow."""
    top = np.log2(np.maximum(np.maximum(-draw.low, draw.high), 1.0))
    top = np.minimum(top, np.log2((100.0, 3e4, np.inf)[draw.turn % 3]))
    sign = np.where(draw.rng.random(draw.shape) < 0.5, -1.0, 1.0)
    magnitude: np.ndarray = np.exp2(draw.rng.random(draw.shape) * top)
    signed: np.ndarray = sign * magnitude
    return signed


_KINDS: tuple[_Kind, ...] = (_uniform, _corners, _ties, _huge, _landmarks, _zeros, _denormals, _huge)
KINDS = len(_KINDS)
"""How many kinds of samples there are."""


_LARGEST = 16
"""Elements of a constant that may be a threshold; larger ones are weights."""
_MOST = 256


def landmarks_of(model: ir.Model) -> list[float]:
    """Return the finite elements of a model's small constants of floats, each once, in order."""
    found = {
        float(element)
        for tensor in _constants(model)
        if tensor.size <= _LARGEST and tensor.dtype.is_floating_point()
        for element in tensor.numpy().astype(np.float64).reshape(-1)
        if np.isfinite(element)
    }
    return sorted(found)[:_MOST]


def _constants(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    yield from tensors_of(model)
    for graph in model.graphs():
        for node in graph:
            tensor = None if node.inputs or not node.outputs else ir.convenience.get_const_tensor(node.outputs[0])
            if tensor is not None:
                yield tensor
