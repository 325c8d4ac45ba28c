"""Models to ask about."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import uses_external_data

import ranum_falsify.operators  # noqa: F401 - fills the registry; imports torch
from ranum_falsify.errors import ModelError, UsageError
from ranum_falsify.network import Graph, read
from ranum_falsify.network.fingerprint import Fingerprint, fingerprint

__all__ = ["Model", "ModelLike", "load_model", "model_of"]

_IN_MEMORY = "<in memory>"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Model:
    """An ONNX model that was read.

    Attributes:
        graph: Its operation graph.
        source: Where it comes from, with a hash of its bytes.
        path: Its file, None for a model from memory.
        seconds: How long reading took.
    """

    graph: Graph
    source: Fingerprint
    path: Path | None = None
    seconds: float = 0.0

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


def load_model(
    source: str | Path | onnx.ModelProto | bytes, *, dims: Mapping[str, int] | None = None, strict: bool = False
) -> Model:
    """Read an ONNX model.

    Args:
        source: A path, a model in memory, which is copied, or the bytes of one.
        dims: Sizes of symbolic dimensions, by name or as `input:axis`; 1 where not given.
        strict: Whether a model is refused if it has operators that are not supported; if not, ONNX Runtime evaluates
            them, and the model is never proved.

    Raises:
        ModelError: It cannot be read; one line says why and what to do.
    """
    began = time.monotonic()
    if isinstance(source, str | Path):
        path = Path(source)
        graph = read(path, dims=dims, strict=strict)
        return Model(graph=graph, source=fingerprint(path), path=path, seconds=time.monotonic() - began)
    proto = parse_model(source)
    data = source if isinstance(source, bytes) else proto.SerializeToString(deterministic=True)
    graph = read(proto, dims=dims, strict=strict)
    origin = Fingerprint(path=_IN_MEMORY, sha256=hashlib.sha256(data).hexdigest())
    return Model(graph=graph, source=origin, seconds=time.monotonic() - began)


def model_of(model: ModelLike, dims: Mapping[str, int] | None, *, strict: bool = False) -> Model:
    """Return a model, read unless it was.

    Raises:
        ModelError: It cannot be read.
        UsageError: Sizes are given for a model that was read before.
    """
    if not isinstance(model, Model):
        return load_model(model, dims=dims, strict=strict)
    if dims and dict(dims) != dict(model.graph.options.dims):
        raise UsageError("dims: the model was read with other sizes; give them to load_model")
    return model


def parse_model(source: onnx.ModelProto | bytes) -> onnx.ModelProto:
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
