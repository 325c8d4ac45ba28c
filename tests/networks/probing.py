"""What the tests of the networks share: an oracle on ONNX Runtime, and a gradient search."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference

__all__ = ["Feed", "Probe", "descend", "metadata", "natural_box"]

Array = NDArray[Any]
Feed = dict[str, Array]
Box = dict[str, tuple[tuple[int, ...], float, float]]


def metadata(model: onnx.ModelProto, prefix: str) -> dict[str, str]:
    """Return the entries whose key starts with the prefix, under what follows the prefix."""
    entries = {entry.key: entry.value for entry in model.metadata_props}
    return {key.removeprefix(prefix): text for key, text in entries.items() if key.startswith(prefix)}


def natural_box(model: onnx.ModelProto) -> Box:
    """Return shape, least and greatest value of every input."""
    box: Box = {}
    for tensor in model.graph.input:
        low, high = metadata(model, "box:")[tensor.name].split()
        shape = tuple(dim.dim_value for dim in tensor.type.tensor_type.shape.dim)
        box[tensor.name] = shape, float(low), float(high)
    return box


class Probe:
    """A model on ONNX Runtime, optimisations off, with every tensor exposed."""

    def __init__(self, path: Path, replaced: Feed | None = None) -> None:
        self.model = onnx.load(path)
        self.box = natural_box(self.model)
        for tensor in self.model.graph.initializer:
            if replaced and tensor.name in replaced:
                tensor.CopyFrom(numpy_helper.from_array(replaced[tensor.name], tensor.name))
        exposed = shape_inference.infer_shapes(self.model)
        known = {tensor.name for tensor in exposed.graph.output}
        exposed.graph.output.extend(t for t in exposed.graph.value_info if t.name not in known)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(exposed.SerializeToString(), options)
        self.constants = {t.name: numpy_helper.to_array(t) for t in self.model.graph.initializer}

    def tensors(self, feed: Feed) -> Feed:
        """Run the model and return every tensor by name, inputs and initializers included."""
        names = [output.name for output in self.session.get_outputs()]
        return {**self.constants, **feed, **dict(zip(names, self.session.run(names, feed), strict=True))}

    def outputs(self, feed: Feed) -> Feed:
        """Run the model and return its own outputs by name."""
        tensors = self.tensors(feed)
        return {output.name: tensors[output.name] for output in self.model.graph.output}

    def invalid_nodes(self, feed: Feed) -> list[str]:
        """Return the nodes that make NaN from no NaN, or Inf from finite operands, in order."""
        tensors = self.tensors(feed)
        return [node.name for node in self.model.graph.node if _is_invalid(node, tensors)]

    def random_feed(self, seed: int) -> Feed:
        """Return a uniform point of the natural box."""
        rng = np.random.default_rng(seed)
        box = self.box.items()
        return {name: rng.uniform(low, high, shape).astype(np.float32) for name, (shape, low, high) in box}


def _is_invalid(node: onnx.NodeProto, tensors: Feed) -> bool:
    read = [tensors[name] for name in node.input]
    written = [tensors[name] for name in node.output]
    new_nan = any(np.isnan(t).any() for t in written) and not any(np.isnan(t).any() for t in read)
    new_inf = any(np.isinf(t).any() for t in written) and all(np.isfinite(t).all() for t in read)
    return new_nan or new_inf


_TORCH: dict[str, Callable[..., Any]] = {
    "Add": torch.add,
    "Concat": lambda *tensors, axis: torch.cat(tensors, axis),
    "Conv": lambda x, w, b, kernel_shape, strides, pads: torch.nn.functional.conv2d(
        x, w, b, stride=strides[0], padding=pads[0]
    ),
    "Elu": torch.nn.functional.elu,
    "Exp": torch.exp,
    "Flatten": torch.flatten,
    "Gemm": lambda x, w, b: x @ w + b,
    "MatMul": torch.matmul,
    "Mul": torch.mul,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Split": lambda x, axis, split: torch.split(x, split, axis),
    "Sub": torch.sub,
    "Tanh": torch.tanh,
}


def _evaluate(model: onnx.ModelProto, tensors: dict[str, torch.Tensor], wanted: str) -> torch.Tensor:
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Flatten":
            attributes = {"start_dim": attributes["axis"]}
        result = _TORCH[node.op_type](*(tensors[name] for name in node.input), **attributes)
        parts = result if isinstance(result, tuple) else (result,)
        tensors.update(zip(node.output, parts, strict=True))
        if wanted in tensors:
            return tensors[wanted]
    raise KeyError(wanted)


def descend(path: Path, tensor: str, sign: float, steps: int = 20) -> Feed:
    """Return inputs of the box that make the least element of ``sign * tensor`` small.

    Projected sign descent on all inputs from the centre of the box, with steps that shrink.
    """
    model = onnx.load(path)
    box = natural_box(model)
    constants = {t.name: torch.tensor(numpy_helper.to_array(t)) for t in model.graph.initializer}
    point = {name: torch.full(shape, (low + high) / 2) for name, (shape, low, high) in box.items()}
    for step in range(steps):
        for value in point.values():
            value.requires_grad_()
        least = (sign * _evaluate(model, {**constants, **point}, tensor)).min()
        slopes = torch.autograd.grad(least, list(point.values()), materialize_grads=True)
        for (name, value), slope in zip(list(point.items()), slopes, strict=True):
            _, low, high = box[name]
            moved = value.detach() - 0.25 * 0.93**step * (high - low) * slope.sign()
            point[name] = moved.clamp(low, high)
    return {name: value.numpy() for name, value in point.items()}
