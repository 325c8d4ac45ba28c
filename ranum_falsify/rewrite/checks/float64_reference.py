"""A model in double precision, for how far its outputs are from what it means."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx import TensorProto, numpy_helper

from ranum_falsify.network import read
from ranum_falsify.network.nesting import attribute_graphs
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.rewrite.model import has_external_data, to_proto
from ranum_falsify.verify.search.converter import TorchModel, convert

_FLOATS = (np.float16, np.float32, np.float64)
_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16)


class WideModel:
    """A model that PyTorch evaluates in double precision, if it can.

    Args:
        model: The model.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._modules: dict[tuple[tuple[int, ...], ...], TorchModel | None] = {}

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the outputs that it computes; none where it cannot, as with operators that have no row."""
        try:
            return self._run(inputs)
        except Exception:
            # Whatever does not run in double precision has nothing to say.
            return {}

    def _run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        shapes = tuple(array.shape for array in inputs.values())
        if shapes not in self._modules:
            self._modules[shapes] = None  # if making it fails, it is not tried again
            self._modules[shapes] = self._make(inputs)
        module = self._modules[shapes]
        if module is None:
            return {}
        arrays = [inputs[name] for name in module.graph.input_names]
        tensors = [to_torch(array.astype(np.float64) if array.dtype in _FLOATS else array) for array in arrays]
        with torch.no_grad():
            outputs = module(*tensors)
        names = [value.name or "" for value in self._model.graph.outputs]
        return {name: tensor.numpy() for name, tensor in zip(names, outputs, strict=True)}

    def _make(self, inputs: Mapping[str, np.ndarray]) -> TorchModel | None:
        if has_external_data(self._model):
            return None
        dims = {f"{name}:{axis}": size for name, array in inputs.items() for axis, size in enumerate(array.shape)}
        symbolic = {
            f"{value.name}:{axis}"
            for value in self._model.graph.inputs
            for axis, dim in enumerate(value.shape or ())
            if not isinstance(dim, int)
        }
        proto = to_proto(self._model)
        _widen(proto.graph)
        return convert(read(proto, dims={name: size for name, size in dims.items() if name in symbolic}))


def _widen(graph: onnx.GraphProto) -> None:
    """Make everything in a graph and its subgraphs that is a float a double."""
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("value_float", "value_floats"):
                values = np.array(attribute.floats if attribute.floats else attribute.f, dtype=np.float64)
                attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(values)))
            elif attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.name in ("to", "dtype") and attribute.i in _NARROW:
                attribute.i = TensorProto.DOUBLE
        for inner in attribute_graphs(node):
            _widen(inner)


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _NARROW:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
