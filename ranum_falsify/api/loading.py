"""Problems from a property and models, and inputs that a question allows, on which models are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from ranum_falsify.api.boxes import BoxLike, given_ranges
from ranum_falsify.api.models import Model, ModelLike, inputs_of, model_of
from ranum_falsify.api.properties import Property
from ranum_falsify.config import HalfPrecision
from ranum_falsify.errors import PropertyError, is_out_of_memory
from ranum_falsify.network import Graph
from ranum_falsify.network.precision import convert_precision
from ranum_falsify.network.resource_limits import TOO_MUCH_MEMORY
from ranum_falsify.properties.language.parse import parameters_of
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.results.counterexample import Origin
from ranum_falsify.verify.prove.assumptions import Sources


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
    """Return the least values that a property allows of the inputs of a network, the greatest, and those between."""
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


_EMPTY = "no input satisfies the conditions on the inputs, whatever the network computes: the box is empty"


@dataclass(frozen=True, kw_only=True)
class BoundProblem:
    """A problem, and what was learned while building it.

    Attributes:
        problem: The reduced property, of the networks as asked for.
        reduced: `reduced(keep)`: the same of networks in which the nodes of `keep`, by network, stay in float32.
        reduced_over: `reduced_over(graphs)`: the property over other networks, by name.
        models: The models, by the names that the property gives them.
        sources: The files that all of this was read from.
        origin: The same as descriptions of counterexamples keep it.
        notices: What a user should know about the networks.
        default_inputs: Names of the inputs whose range users did not give.
        seconds: Time to `read` the networks and to `reduce` the property.
    """

    problem: Problem
    reduced: Callable[[Mapping[str, Collection[str]]], Problem]
    reduced_over: Callable[[Mapping[str, Graph]], Problem]
    models: Mapping[str, Model]
    sources: Sources
    origin: Origin
    notices: tuple[str, ...] = ()
    default_inputs: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def in_memory(self) -> dict[str, bytes]:
        """The models that are in no file, as files hold them."""
        return {name: model.data() for name, model in self.models.items() if model.path is None}

    @property
    def graphs(self) -> Mapping[str, Graph]:
        """The networks as read."""
        return {name: model.graph for name, model in self.models.items()}


def load(prop: Property, models: Mapping[str, Model], *, dtype: HalfPrecision | None = None) -> BoundProblem:
    """Reduce a property over models.

    Raises:
        PropertyError: The property does not fit the networks.
        ModelError: A network cannot be converted, or has no such part.
    """
    began = time.monotonic()
    reduced = partial(_reduce, prop, {name: model.graph for name, model in models.items()}, dtype)
    try:
        problem = reduced({})
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise PropertyError(f"{prop.name}: the property {TOO_MUCH_MEMORY}") from error
        raise
    return BoundProblem(
        problem=problem,
        reduced=reduced,
        reduced_over=lambda graphs: _reduce(prop, graphs, dtype, {}),
        models=models,
        sources=Sources(
            property=prop.source,
            parameters=parameters_of(prop.phi),
            networks={name: model.source for name, model in models.items()},
            dtype=dtype,
            rewritten={name: model.rewriting for name, model in models.items() if model.rewriting is not None},
        ),
        origin=_origin(prop, models, dtype),
        notices=(
            *(() if problem.regions else (_EMPTY,)),
            *(notice for model in models.values() for notice in (*model.notices, *model.graph.notices)),
        ),
        seconds={
            "read": sum(model.seconds for model in models.values()),
            "reduce": time.monotonic() - began + prop.seconds,
        },
    )


def _reduce(
    prop: Property, graphs: Mapping[str, Graph], dtype: HalfPrecision | None, keep: Mapping[str, Collection[str]]
) -> Problem:
    """Return the problem that a property is of networks, converted to half precision but for the nodes of `keep`."""
    if dtype is not None:
        graphs = {name: convert_precision(graph, dtype, keep.get(name, ())) for name, graph in graphs.items()}
    try:
        return reduce(prop.phi, graphs, may_be_empty=prop.is_query)
    except PropertyError as error:
        # The reduction knows no files.
        raise PropertyError(f"{prop.name}: {str(error).removeprefix('property: ')}") from error


def _origin(prop: Property, models: Mapping[str, Model], dtype: HalfPrecision | None) -> Origin:
    options = [model.graph.options for model in models.values()]
    dims = {name: size for one in options for name, size in {**one.assumed, **one.dims}.items()}
    return Origin(
        property_path=prop.path,
        vnnlib=prop.vnnlib,
        parameters=prop.parameters,
        dims=dims,
        dtype=dtype,
        networks={
            name: (Path(model.source.path) if model.path is None else model.path, model.source.sha256)
            for name, model in models.items()
        },
    )
