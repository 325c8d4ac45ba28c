"""Windows of convolutions and pools, where padding is found out: ONNX Runtime places them as the graph does."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.errors import ModelError
from ranum_falsify.network import read
from ranum_falsify.network.nesting import black_boxes_of

RNG = np.random.default_rng(0)
GRID = list(itertools.product((1, 4, 5, 7, 8), (1, 2, 3), (1, 2, 4, 5), (1, 2)))
"""Sizes, kernels, strides, dilations."""
STEP = 5
"""Of the grid, the quick tests take every fifth, among which is every pair of a size, kernel, stride or dilation."""


def model_of(op_type: str, size: int, attributes: dict[str, Any]) -> onnx.ModelProto:
    (kernel,) = attributes["kernel_shape"]
    weights = RNG.normal(size=(1, 1, kernel)).astype(np.float32)
    stored = [onnx.numpy_helper.from_array(weights, "w")] if op_type.startswith("Conv") else []
    node = helper.make_node(op_type, ["x", *(tensor.name for tensor in stored)], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "windows", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray | None:
    """Return what ONNX Runtime gives; None if it refuses to run."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    try:
        found: np.ndarray = session.run(None, {"x": x})[0]
        return found
    except Exception:
        return None


def paddings(op_type: str, size: int, stride: int, dilation: int) -> Iterator[dict[str, Any]]:
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield {"auto_pad": mode}
        if op_type == "ConvTranspose":
            yield {"auto_pad": mode, "output_padding": [1]}
        if op_type == "ConvTranspose" and mode != "VALID":
            yield from ({"auto_pad": mode, "output_shape": [size * stride + more]} for more in (-1, 0, 1))
        if "Pool" in op_type:
            yield {"auto_pad": mode, "ceil_mode": 1}


@pytest.mark.few(2)
@pytest.mark.parametrize("step", [STEP, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("op_type", ["AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool"])
def test_windows_lie_where_onnx_runtime_places_them(op_type: str, step: int) -> None:
    compared = 0
    for size, kernel, stride, dilation in GRID[::step]:
        for padding in paddings(op_type, size, stride, dilation):
            if padding.get("output_shape") == [0]:
                continue
            windows = {"kernel_shape": [kernel], "strides": [stride], "dilations": [dilation]}
            model, x = model_of(op_type, size, windows | padding), RNG.normal(size=(1, 1, size)).astype(np.float32)
            expected = run(model, x)
            if expected is None:
                with pytest.raises(ModelError, match="cannot run"):
                    read(model)
                continue
            graph = read(model)
            (found,) = graph.evaluate([torch.from_numpy(x)])
            assert found.shape == expected.shape, (size, windows, padding)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=f"{size} {windows} {padding}")
            compared += not black_boxes_of(graph)
    assert compared > 60 // step


@pytest.mark.parametrize(
    ("size", "attributes", "why"),
    [
        (7, {"kernel_shape": [2], "dilations": [2], "auto_pad": "SAME_UPPER"}, "auto_pad with dilations"),
        (7, {"kernel_shape": [1], "strides": [4], "auto_pad": "SAME_UPPER"}, "strides beyond the kernel"),
        (2, {"kernel_shape": [3], "strides": [2]}, "larger than the padded operand"),
    ],
)
def test_pools_that_runtimes_place_differently_have_no_bounds(size: int, attributes: dict[str, Any], why: str) -> None:
    model = model_of("AveragePool", size, attributes)
    graph = read(model)
    assert list(black_boxes_of(graph)) == ["AveragePool"] and why in graph.notices[0]
    with pytest.raises(ModelError, match=why):
        read(model, strict=True)
