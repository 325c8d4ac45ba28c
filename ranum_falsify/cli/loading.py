"""From the files that the user names to a problem."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ranum_falsify.cli.usage import UsageError
from ranum_falsify.config import HalfPrecision
from ranum_falsify.errors import ModelError, PropertyError, is_out_of_memory

if TYPE_CHECKING:
    import onnx

    from ranum_falsify.network import Graph
    from ranum_falsify.properties.problem.problem import Problem
    from ranum_falsify.prove.assumptions import Sources

__all__ = ["Loaded", "check_files", "dims_by_network", "load"]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A problem, and what was learned while building it.

    Attributes:
        problem: The reduced property, of the networks as asked for.
        reduced: `reduced(keep)`: the same of networks in which the nodes of `keep`, by network, stay in float32.
        graphs: The networks as read.
        sources: The files that all of this was read from.
        notices: What a user should know about the networks.
        seconds: Time to `read` the networks and to `reduce` the property.
    """

    problem: Problem
    reduced: Callable[[Mapping[str, Collection[str]]], Problem]
    graphs: Mapping[str, Graph]
    sources: Sources
    notices: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def check_files(property_path: Path | None, networks: Mapping[str, Path]) -> None:
    """Check that the files exist before anything slow is imported.

    Raises:
        PropertyError: The property file is missing.
        ModelError: A model file is missing.
    """
    if property_path is not None and not property_path.is_file():
        raise PropertyError(f"{property_path}: {_absence(property_path)}; give the path of a property file")
    for path in networks.values():
        if not path.is_file():
            raise ModelError(f"{path}: {_absence(path)}; give the path of an ONNX model")


def _absence(path: Path) -> str:
    return "is a folder" if path.is_dir() else "is not a file" if path.exists() else "no such file"


def dims_by_network(networks: Mapping[str, Path], dims: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the sizes that each network gets: of several networks, each gets those that it has.

    Raises:
        UsageError: No network has a dimension of that name.
    """
    if len(networks) <= 1 or not dims:
        return {name: dict(dims) for name in networks}
    from ranum_falsify.network.model_file import load_model

    known = {name: _collect_symbolic(load_model(path)) for name, path in networks.items()}
    for dim in dims:
        if not any(dim in names for names in known.values()):
            listed = ", ".join(sorted(set().union(*known.values()))) or "none"
            raise UsageError(f"--dim {dim}: no network has this symbolic dimension; they have {listed}")
    return {name: {d: size for d, size in dims.items() if d in known[name]} for name in networks}


def _collect_symbolic(model: onnx.ModelProto) -> set[str]:
    names = set()
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.dim_param or dim.dim_value <= 0:
                names |= {dim.dim_param, f"{info.name}:{axis}"} - {""}
    return names


def load(
    property_path: Path,
    networks: Mapping[str, Path],
    *,
    vnnlib: bool = False,
    parameters: Mapping[str, str] | None = None,
    dims: Mapping[str, int] | None = None,
    dtype: HalfPrecision | None = None,
    memory: int | None = None,
) -> Loaded:
    """Read the networks and reduce the property.

    Args:
        property_path: The property file.
        networks: Model files by the names that the property gives the networks.
        vnnlib: Whether the property is VNN-LIB even if its suffix does not say so.
        parameters: Values of the property's parameters, as text.
        dims: Sizes of symbolic dimensions.
        dtype: Half precision that the networks are converted to, None to leave them as they are.
        memory: Bytes that this may take beyond what the files' sizes explain, None for 0.35 GB.

    Raises:
        PropertyError: The property cannot be read, or does not fit the networks.
        ModelError: A model cannot be read.
    """
    import ranum_falsify.operators  # noqa: F401 - fills the registry; imports torch
    from ranum_falsify.cli.reduction import reduce_problem, sources_of
    from ranum_falsify.network import read
    from ranum_falsify.network.guards import TOO_MUCH_MEMORY, memory_limit
    from ranum_falsify.properties.language.parse import parse

    began = time.monotonic()
    try:
        with memory_limit(memory):
            phi = parse(property_path, parameters, vnnlib=vnnlib or None)
            parsed = time.monotonic()
            sizes = dims_by_network(networks, dims or {})
            graphs = {name: read(path, dims=sizes[name]) for name, path in networks.items()}
            sources = sources_of(property_path, phi, networks, dtype)
            was_read = time.monotonic()
            reduced = partial(reduce_problem, property_path, phi, graphs, dtype)
            problem = reduced({})
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise PropertyError(f"{property_path}: the property {TOO_MUCH_MEMORY}") from error
        raise
    return Loaded(
        problem=problem,
        reduced=reduced,
        graphs=graphs,
        sources=sources,
        notices=tuple(notice for graph in graphs.values() for notice in graph.notices),
        seconds={"read": was_read - parsed, "reduce": time.monotonic() - was_read + parsed - began},
    )
