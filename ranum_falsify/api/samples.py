"""Inputs that a question allows, on which models are read that cannot run on zeros: a shape may be among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from ranum_falsify.api.boxes import BoxLike, given_ranges
from ranum_falsify.api.models import Model, ModelLike, inputs_of, model_of
from ranum_falsify.api.properties import Property
from ranum_falsify.network import Graph
from ranum_falsify.properties.problem.problem import InputVariable
from ranum_falsify.properties.problem.reduce import reduce


def sample_box(inputs: Graph, box: BoxLike | None) -> list[dict[str, np.ndarray]]:
    """Return the least values that a box allows, the greatest, and those between, of the inputs that it names.

    Raises:
        UsageError: The box does not fit the inputs.
    """
    details = dict(zip(inputs.input_names, inputs.input_details, strict=True))

    def fit(name: str, bound: float | np.ndarray) -> np.ndarray:
        return np.broadcast_to(bound, details[name].shape).astype(details[name].dtype)

    ranges = given_ranges(details, box)
    return list(_list_points({one.name: (fit(one.name, one.lower), fit(one.name, one.upper)) for one in ranges}))


def load_networks(
    prop: Property,
    given: Mapping[str, ModelLike],
    dims: Mapping[str, Mapping[str, int]],
    *,
    strict: bool = False,
) -> dict[str, Model]:
    """Return the models that a property is about, read unless they were, on values that it allows if not on zeros.

    Args:
        prop: The property.
        given: The models, by the names that the property gives the networks.
        dims: Sizes of symbolic dimensions, by network.
        strict: Whether operators that are not supported are refused.

    Raises:
        ModelError: A model cannot be read.
        UsageError: Sizes are given for a model that was read before.
    """

    def find_samples(name: str, inputs: Graph) -> list[dict[str, np.ndarray]]:
        graphs = {other: inputs if other == name else inputs_of(given[other], dims[other]) for other in given}
        return _sample_property(graphs, prop, name)

    return {
        name: model_of(one, dims[name], strict=strict, find_samples=partial(find_samples, name))
        for name, one in given.items()
    }


def _sample_property(graphs: Mapping[str, Graph], prop: Property, network: str) -> list[dict[str, np.ndarray]]:
    """Return the least values that a property allows of the inputs of a network, the greatest, and those between.

    Args:
        graphs: What each network takes.
        prop: The property.
        network: The network.

    Raises:
        PropertyError: It is about more than inputs and operators.
    """
    problem = reduce(prop.phi, graphs, may_be_empty=prop.is_query)
    variables: Sequence[InputVariable] = (problem.regions or (problem.inputs,))[0]
    bounds = {variable.name: (np.asarray(variable.lower), np.asarray(variable.upper)) for variable in variables}
    ends = {
        name: bounds[variable]
        for call in problem.calls
        if call.network == network
        for name, variable in zip(call.graph.input_names, call.variables, strict=True)
        if variable in bounds
    }
    return list(_list_points(ends))


def _list_points(ends: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the lower corner of a box, and if it has others, the upper one and the middle."""
    yield {name: low for name, (low, _) in ends.items()}
    if any((low != high).any() for low, high in ends.values()):
        yield {name: high for name, (_, high) in ends.items()}
        yield {name: _middle(low, high) for name, (low, high) in ends.items()}


def _middle(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    if low.dtype == bool:
        return low
    whole = np.issubdtype(low.dtype, np.integer)
    middle: np.ndarray = low // 2 + high // 2 + (low % 2 + high % 2) // 2 if whole else low / 2 + high / 2
    return middle
