"""Models as they are run: read into a graph only where that is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from ranum_falsify.api.models import FindSamples, Model, ModelLike, fingerprint_of, load_model, parse_model
from ranum_falsify.errors import RanumFalsifyError, UsageError
from ranum_falsify.network import Graph
from ranum_falsify.network.fingerprint import Fingerprint, fingerprint
from ranum_falsify.network.functions import inline_functions
from ranum_falsify.network.model_file import load_model as load_file
from ranum_falsify.network.string_inputs import number_strings
from ranum_falsify.results.counterexample import file_hash


@dataclass(frozen=True)
class Runnable:
    """A model that may never be read into a graph: ONNX Runtime knows operators that this package does not.

    Attributes:
        given: What the user gives for it.
    """

    given: ModelLike

    @property
    def path(self) -> Path | None:
        """Its file, None where it is in memory."""
        if isinstance(self.given, str | Path):
            return Path(self.given)
        return self.given.path if isinstance(self.given, Model) else None

    @property
    def label(self) -> Path:
        """What messages call it."""
        return self.path or Path(self.given.source.path if isinstance(self.given, Model) else "model")

    def load(self) -> onnx.ModelProto:
        """Return the model, with numbers for strings among its inputs.

        Raises:
            ModelError: It cannot be read.
        """
        if self.path is not None:
            return number_strings(load_file(self.path))
        if isinstance(self.given, Model):
            return onnx.load_model_from_string(self.given.data())
        assert not isinstance(self.given, str | Path)
        return number_strings(inline_functions(parse_model(self.given)))

    def read(self, dims: Mapping[str, int], *, strict: bool = False, find_samples: FindSamples | None = None) -> Model:
        """Return the model with its graph.

        Args:
            dims: Sizes of symbolic dimensions.
            strict: Whether operators that are not supported are refused.
            find_samples: Finds values of the inputs for a model that does not run on zeros.

        Raises:
            ModelError: It cannot be read.
        """
        if isinstance(self.given, Model) and dict(self.given.graph.options.dims) == dict(dims):
            return self.given
        return load_model(self.path or self.load(), dims=dims, strict=strict, find_samples=find_samples)

    def read_for(self, feeds: Mapping[str, np.ndarray]) -> Graph | None:
        """Return the graph of the model, in the sizes of arrays; None if that cannot be read.

        Args:
            feeds: One array per input.
        """
        try:
            return self.read(_find_sizes(self.load(), feeds), find_samples=lambda _: [feeds]).graph
        except RanumFalsifyError:
            return None

    def sha256(self) -> str:
        """Return the hash of its file, or of its bytes.

        Raises:
            UsageError: The file cannot be read.
        """
        return self.fingerprint().sha256 if self.path is None else file_hash(self.path)

    def fingerprint(self) -> Fingerprint:
        """Return what it is.

        Raises:
            OSError: Its file cannot be read.
        """
        if self.path is not None:
            return fingerprint(self.path)
        return self.given.source if isinstance(self.given, Model) else fingerprint_of(self.given)


def share_dims(models: Mapping[str, Runnable], dims: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the sizes that each model gets: of several models, each gets those that it has.

    Raises:
        UsageError: No model has a dimension of that name.
    """
    if len(models) <= 1 or not dims:
        return {name: dict(dims) for name in models}
    known = {name: _collect_symbolic(model.load()) for name, model in models.items()}
    for dim in dims:
        if not any(dim in names for names in known.values()):
            listed = ", ".join(sorted(set().union(*known.values()))) or "none"
            raise UsageError(f"--dim {dim}: no network has this symbolic dimension; they have {listed}")
    return {name: {d: size for d, size in dims.items() if d in known[name]} for name in models}


def _collect_symbolic(model: onnx.ModelProto) -> set[str]:
    return {name for info, axis, dim in _symbolic_dims(model) for name in (dim, f"{info}:{axis}") if name}


def _symbolic_dims(model: onnx.ModelProto) -> Iterator[tuple[str, int, str]]:
    """Yield input, axis and name of each dimension without a size; the name may be empty."""
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.dim_param or dim.dim_value <= 0:
                yield info.name, axis, dim.dim_param


def _find_sizes(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the sizes of symbolic dimensions in arrays."""
    given = ((info, axis, dim) for info, axis, dim in _symbolic_dims(model) if info in feeds)
    return {dim or f"{info}:{axis}": feeds[info].shape[axis] for info, axis, dim in given}
