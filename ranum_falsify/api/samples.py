"""Inputs that a question allows, on which a model is read that cannot run on zeros: a shape may be among them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ranum_falsify.api.boxes import BoxLike, given_ranges
from ranum_falsify.api.properties import Property, network_of
from ranum_falsify.network import Graph
from ranum_falsify.properties.problem.reduce import reduce

__all__ = ["sample_box", "sample_property"]


def sample_box(inputs: Graph, box: BoxLike | None) -> dict[str, np.ndarray]:
    """Return the least values that a box allows, of the inputs that it names.

    Raises:
        UsageError: The box does not fit the inputs.
    """
    details = dict(zip(inputs.input_names, inputs.input_details, strict=True))
    return {
        one.name: np.broadcast_to(one.lower, details[one.name].shape).astype(details[one.name].dtype)
        for one in given_ranges(details, box)
    }


def sample_property(inputs: Graph, prop: Property) -> Mapping[str, np.ndarray]:
    """Return the least values that a property of one network allows.

    Raises:
        PropertyError: It is about more than the inputs and the operators of that network.
    """
    problem = reduce(prop.phi, {network_of(prop): inputs}, may_be_empty=prop.is_query)
    bounds = {variable.name: variable.lower for variable in (problem.regions or (problem.inputs,))[0]}
    return {
        name: np.asarray(bounds[variable])
        for call in problem.calls
        for name, variable in zip(call.graph.input_names, call.variables, strict=True)
        if variable in bounds
    }
