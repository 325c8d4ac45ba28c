"""From a parsed property and networks that are read to a problem, and to a record of their files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from dnnv.properties import Expression

from ranum_falsify.config import HalfPrecision
from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph
from ranum_falsify.network.fingerprint import Fingerprint, fingerprint, sha256
from ranum_falsify.network.precision import convert_precision
from ranum_falsify.properties.language.parse import parameters_of
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.prove.assumptions import Sources

__all__ = ["reduce_problem", "sources_of"]


def sources_of(
    property_path: Path, phi: Expression, networks: Mapping[str, Path], dtype: HalfPrecision | None
) -> Sources:
    """Return a record of the files of a property and its networks."""
    return Sources(
        property=Fingerprint(path=str(property_path), sha256=sha256(property_path)),
        parameters=parameters_of(phi),
        networks={name: fingerprint(path) for name, path in networks.items()},
        dtype=dtype,
    )


def reduce_problem(
    property_path: Path,
    phi: Expression,
    graphs: Mapping[str, Graph],
    dtype: HalfPrecision | None,
    keep: Mapping[str, Collection[str]],
) -> Problem:
    """Return the problem that a property is of networks, converted to half precision but for the nodes of `keep`.

    Raises:
        PropertyError: The property does not fit the networks.
    """
    if dtype is not None:
        graphs = {name: convert_precision(graph, dtype, keep.get(name, ())) for name, graph in graphs.items()}
    try:
        return reduce(phi, graphs)
    except PropertyError as error:
        # The reduction knows no files.
        raise PropertyError(f"{property_path}: {str(error).removeprefix('property: ')}") from error
