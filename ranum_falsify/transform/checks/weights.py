"""Weights of the models on the way through passes, in one file that all processes map: each is written once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import onnx_ir as ir

from ranum_falsify.transform.model import copy_model, has_external_data, to_proto

__all__ = ["WeightFile"]

_FILE = "weights"
_LARGE = 4096  # bytes; also what places in the file are multiples of


class WeightFile:
    """A temporary file of tensors."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ranum-falsify-", ignore_cleanup_errors=True)
        self._stored: dict[int, tuple[ir.TensorProtocol, int, int]] = {}
        self._end = 0

    def close(self) -> None:
        """Delete it."""
        self._stored.clear()
        self._folder.cleanup()

    def refer(self, model: ir.Model, folder: Path) -> tuple[onnx.ModelProto, Path]:
        """Return a model as a message whose large tensors are external, and the folder that they lie in.

        Args:
            model: The model.
            folder: Where its external data lies; where it has some, nothing is stored here.
        """
        if has_external_data(model):
            return to_proto(model), folder
        thin = copy_model(model)
        for graph in thin.graphs():
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is not None and tensor.nbytes >= _LARGE and tensor.dtype != ir.DataType.STRING:
                    value.const_value = self._store(tensor, value.name or "")
        return to_proto(thin), Path(self._folder.name)

    def _store(self, tensor: ir.TensorProtocol, name: str) -> ir.ExternalTensor:
        """Return what refers to a tensor, which is written unless it has been."""
        if id(tensor) not in self._stored:
            data = tensor.tobytes()
            with Path(self._folder.name, _FILE).open("ab") as file:
                file.write(b"\0" * (self._end - file.tell()))
                file.write(data)
            self._stored[id(tensor)] = tensor, self._end, len(data)
            self._end += -(-len(data) // _LARGE) * _LARGE
        _, offset, length = self._stored[id(tensor)]
        shape = ir.Shape(tensor.shape.numpy())
        return ir.ExternalTensor(
            _FILE, offset, length, tensor.dtype, shape=shape, name=name, base_dir=self._folder.name
        )
