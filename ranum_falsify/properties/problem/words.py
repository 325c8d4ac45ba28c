"""What words and names of a property mean: all inputs of a network, freed weights, questions, elements of a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.properties.formula.formula import Comparison, Formula, Kind, conjunction
from ranum_falsify.properties.formula.terms import (
    Const,
    Gather,
    NetworkCall,
    Output,
    Term,
    Trainable,
    ValidityGoal,
    Variable,
)
from ranum_falsify.properties.language.vocabulary import (
    FiniteOutputs,
    LossName,
    NoInvalidInput,
    check_operators,
    names_option,
)
from ranum_falsify.properties.language.walk import ElementBounds, Elements, NamedTensor, shorten


class AllInputs(tuple[Variable, ...]):
    """What x stands for in `N(x)` where N takes several inputs: all of them; `x[1]` is the second."""

    def __getitem__(self, index: Any) -> Any:
        picked = super().__getitem__(index)
        return AllInputs(picked) if isinstance(index, slice) else picked


def pair(first: Any, second: Any, source: Any) -> list[tuple[Any, Any]]:
    """Pair all inputs with one bound for all of them, or with a bound for each."""
    count = len(first) if isinstance(first, AllInputs) else len(second)
    sides = []
    for side in (first, second):
        is_many = isinstance(side, tuple | list)
        if is_many and len(side) != count:
            raise PropertyError(f"property: {count} inputs, but {len(side)} bounds: {shorten(source)}")
        sides.append(list(side) if is_many else [side] * count)
    return list(zip(*sides, strict=True))


def check_free(expression: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Graph, Trainable]:
    """Return the network of `free(N, "W", loss=loss("cost"))`, and what is said about its training.

    Raises:
        PropertyError: It is written otherwise.
    """
    loss = kwargs.get("loss", LossName(()))
    graph, *names = args or [None]
    is_written = isinstance(graph, Graph) and names and all(isinstance(name, str) for name in names)
    if not is_written or kwargs.keys() - {"loss"} or not isinstance(loss, LossName):
        raise PropertyError(
            f'property: {shorten(expression)}: write free(N, "W", "b"), with names of initializers, '
            'and loss=loss("cost") if they are trained'
        )
    return graph, Trainable(weights=tuple(names), loss=loss.names, one_hot=loss.one_hot, parts=loss.parts)


def validity_goal(call: NetworkCall, options: Mapping[str, Any], source: Any) -> ValidityGoal:
    """Return what `no_invalid_input` asks of an application.

    Raises:
        PropertyError: The options are wrong.
    """
    if options.keys() - {"only", "nodes", "gradient"}:
        raise PropertyError(f"property: {shorten(source)}: write {NoInvalidInput.usage}")
    only, nodes = (names_option(name, options.get(name), source) for name in ("only", "nodes"))
    check_operators(only)
    return ValidityGoal(call=call, only=only, nodes=nodes, gradient=bool(options.get("gradient", False)))


def finite_outputs(outputs: Sequence[Output], options: Mapping[str, Any], source: Any) -> Formula:
    """Return the formula that all elements of the floating ones of some outputs are finite.

    Raises:
        PropertyError: There are options, which this has none of.
    """
    if options:
        raise PropertyError(f"property: {shorten(source)}: write {FiniteOutputs.usage}")
    floating = [output for output in outputs if output.size and _dtype(output).is_floating_point]
    largest = {id(output): torch.finfo(_dtype(output)).max for output in floating}
    return conjunction(
        Comparison("<=", low, high, source=source)
        for output in floating
        for low, high in ((Const(-largest[id(output)]), output), (output, Const(largest[id(output)])))
    )


def _dtype(output: Output) -> torch.dtype:
    return to_torch(np.empty(0, output.call.graph.output_details[output.index].dtype)).dtype


_KINDS: dict[str, tuple[Kind, bool, bool]] = {
    "<=": ("<=", False, False),
    "<": ("<", False, False),
    ">=": ("<=", True, False),
    ">": ("<", True, False),
    "==": ("==", False, False),
    "!=": ("==", False, True),
}
"""For each comparison: the kind of formula, whether the sides change places, and whether it is negated."""


def element_of(elements: Elements, value: Any) -> Term:
    """Return the only one of the elements.

    Args:
        elements: What a query names.
        value: The tensor's value: a term, or a tuple of them for all inputs or outputs of a network.

    Raises:
        PropertyError: The tensor has no such element, or is another than the query declares.
    """
    ((term, _, positions),) = _locate(elements, value)
    return Gather(term, positions.reshape(()))


def bounds_of(bounds: ElementBounds, value: Any) -> Formula:
    """Return the comparisons of elements with numbers, for arguments and errors as in `element_of`."""
    kind, swap, negated = _KINDS[bounds.kind]
    parts = []
    for term, chosen, positions in _locate(bounds.elements, value):
        left: Term = Gather(term, positions)
        right: Term = Const(bounds.values[chosen])
        if swap:
            left, right = right, left
        parts.append(Comparison(kind, left, right, negated=negated, source=bounds))
    return conjunction(parts)


def _locate(elements: Elements, value: Any) -> Iterator[tuple[Term, np.ndarray, np.ndarray]]:
    """Yield the terms that hold elements, which of the elements, and their positions in row-major order."""
    tensor, indices = elements.tensor, elements.indices
    terms = value if isinstance(value, tuple) else (value,)
    if tensor.shape is not None or indices.shape[1] != 1:
        if len(terms) != 1:
            raise PropertyError(
                f"property: {tensor.name} stands for {len(terms)} tensors; number their elements one after another, "
                f"as in {tensor.name}_0"
            )
        _check(tensor, terms[0])
        yield terms[0], np.arange(len(indices)), _ravel(elements, terms[0].shape)
        return
    flat, start = indices[:, 0], 0
    total = sum(term.size for term in terms)
    if flat.max() >= total:
        raise PropertyError(
            f"property: {tensor.name}_{flat.max()}: index {flat.max()} is out of bounds; there are {total} elements"
        )
    if len(terms) == 1:
        yield terms[0], np.arange(len(flat)), flat
        return
    for term in terms:
        chosen = np.nonzero((start <= flat) & (flat < start + term.size))[0]
        if len(chosen):
            yield term, chosen, flat[chosen] - start
        start += term.size


def _ravel(elements: Elements, shape: tuple[int, ...]) -> np.ndarray:
    indices = elements.indices
    if indices.shape[1] != len(shape) or (indices >= np.array(shape, np.int64)).any():
        raise PropertyError(f"property: {elements}: index is out of bounds; the shape is {list(shape)}")
    if not shape:
        return np.zeros(len(indices), np.int64)
    return np.asarray(np.ravel_multi_index(tuple(indices.T), shape))


def _check(tensor: NamedTensor, term: Term) -> None:
    """Refuse a tensor that is not declared as the model has it."""
    if tensor.shape is None:
        return
    dtype = None
    if isinstance(term, Variable):
        dtype = term.dtype.name
    elif isinstance(term, Output):
        dtype = np.dtype(term.call.graph.output_details[term.index].dtype).name
    if term.shape != tensor.shape or (None not in (dtype, tensor.dtype) and dtype != tensor.dtype):
        raise PropertyError(
            f"property: {tensor.name} is declared {tensor.dtype or 'real'} {list(tensor.shape)}, but is "
            f"{dtype or 'real'} {list(term.shape)} in the model"
        )
