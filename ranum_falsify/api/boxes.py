"""Boxes: what inputs of a model, and weights that range too, range over, as users give it or by default."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from types import EllipsisType
from typing import Any, Literal

import numpy as np
import onnx
from dnnv.nn.utils import TensorDetails

from ranum_falsify.api.generated_property import InputRange
from ranum_falsify.errors import UsageError
from ranum_falsify.network import Graph
from ranum_falsify.network.string_inputs import string_inputs
from ranum_falsify.operators.relations.uses import find_uses

_IMAGES = frozenset("image images img imgs pixel pixels photo photos picture pictures frame frames rgb bgr".split())
_MASKS = frozenset("mask masks masked".split())
_LENGTHS = frozenset("length lengths len lens".split())
_STEPS = frozenset("timestep timesteps".split())
_LAST_STEP = 999  # diffusion models are trained with 1,000
_COLOURS = (1, 3, 4)
_LEAST_SIDE = 16  # pixels


def default_range(graph: Graph, position: int) -> InputRange:
    """Return what an input ranges over unless users say otherwise.

    Floating numbers range over [-1, 1], images over [0, 1]: what has such a name, or the shape of one with 1, 3 or 4
    colours.  Booleans are both, strings may be any; numbers that choose from a table are its indices, labels of a loss
    are the classes that it has scores of, masks are 0 and 1, integers of 8 bits all there are, and others between the
    constants that they are compared with, lengths or steps by their names, or 0 and 1.

    Args:
        graph: The network.
        position: That of the input.
    """
    source, details = graph.inputs[position], graph.input_details[position]
    dtype: np.dtype[Any] = np.dtype(details.dtype)
    if graph.source is not None and (strings := string_inputs(graph.source).get(source.name)):
        return InputRange(name=source.name, lower=0, upper=len(strings) - 1, default="any string")
    words = set(re.findall("[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", source.name).lower()))
    if dtype.kind == "b":
        return InputRange(name=source.name, lower=0, upper=1, default="booleans")
    uses = find_uses(graph, source)
    if uses.ranges:
        fewest = min(uses.ranges, key=lambda one: one.count)
        upper = min(max(fewest.count - 1, 0), _greatest(dtype))
        return InputRange(name=source.name, lower=0, upper=upper, default=fewest.meaning)
    if dtype.kind not in "iu":
        if words & _IMAGES or _is_image(tuple(int(size) for size in details.shape)):
            return InputRange(name=source.name, lower=0, upper=1, default="an image")
        return InputRange(name=source.name, lower=-1, upper=1, default="floating numbers")
    if words & _MASKS:
        return InputRange(name=source.name, lower=0, upper=1, default="a mask")
    if dtype.itemsize == 1:
        ends = np.iinfo(dtype)
        return InputRange(name=source.name, lower=int(ends.min), upper=int(ends.max), default=f"all of {dtype}")
    lower, upper, reason = _guess(graph, words, [x for x in uses.compared if np.isfinite(x).all()])
    lower, upper = max(lower, np.iinfo(dtype).min), min(upper, _greatest(dtype))
    return InputRange(name=source.name, lower=lower, upper=upper, default=reason, is_guess=True)


def _guess(graph: Graph, words: Set[str], compared: Sequence[np.ndarray]) -> tuple[float, float, str]:
    """Return what an input of integers may range over, by its name or the constants that it is compared with."""
    if words & _LENGTHS:
        sizes = [int(size) for one in graph.input_details for size in one.shape]
        return 1, max(sizes, default=1), "a length"
    if words & _STEPS:
        return 0, _LAST_STEP, "a step of diffusion"
    lower, upper = min((x.min() for x in compared), default=0), max((x.max() for x in compared), default=0)
    if lower or upper:
        named = "the number" if lower == upper else "between numbers"
        return int(lower), int(upper), f"{named} that it is compared with"
    return 0, 1, "integers, of which nothing is known"


def _greatest(dtype: np.dtype[Any]) -> float:
    """Return the greatest number of a dtype."""
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def _is_image(shape: tuple[int, ...]) -> bool:
    """Tell whether this is the shape of a batch of images, the colours first or last."""
    if len(shape) != 4:
        return False
    sides = ((shape[1], shape[2:]), (shape[3], shape[1:3]))
    return any(colours in _COLOURS and min(rest) >= _LEAST_SIDE for colours, rest in sides)


Bound = float | np.ndarray | Any
"""A number for all elements, or an array that broadcasts to the input's shape."""

Range = tuple[Bound, Bound] | Bound
"""Lower and upper bound, or a value that does not vary."""

BoxLike = Range | Mapping[str | EllipsisType, Range]
"""One range for all inputs, or ranges by name, `...` standing for all other inputs; what is left out has a default."""


def ranges_of(graph: Graph, box: BoxLike | None) -> tuple[InputRange, ...]:
    """Return the range of each input of a graph.

    Raises:
        UsageError: The box does not fit the inputs.
    """
    inputs = dict(zip(graph.input_names, graph.input_details, strict=True))
    # What is said of all inputs, or of all others, is not said of strings.
    texts = {} if graph.source is None else string_inputs(graph.source)
    named = box if isinstance(box, Mapping) else {}
    meant = {name: one for name, one in inputs.items() if name not in texts or name in named}
    given = {} if box is None else dict(_map_by_name(box, meant))
    ranges = [
        _make_range(name, given[name], details) if name in given else default_range(graph, position)
        for position, (name, details) in enumerate(inputs.items())
    ]
    return tuple(ranges)


def given_ranges(inputs: Mapping[str, TensorDetails], box: BoxLike | None) -> tuple[InputRange, ...]:
    """Return the ranges that a box gives to inputs; what it says of other names is not looked at.

    Raises:
        UsageError: A range does not fit its input.
    """
    if isinstance(box, Mapping):
        box = {name: one for name, one in box.items() if name is ... or name in inputs}
    given = () if box is None else _map_by_name(box, inputs)
    return tuple(_make_range(name, one, inputs[name]) for name, one in given)


def _map_by_name(box: BoxLike, inputs: Mapping[str, TensorDetails]) -> Iterator[tuple[str, Range]]:
    if not isinstance(box, Mapping):
        yield from ((name, box) for name in inputs)
        return
    unknown = [name for name in box if name is not ... and name not in inputs]
    if unknown:
        raise UsageError(f"box: the model has no input {unknown[0]!r}; it has {_describe_inputs(inputs)}")
    for name in inputs:
        if name in box:
            yield name, box[name]
        elif ... in box:
            yield name, box[...]


def _describe_inputs(inputs: Mapping[str, TensorDetails]) -> str:
    return ", ".join(_describe(name, details) for name, details in inputs.items())


def _describe(name: str, details: TensorDetails) -> str:
    return f"{name} ({details.dtype} {list(details.shape)})"


def _make_range(name: str, given: Range, details: TensorDetails, *, what: str = "box: input") -> InputRange:
    """Return a range for a tensor."""
    subject = f"{what} {name!r}"
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise UsageError(f"{subject}: give (lower, upper), got {len(given)} values")
        lower, upper = (_bound(subject, bound, details) for bound in given)
    else:
        lower = upper = _bound(subject, given, details)
    above = np.asarray(lower) > np.asarray(upper)
    if above.any():
        at = tuple(int(i) for i in np.argwhere(above)[0])
        low, high = (np.broadcast_to(bound, above.shape)[at].item() for bound in (lower, upper))
        place = f" at {list(at)}" if at else ""
        raise UsageError(f"{subject}: lower bound {low:.9g} is above upper bound {high:.9g}{place}")
    return InputRange(name=name, lower=lower, upper=upper)


def _bound(subject: str, given: Bound, details: TensorDetails) -> float | np.ndarray:
    """Return a bound as a Python number, or as an array of the input's shape."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"{subject}: {type(given).__name__} is neither a number nor an array; give one") from error
    if array.dtype.kind not in "iufb" and array.dtype.name != "bfloat16":
        raise UsageError(f"{subject}: {given!r:.60} is neither a number nor an array of numbers; give one")
    numbers = array.astype(np.float64) if array.dtype.kind not in "iub" else array
    if not np.isfinite(numbers).all():
        what = "NaN" if np.isnan(numbers).any() else "an infinity"
        raise UsageError(f"{subject}: {what} cannot be a bound; give finite numbers")
    if array.ndim == 0:
        number: float = numbers.item()
        return number
    shape = tuple(int(size) for size in details.shape)
    try:
        return np.broadcast_to(numbers, shape).copy()
    except ValueError as error:
        raise UsageError(
            f"{subject} is {details.dtype} {list(shape)}, the bound has shape {list(array.shape)}"
        ) from error


FreeLike = Literal["all"] | Sequence[str]
"""All initializers that are weights, or their names."""

WeightsLike = float | tuple[float, float]
"""A share of each value by which it varies, or lower and upper bound of all values."""

DEFAULT_WEIGHTS = 0.1


def weight_ranges(
    graph: Graph, free: FreeLike, weights: WeightsLike, box: Mapping[Any, Range]
) -> tuple[InputRange, ...]:
    """Return what initializers of a network range over.

    Args:
        graph: The network.
        free: Which of its initializers; "all" are the tensors of finite floating numbers with at least one dimension,
            for a scalar is rather a constant.
        weights: A share `s`: each value `v` ranges over `v - s * abs(v)` to `v + s * abs(v)`; a value of 0 over `s`
            times the largest magnitude of its tensor, and over `s` where all of the tensor is 0.  A pair: all range
            over that.
        box: What some of them range over instead, by name.

    Raises:
        UsageError: There is no such initializer, or it cannot range over that.
    """
    tensors = {} if graph.source is None else {tensor.name: tensor for tensor in graph.source.graph.initializer}
    if isinstance(free, str):
        if free != "all":
            raise UsageError(f'free={free!r}: is neither "all" nor a list; give ["{free}"] for an initializer')
        names = list(_find(tensors))
        if not names:
            raise UsageError('free="all": the model has no initializer that is a weight; give names')
    else:
        names = list(dict.fromkeys(free))
    for name in names:
        if name not in tensors:
            near = difflib.get_close_matches(name, tensors) or sorted(tensors)[:8]
            raise UsageError(f"free: no initializer is named {name!r}; there are {', '.join(near) or 'none'}")
    return tuple(_range(tensors[name], weights, box.get(name)) for name in names)


def describe_weights(ranges: Sequence[InputRange], weights: WeightsLike, box: Mapping[Any, Range]) -> str:
    """Return what users should know of initializers that range too, one sentence."""
    own = sum(one.name in box for one in ranges)
    count = f"{len(ranges)} initializer{'s' * (len(ranges) != 1)}"
    aside = f", but for {own} that the box names" if own else ""
    if isinstance(weights, tuple | list):
        return f"{count} range over [{weights[0]:.9g}, {weights[1]:.9g}]{aside}"
    return f"{count} range over their values +- {weights:.9g} of each{aside}"


def _find(tensors: dict[str, onnx.TensorProto]) -> Iterator[str]:
    for name, tensor in tensors.items():
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if tensor.dims and not _is_integer(dtype) and math.prod(tensor.dims) and np.isfinite(_read(tensor)).all():
            yield name


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind not in "fV"


def _read(tensor: onnx.TensorProto) -> np.ndarray:
    return onnx.numpy_helper.to_array(tensor).astype(np.float64)


def _range(tensor: onnx.TensorProto, weights: WeightsLike, own: Range | None) -> InputRange:
    name, dtype = tensor.name, onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if _is_integer(dtype):
        raise UsageError(f"free: initializer {name!r} holds {dtype}; only floating numbers range")
    if own is not None or isinstance(weights, tuple | list):
        given = weights if own is None else own
        what = "weights:" if own is None else "box: initializer"
        return _make_range(name, given, TensorDetails(tuple(tensor.dims), dtype), what=what)
    if isinstance(weights, bool) or not isinstance(weights, int | float) or not 0 <= weights < math.inf:
        raise UsageError(f"weights={weights!r}: is not a share; give a number from 0, or (lower, upper)")
    values = _read(tensor)
    if not np.isfinite(values).all():
        raise UsageError(f"free: initializer {name!r} holds NaN or infinity; give weights=(lower, upper)")
    sizes = np.abs(values)
    largest = float(sizes.max(initial=0.0))
    widths = weights * np.where(sizes > 0, sizes, largest or 1.0)
    return InputRange(name=name, lower=values - widths, upper=values + widths)
