"""What a verdict rests on, as frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ranum_falsify.config import HalfPrecision, Runtime
from ranum_falsify.domain.kernels import measured_versions
from ranum_falsify.network import Graph
from ranum_falsify.network.fingerprint import Fingerprint
from ranum_falsify.network.tensors import is_floating
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.selfcheck import LIBRARIES, family_here, release_of

__all__ = ["Assumptions", "Library", "Sources", "assumptions_of", "library"]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The files that a problem comes from.

    Attributes:
        property: The property file, None if the property comes from none.
        parameters: Values of its parameters, as given or by default.
        networks: The models, by the networks' names in the property.
        dtype: The half precision to which they were converted; None if they were not.
    """

    property: Fingerprint | None
    parameters: Mapping[str, Any]
    networks: Mapping[str, Fingerprint]
    dtype: HalfPrecision | None = None


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library that networks run on.

    Attributes:
        runtime: Its name as a runtime.
        version: The installed version.
        family: The family of kernels that it chooses on this processor.
        covered: Families whose kernels proofs cover, each with the installed version, or if that was not measured, the
            newest that was; none if no proof is about this runtime.
    """

    runtime: Runtime
    version: str
    family: str
    covered: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What a verdict rests on.

    Attributes:
        inputs: The inputs, with the box that they range over.
        regions: The boxes whose union that is; a single one unless the property bounds its inputs by a disjunction.
        side_conditions: Other conditions on the inputs, one formula each.
        dims: Sizes of the symbolic dimensions, by network as the property writes it.
        unset_dims: Those of them that are taken as 1 because no size was given.
        element_types: Floating element types that the networks compute in.
        libraries: The libraries that run the networks.
        sources: The files, None if the problem comes from none.
        default_inputs: The inputs whose range users did not give.
        is_empty: Whether the conditions on the inputs exclude all of them; then the box is none of theirs.
    """

    inputs: tuple[InputVariable, ...]
    regions: tuple[tuple[InputVariable, ...], ...] = ()
    side_conditions: tuple[str, ...] = ()
    dims: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unset_dims: tuple[str, ...] = ()
    element_types: tuple[str, ...] = ()
    libraries: tuple[Library, ...] = ()
    sources: Sources | None = None
    default_inputs: tuple[str, ...] = ()
    is_empty: bool = False


def assumptions_of(problem: Problem, runtimes: Iterable[Runtime]) -> Assumptions:
    """Return the assumptions behind the answer to a problem.

    Args:
        problem: The problem.
        runtimes: Runtimes that proofs cover; none where no proof is tried.
    """
    graphs = {call.network: call.graph for call in problem.calls}
    unset = dict.fromkeys(name for graph in graphs.values() for name in graph.unset_dims)
    covered = frozenset(runtimes)
    return Assumptions(
        inputs=problem.inputs,
        regions=problem.regions,
        side_conditions=problem.penalty_names,
        dims={name: {**dict.fromkeys(graph.unset_dims, 1), **graph.options.dims} for name, graph in graphs.items()},
        unset_dims=tuple(unset),
        element_types=tuple(sorted({name for graph in graphs.values() for name in _element_types(graph)})),
        libraries=tuple(library(runtime, covered=runtime in covered) for runtime in LIBRARIES),
        is_empty=not problem.regions,
    )


def library(runtime: Runtime, *, covered: bool = False) -> Library:
    """Return the installed library of a runtime, with what proofs cover of it if they do."""
    installed = release_of(runtime)
    measured = measured_versions(runtime).items() if covered else ()
    return Library(
        runtime=runtime,
        version=installed,
        family=family_here(runtime),
        covered=tuple((family, installed if installed in of else of[-1]) for family, of in measured),
    )


def _element_types(graph: Graph) -> Iterable[str]:
    dtypes = {np.dtype(details.dtype) for details in graph.details.values()}
    return (dtype.name for dtype in dtypes if is_floating(dtype))
