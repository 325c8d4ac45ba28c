"""What the inputs of one model range over, as a property says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dnnv.properties.expressions import Network

from ranum_falsify.api.loading import load
from ranum_falsify.api.properties import load_property
from ranum_falsify.api.runnable import Runnable
from ranum_falsify.errors import PropertyError
from ranum_falsify.network.guards import memory_limit
from ranum_falsify.properties.formula.applications import NetworkCall
from ranum_falsify.properties.language.walk import subexpressions
from ranum_falsify.transform.checks.inputs import Box

__all__ = ["PropertyBox", "box_of_property"]


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


def box_of_property(path: Path, model: Path, dims: Mapping[str, int], *, memory: int | None = None) -> PropertyBox:
    """Return the smallest box that holds all inputs that a property is about.

    Args:
        path: The property file.
        model: The file of the model that it is about.
        dims: Sizes of symbolic dimensions.
        memory: Bytes that reading may take beyond what the file's size explains, None for 0.35 GB.

    Raises:
        PropertyError: It cannot be read, does not fit the model, or is about several networks.
        ModelError: The model cannot be read.
    """
    with memory_limit(memory):
        prop = load_property(path)
        names = sorted({e.identifier for e in subexpressions(prop.phi) if isinstance(e, Network)})
        if len(names) != 1:
            raise PropertyError(f"{path}: is about {len(names)} networks; give a property of the one that is rewritten")
        problem = load(prop, {names[0]: Runnable(model).read(dims)}).problem
    bounds = {variable.name: variable for variable in problem.inputs}
    found = {
        name: bounds[variable]
        for call in problem.calls
        for name, variable in _pairs(call)
        if variable is not None and variable in bounds
    }
    beside = [f"{path}: conditions that are no ranges of inputs are not used"] if problem.penalties else []
    return PropertyBox(
        {name: (variable.lower, variable.upper) for name, variable in found.items()},
        {name: variable.shape for name, variable in found.items()},
        beside,
    )


def _pairs(call: NetworkCall) -> list[tuple[str, str | None]]:
    """Return the inputs of a network, and the variable that each one is."""
    return list(zip(call.graph.input_names, call.variables, strict=True))
