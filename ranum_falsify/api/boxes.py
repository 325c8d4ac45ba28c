"""Boxes as users give them, resolved to a range for each input of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import EllipsisType
from typing import Any

import numpy as np
from dnnv.nn.utils import TensorDetails

from ranum_falsify.api.defaults import default_range
from ranum_falsify.api.generated_property import InputRange
from ranum_falsify.errors import UsageError
from ranum_falsify.network import Graph
from ranum_falsify.network.string_inputs import string_inputs

Bound = float | np.ndarray | Any
"""A number for all elements, or an array that broadcasts to the input's shape."""

Range = tuple[Bound, Bound] | Bound
"""Lower and upper bound, or a value that does not vary."""

BoxLike = Range | Mapping[str | EllipsisType, Range]
"""One range for all inputs, or ranges by name, `...` standing for all other inputs; what is left out has a default."""


def ranges_of(graph: Graph, box: BoxLike | None) -> tuple[InputRange, ...]:
    """Return the range of each input of a graph.

    Args:
        graph: The graph.
        box: What the user says; inputs that it leaves out range over what `default_range` says.

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
        make_range(name, given[name], details) if name in given else _default(graph, position)
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
    return tuple(make_range(name, one, inputs[name]) for name, one in given)


def _default(graph: Graph, position: int) -> InputRange:
    name = graph.input_names[position]
    found = default_range(graph, position)
    return InputRange(name=name, lower=found.lower, upper=found.upper, default=found.reason)


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


def make_range(name: str, given: Range, details: TensorDetails, *, what: str = "box: input") -> InputRange:
    """Return a range for a tensor.

    Args:
        name: The tensor.
        given: What the user says.
        details: Its shape and dtype.
        what: What errors call it.

    Raises:
        UsageError: The range does not fit.
    """
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
