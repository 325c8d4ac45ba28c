"""Assumptions of a verdict, as frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ranum_falsify.config import ARM64, CUDA, HalfPrecision, Runtime, library_of
from ranum_falsify.domain.kernels import measured_versions
from ranum_falsify.network import Graph
from ranum_falsify.network.fingerprint import Fingerprint
from ranum_falsify.network.tensors import is_floating
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.selfcheck import LIBRARIES, family_here, release_of


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """How passes of `transform` made the model that an answer is about of one that users gave.

    Attributes:
        passes: The passes, in order.
        before: The model as it was given.
    """

    passes: tuple[str, ...]
    before: Fingerprint

    @property
    def title(self) -> str:
        """What the model that they made is called, which is in no file."""
        return f"<{self.before.path} after {', '.join(self.passes)}>"


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The files that a problem comes from.

    Attributes:
        property: The property file, None if the property comes from none.
        parameters: Values of its parameters, as given or by default.
        networks: The models, by the networks' names in the property.
        dtype: The half precision to which they were converted; None if they were not.
        rewritten: How those were made that passes made, by the networks' names.
    """

    property: Fingerprint | None
    parameters: Mapping[str, Any]
    networks: Mapping[str, Fingerprint]
    dtype: HalfPrecision | None = None
    rewritten: Mapping[str, Rewriting] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library that networks run on.

    Attributes:
        runtime: Its name as a runtime.
        version: The installed version.
        family: The family of kernels that it chooses on this processor.
        covered: Families whose kernels proofs cover, each with the installed version, or if that was not measured, the
            newest that was; none if no proof is about this runtime.
        arm64: The same on processors of ARM64; none if no proof is about these.
        obstacle: Why a proof that covers the families of x86-64 does not cover those; "" where it does, or none was
            tried.
        cuda: How kernels for NVIDIA's graphics processors are known that proofs cover; "" if they cover none.
    """

    runtime: Runtime
    version: str
    family: str
    covered: tuple[tuple[str, str], ...] = ()
    arm64: tuple[tuple[str, str], ...] = ()
    obstacle: str = ""
    cuda: str = ""


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What a verdict rests on.

    Attributes:
        inputs: The inputs, with the box that they range over.
        regions: The boxes whose union that is; a single one unless the property bounds its inputs by a disjunction.
        side_conditions: Other conditions on the inputs, one formula each.
        dims: Sizes of the symbolic dimensions, by network as the property writes it.
        assumed_dims: Those of them of which users say nothing.
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
    assumed_dims: Mapping[str, int] = field(default_factory=dict)
    element_types: tuple[str, ...] = ()
    libraries: tuple[Library, ...] = ()
    sources: Sources | None = None
    default_inputs: tuple[str, ...] = ()
    is_empty: bool = False


def assumptions_of(
    problem: Problem, runtimes: Iterable[Runtime], elsewhere: Mapping[Runtime, str] | None = None
) -> Assumptions:
    """Return the assumptions behind an answer, given the runtimes that proofs cover, and `Proof.elsewhere`."""
    tried = elsewhere or {}
    graphs = {call.network: call.graph for call in problem.calls}
    assumed = {name: size for graph in graphs.values() for name, size in graph.assumed_dims.items()}
    covered = frozenset(runtimes)
    return Assumptions(
        inputs=problem.inputs,
        regions=problem.regions,
        side_conditions=problem.penalty_names,
        dims={name: {**graph.assumed_dims, **graph.options.dims} for name, graph in graphs.items()},
        assumed_dims=assumed,
        element_types=tuple(sorted({name for graph in graphs.values() for name in _element_types(graph)})),
        libraries=tuple(
            library(
                runtime,
                covered=runtime in covered,
                arm64=tried.get(runtime),
                cuda=CUDA in covered and library_of(CUDA) == runtime,
            )
            for runtime in LIBRARIES
        ),
        is_empty=not problem.regions,
    )


def library(runtime: Runtime, *, covered: bool = False, arm64: str | None = None, cuda: bool = False) -> Library:
    """Return the installed library of a runtime, with what proofs cover of it if they do.

    `arm64` is why they do not cover processors of ARM64: "" where they do, None where nobody asked.
    """
    return Library(
        runtime=runtime,
        version=release_of(runtime),
        family=family_here(runtime),
        covered=_list_covered(runtime, runtime) if covered else (),
        arm64=_list_covered(runtime, ARM64[runtime]) if arm64 == "" else (),
        obstacle=arm64 or "",
        cuda=_describe_cuda() if cuda else "",
    )


def _describe_cuda() -> str:
    measured = {family: of[-1] for family, of in measured_versions(CUDA).items() if of}
    named = ", ".join(f"{family}, {version}" for family, version in measured.items())
    return f"measured ({named})" if named else "documented, not measured"


def _list_covered(library: Runtime, runtime: Runtime) -> tuple[tuple[str, str], ...]:
    installed = release_of(library)
    measured = measured_versions(runtime).items()
    return tuple((family, installed if installed in of else of[-1]) for family, of in measured)


def _element_types(graph: Graph) -> Iterable[str]:
    dtypes = {np.dtype(details.dtype) for details in graph.details.values()}
    return (dtype.name for dtype in dtypes if is_floating(dtype))
