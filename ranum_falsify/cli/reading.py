"""Problems from the files that the user names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ranum_falsify.config import HalfPrecision
from ranum_falsify.errors import PropertyError, UsageError

if TYPE_CHECKING:
    from ranum_falsify.api.loading import BoundProblem, PropertyBox
    from ranum_falsify.rewrite.vnnlib_export import StatedProperty


def load_files(
    property_path: Path,
    networks: Mapping[str, Path],
    *,
    vnnlib: bool = False,
    parameters: Mapping[str, str] | None = None,
    dims: Mapping[str, int] | None = None,
    strict: bool = False,
    dtype: HalfPrecision | None = None,
    memory: int | None = None,
) -> BoundProblem:
    """Read the networks and reduce the property.

    Args:
        property_path: The property file.
        networks: Model files by the names that the property gives the networks.
        vnnlib: Whether the property is VNN-LIB even if its suffix does not say so.
        parameters: Values of the property's parameters, as text.
        dims: Sizes of symbolic dimensions.
        strict: Whether operators that are not supported are refused.
        dtype: Half precision that the networks are converted to, None to leave them as they are.
        memory: Bytes that this may take beyond what the files' sizes explain, None for 0.5 GB.

    Raises:
        PropertyError: The property cannot be read, or does not fit the networks.
        ModelError: A model cannot be read.
    """
    from ranum_falsify.api.loading import (
        load,  # imports torch
        load_networks,
    )
    from ranum_falsify.api.models import Runnable, share_dims
    from ranum_falsify.api.properties import load_property
    from ranum_falsify.network.resource_limits import memory_limit

    with memory_limit(memory):
        prop = load_property(property_path, parameters=parameters, vnnlib=vnnlib or None)
        runnables = {name: Runnable(path) for name, path in networks.items()}
        sizes = share_dims(runnables, dims or {})
        return load(prop, load_networks(prop, networks, sizes, strict=strict), dtype=dtype)


def box_of_file(
    property_path: Path,
    model: Path,
    *,
    parameters: Mapping[str, str],
    dims: Mapping[str, int],
    vnnlib: bool = False,
) -> PropertyBox:
    """Read a property of one model, and return what it says the inputs range over; as for `state_file`."""
    from ranum_falsify.api.loading import box_of_property, load_networks
    from ranum_falsify.api.properties import load_property, network_of  # imports torch

    prop = load_property(property_path, parameters=parameters, vnnlib=vnnlib or None)
    name = network_of(prop)
    return box_of_property(prop, load_networks(prop, {name: model}, {name: dims})[name])


def state_file(
    property_path: Path,
    model: Path,
    *,
    parameters: Mapping[str, str],
    dims: Mapping[str, int],
    vnnlib: bool = False,
) -> StatedProperty:
    """Read a property of one model, and state it as VNN-LIB.

    Args:
        property_path: The property file.
        model: The model of its network.
        parameters: Values of the property's parameters, as text.
        dims: Sizes of symbolic dimensions.
        vnnlib: Whether the property is VNN-LIB even if its suffix does not say so.

    Raises:
        PropertyError: The property cannot be read, does not fit the network, or VNN-LIB cannot say it.
        ModelError: The model cannot be read.
    """
    from ranum_falsify.api.loading import (
        load,  # imports torch
        load_networks,
    )
    from ranum_falsify.api.properties import load_property, network_of
    from ranum_falsify.rewrite.vnnlib_export import state_property

    prop = load_property(property_path, parameters=parameters, vnnlib=vnnlib or None)
    try:
        name = network_of(prop)
    except UsageError as error:
        raise PropertyError(f"{property_path}: VNN-LIB is about one network; state the property of one") from error
    loaded = load(prop, load_networks(prop, {name: model}, {name: dims}))
    try:
        stated = state_property(loaded.problem)
    except PropertyError as error:
        # What states it knows no files.
        raise PropertyError(f"{property_path}: {str(error).removeprefix('property: ')}") from error
    return replace(stated, notices=(*loaded.notices, *stated.notices))
