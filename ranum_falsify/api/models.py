"""Models to ask about: read into a graph, or run as they are."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import uses_external_data

import ranum_falsify.operators  # noqa: F401 - fills the registry; imports torch
from ranum_falsify.api.plain_torch import PlainTorch
from ranum_falsify.errors import ModelError, RanumFalsifyError, ShapesError, UnsupportedOperatorError, UsageError
from ranum_falsify.network import Graph, find_assumed_dims, read, read_inputs
from ranum_falsify.network.fingerprint import Fingerprint, fingerprint
from ranum_falsify.network.functions import inline_functions
from ranum_falsify.network.model_file import load_model as load_file
from ranum_falsify.network.nesting import has_unfit_branches
from ranum_falsify.network.runs import ModelRunner, RunError, find_size
from ranum_falsify.network.string_inputs import number_strings
from ranum_falsify.results.counterexample import file_hash
from ranum_falsify.verify.prove.assumptions import Rewriting

_IN_MEMORY = "<in memory>"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Model:
    """An ONNX model that was read.

    Attributes:
        graph: Its operation graph.
        source: Where it comes from, with a hash of its bytes.
        path: Its file, None for a model from memory.
        seconds: How long reading took.
        rewriting: How passes made it, None for a model as it was given.
        notices: What a user should know of it.
    """

    graph: Graph
    source: Fingerprint
    path: Path | None = None
    seconds: float = 0.0
    rewriting: Rewriting | None = None
    notices: tuple[str, ...] = ()

    def data(self) -> bytes:
        """Return the model as a file holds it."""
        assert self.graph.source is not None, "a whole model is read from one"
        data: bytes = self.graph.source.SerializeToString(deterministic=True)
        return data

    def __repr__(self) -> str:
        inputs = ", ".join(
            f"{name}: {details.dtype} {list(details.shape)}"
            for name, details in zip(self.graph.input_names, self.graph.input_details, strict=True)
        )
        return f"Model({self.source.path!r}, inputs: {inputs}, {len(self.graph.nodes)} operators)"


ModelLike = Model | str | Path | onnx.ModelProto | bytes
"""What functions take for a model: one that is loaded, a path, a protobuf message, or its bytes."""


FindSamples = Callable[[Graph], Iterable[Mapping[str, np.ndarray]]]
"""`find(inputs)`: points that inputs may have, values by name, from a graph that takes what the model takes."""

_MOST_NAMED = 3
"""Number of inputs that an error names."""


@PlainTorch()
def load_model(
    source: str | Path | onnx.ModelProto | bytes,
    *,
    dims: Mapping[str, int] | None = None,
    strict: bool = False,
    find_samples: FindSamples | None = None,
) -> Model:
    """Read an ONNX model.

    Args:
        source: A path, a model in memory, which is copied, or the bytes of one.
        dims: Sizes of symbolic dimensions, by name or as `input:axis`; 1 where not given.
        strict: Whether a model is refused if it has operators that are not supported; if not, ONNX Runtime evaluates
            them, and the model is never proved.
        find_samples: Finds values of the inputs that the question allows, for models that do not run on zeros.

    Raises:
        ModelError: It cannot be read; one line says why and what to do.
    """
    began = time.monotonic()
    whole = Path(source) if isinstance(source, str | Path) else parse_model(source)
    path = whole if isinstance(whole, Path) else None
    graph = _read_graph(whole, dims, find_samples, strict=strict)
    return Model(graph=graph, source=_fingerprint_of(source), path=path, seconds=time.monotonic() - began)


def _fingerprint_of(source: str | Path | onnx.ModelProto | bytes) -> Fingerprint:
    """Return what a model is: a file, or bytes in memory."""
    if isinstance(source, str | Path):
        return fingerprint(Path(source))
    data = source if isinstance(source, bytes) else parse_model(source).SerializeToString(deterministic=True)
    return Fingerprint(path=_IN_MEMORY, sha256=hashlib.sha256(data).hexdigest())


def _read_graph(
    source: Path | onnx.ModelProto, dims: Mapping[str, int] | None, find_samples: FindSamples | None, *, strict: bool
) -> Graph:
    """Read a model on zeros; if it, or a branch, cannot run on these, on what the question allows; in other sizes."""
    runs = partial(_runs, find_samples)
    try:
        graph = read(source, dims=dims, strict=strict)
        if graph.assumed_dims and (graph.is_too_small or not runs(graph)):
            sizes = find_assumed_dims(source, dims=dims, strict=strict, runs=runs)
            graph = read(source, dims=dims, assumed=sizes, strict=strict)
        return graph if find_samples is None else _fit_branches(graph, source, find_samples)
    except ModelError as error:
        first = error
    for number, sample in enumerate(() if find_samples is None else _sample(source, dims, find_samples)):
        try:
            return read(source, dims=dims, strict=strict, sample=sample)
        except ModelError as error:
            first = first if number else error
    if isinstance(first, ShapesError):
        sizes = find_assumed_dims(source, dims=dims, strict=strict, runs=runs)
        with suppress(ModelError):
            graph = read(source, dims=dims, assumed=sizes, strict=strict)
            return graph if find_samples is None else _fit_branches(graph, source, find_samples)
    if find_samples is None or isinstance(first, UnsupportedOperatorError):
        raise first
    raise type(first)(f"{first}{_advise(source, dims)}") from first


_LARGE = 2**26
"""Bytes of a model, or of its tensors, that is not run only to find out whether its sizes do."""


def _runs(find_samples: FindSamples | None, graph: Graph) -> bool:
    """Tell whether ONNX Runtime runs a network on zeros or another point that the question allows, if that is known."""
    assert graph.source is not None, "a whole model is read from one"
    if max(graph.source.ByteSize(), find_size(graph)) > _LARGE:
        return True

    def make_points() -> Iterator[Mapping[str, np.ndarray]]:
        inputs = zip(graph.input_names, graph.input_details, strict=True)
        yield {name: np.zeros(details.shape, details.dtype) for name, details in inputs}
        with suppress(RanumFalsifyError):  # what is wrong with the question is said where it is asked
            yield from () if find_samples is None else find_samples(graph)

    with ModelRunner(graph) as runner:
        for point in make_points():
            try:
                refusal = runner.run([point]).refusal
            except RunError as error:
                refusal = error
            if refusal is None or refusal.is_limit:
                return True
    return False


def _sample(
    source: Path | onnx.ModelProto, dims: Mapping[str, int] | None, find_samples: FindSamples
) -> list[Mapping[str, np.ndarray]]:
    """Return values of the inputs that the question allows, but for zeros; none where it does not fit the model."""
    with suppress(RanumFalsifyError):
        inputs = read_inputs(source, dims=dims)
        return [one for one in find_samples(inputs) if any(values.any() for values in one.values())]
    return []


def _fit_branches(graph: Graph, source: Path | onnx.ModelProto, find_samples: FindSamples) -> Graph:
    """Return the graph as read where all branches run that can, on zeros if on no other sample."""
    if not has_unfit_branches(graph):
        return graph
    options, samples = graph.options, list[Mapping[str, np.ndarray]]()
    with suppress(RanumFalsifyError):  # what is wrong with the question is said where it is asked
        samples.extend(find_samples(graph))
    for sample in samples:
        with suppress(RanumFalsifyError):
            found = read(source, dims=options.dims, assumed=options.assumed, strict=options.strict, sample=sample)
            if not has_unfit_branches(found):
                return found
    return graph


def _advise(source: Path | onnx.ModelProto, dims: Mapping[str, int] | None) -> str:
    """Return what to do about a model that runs on no point that was tried, as the end of a sentence."""
    try:
        inputs = read_inputs(source, dims=dims)
    except ModelError:
        return ""
    details = zip(inputs.input_names, inputs.input_details, strict=True)
    whole = [name for name, one in details if np.issubdtype(one.dtype, np.integer)]
    if not whole:
        return ""
    listed = ", ".join(map(repr, whole[:_MOST_NAMED])) + (", ..." if len(whole) > _MOST_NAMED else "")
    return f"; an input that is a shape or a count ({listed}?) needs a box with one value that fits"


def model_of(
    model: ModelLike,
    dims: Mapping[str, int] | None,
    *,
    strict: bool = False,
    find_samples: FindSamples | None = None,
) -> Model:
    """Return a model, read unless it was.

    Raises:
        ModelError: It cannot be read.
        UsageError: Sizes are given for a model that was read before.
    """
    if not isinstance(model, Model):
        return load_model(model, dims=dims, strict=strict, find_samples=find_samples)
    if dims and dict(dims) != dict(model.graph.options.dims):
        raise UsageError("dims: the model was read with other sizes; give them to load_model")
    return model


def inputs_of(model: ModelLike, dims: Mapping[str, int] | None) -> Graph:
    """Return a graph that takes what a model takes.

    Raises:
        ModelError: The model cannot be read.
    """
    if isinstance(model, Model):
        return model.graph
    return read_inputs(Path(model) if isinstance(model, str | Path) else parse_model(model), dims=dims)


def parse_model(source: onnx.ModelProto | bytes) -> onnx.ModelProto:
    """Return a model as a message."""
    proto = onnx.ModelProto()
    if isinstance(source, onnx.ModelProto):
        proto.CopyFrom(source)
    elif isinstance(source, bytes):
        try:
            proto.ParseFromString(source)
        except DecodeError as error:
            raise ModelError("model: these bytes are not an ONNX model, or truncated; export it again") from error
    else:
        raise UsageError(f"model: {type(source).__name__} is not a model; give a path, an onnx.ModelProto, or bytes")
    if not proto.graph.node and not proto.graph.output:
        raise ModelError("model: holds no graph; give an ONNX model")
    if any(uses_external_data(tensor) for tensor in proto.graph.initializer):
        raise ModelError("model: its external data is not loaded; give the path of its file")
    return proto


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
        """Return the graph of the model, in the sizes of arrays; None if that cannot be read."""
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
        """Return what it is."""
        if self.path is not None:
            return fingerprint(self.path)
        return self.given.source if isinstance(self.given, Model) else _fingerprint_of(self.given)


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
