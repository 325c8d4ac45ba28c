"""From the files that the user names to a problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ranum_falsify.config import HalfPrecision
from ranum_falsify.errors import ModelError, PropertyError, UsageError

if TYPE_CHECKING:
    import onnx

    from ranum_falsify.api.loading import Loaded

__all__ = ["check_files", "dims_by_network", "load_files"]


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


def load_files(
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
    from ranum_falsify.api.loading import load  # imports torch
    from ranum_falsify.api.models import load_model
    from ranum_falsify.api.properties import load_property
    from ranum_falsify.network.guards import memory_limit

    with memory_limit(memory):
        prop = load_property(property_path, parameters=parameters, vnnlib=vnnlib or None)
        sizes = dims_by_network(networks, dims or {})
        models = {name: load_model(path, dims=sizes[name]) for name, path in networks.items()}
        return load(prop, models, dtype=dtype)
