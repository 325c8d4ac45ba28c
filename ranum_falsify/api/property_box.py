"""What the inputs of one model range over, as a property says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ranum_falsify.api.loading import load
from ranum_falsify.api.models import Model
from ranum_falsify.api.properties import Property, network_of
from ranum_falsify.rewrite.checks.inputs import Box


@dataclass(frozen=True)
class PropertyBox:
    """What a property says of a model's inputs.

    Attributes:
        box: Least and greatest value of each.
        shapes: Their shapes.
        notices: What it says besides, and is not used.
    """

    box: Box
    shapes: Mapping[str, tuple[int, ...]]
    notices: Sequence[str] = ()


def box_of_property(prop: Property, model: Model) -> PropertyBox:
    """Return the smallest box that holds all inputs that a property of one network is about.

    Raises:
        PropertyError: It does not fit the model, or is about several networks.
    """
    problem = load(prop, {network_of(prop): model}).problem
    bounds = {variable.name: variable for variable in problem.inputs}
    found = {
        name: bounds[variable]
        for call in problem.calls
        for name, variable in zip(call.graph.input_names, call.variables, strict=True)
        if variable is not None and variable in bounds
    }
    beside = [f"{prop.name}: conditions that are no ranges of inputs are not used"] if problem.penalties else []
    return PropertyBox(
        {name: (variable.lower, variable.upper) for name, variable in found.items()},
        {name: variable.shape for name, variable in found.items()},
        beside,
    )
