"""Grounds of a verdict in JSON reports; docs/json.md explains them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ranum_falsify.config import HalfPrecision
from ranum_falsify.network.fingerprint import Fingerprint
from ranum_falsify.network.tensors import has_one_value
from ranum_falsify.properties.problem.problem import InputVariable
from ranum_falsify.verify.prove.assumptions import Assumptions, Rewriting, Sources
from ranum_falsify.verify.search.result import Number

_MOST_ELEMENTS = 100
"""Elements of a bound that are held one by one."""


@dataclass(frozen=True)
class Extremes:
    """What stands for a bound of many elements: the extremes, and the hash of the array."""

    least: Number
    greatest: Number
    sha256: str


Bound: TypeAlias = bool | int | Number | list[Any] | Extremes
"""One number where all elements have it, a nested list of few elements, or what stands for many."""


@dataclass(frozen=True, kw_only=True)
class ReportedInput:
    """An input, and the box that it ranges over."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    lower: Bound
    upper: Bound


@dataclass(frozen=True)
class CoveredFamily:
    """A family of kernels that proofs cover, and the version of the library that was measured."""

    family: str
    version: str


@dataclass(frozen=True, kw_only=True)
class ReportedLibrary:
    """A library: the installed version, the family of kernels on this processor, and the families covered.

    Attributes:
        version: The version.
        family: The family on this processor.
        covered: The families of x86-64 that proofs cover.
        arm64: Those of ARM64.
        obstacle: Why a proof that covers the former does not cover the latter.
        cuda: How kernels for NVIDIA's graphics processors are known that proofs cover; "" if they cover none.
    """

    version: str
    family: str
    covered: tuple[CoveredFamily, ...]
    # Keys that came later: reports without them can be read.
    arm64: tuple[CoveredFamily, ...] = ()
    obstacle: str = ""
    cuda: str = ""


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """What a verdict rests on.

    Attributes:
        property: The property file.
        parameters: Values of its parameters.
        networks: The models, by the names of the networks.
        dtype: The half precision that they were converted to.
        default_inputs: Inputs whose range users did not give.
        inputs: The inputs.
        empty: Whether no input satisfies the conditions on the inputs.
        regions: The boxes of a disjunction; else none.
        side_conditions: What else inputs must satisfy.
        dims: Sizes of symbolic dimensions, by network.
        assumed_dims: Those of them for which no size was given.
        element_types: Floating types that the networks compute in.
        libraries: The libraries, by runtime.
        rewritten: How those networks were made that passes made of the models that users gave.
    """

    property: Fingerprint | None
    parameters: Mapping[str, Any]
    networks: Mapping[str, Fingerprint]
    dtype: HalfPrecision | None
    default_inputs: tuple[str, ...]
    inputs: tuple[ReportedInput, ...]
    empty: bool
    regions: tuple[tuple[ReportedInput, ...], ...]
    side_conditions: tuple[str, ...]
    dims: Mapping[str, Mapping[str, int]]
    assumed_dims: Mapping[str, int]
    element_types: tuple[str, ...]
    libraries: Mapping[str, ReportedLibrary]
    # A key that came later: reports without it can be read.
    rewritten: Mapping[str, Rewriting] = field(default_factory=dict)


def grounds_of(assumptions: Assumptions | None) -> Grounds | None:
    """Return what reports hold of the assumptions of a verdict."""
    if assumptions is None:
        return None
    sources = assumptions.sources or Sources(property=None, parameters={}, networks={})
    regions = assumptions.regions if len(assumptions.regions) > 1 else ()
    return Grounds(
        property=sources.property,
        parameters={name: _make_plain(value) for name, value in sources.parameters.items()},
        networks=sources.networks,
        dtype=sources.dtype,
        default_inputs=assumptions.default_inputs,
        inputs=tuple(map(_input, assumptions.inputs)),
        empty=assumptions.is_empty,
        regions=tuple(tuple(map(_input, region)) for region in regions),
        side_conditions=assumptions.side_conditions,
        dims=assumptions.dims,
        assumed_dims=assumptions.assumed_dims,
        element_types=assumptions.element_types,
        libraries={
            of.runtime: ReportedLibrary(
                version=of.version,
                family=of.family,
                covered=tuple(CoveredFamily(*pair) for pair in of.covered),
                arm64=tuple(CoveredFamily(*pair) for pair in of.arm64),
                obstacle=of.obstacle,
                cuda=of.cuda,
            )
            for of in assumptions.libraries
        },
        rewritten=sources.rewritten,
    )


def _make_plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _input(variable: InputVariable) -> ReportedInput:
    return ReportedInput(
        name=variable.name,
        shape=variable.shape,
        dtype=variable.dtype.name,
        lower=_bound(variable.lower),
        upper=_bound(variable.upper),
    )


def _bound(bound: np.ndarray) -> Bound:
    if bound.size and has_one_value(bound):
        number: bool | int | float = bound.flat[0].item()
        return number
    if bound.size <= _MOST_ELEMENTS:
        elements: list[Any] = bound.tolist()
        return elements
    digest = hashlib.sha256(np.ascontiguousarray(bound).tobytes()).hexdigest()
    return Extremes(bound.min().item(), bound.max().item(), digest)
