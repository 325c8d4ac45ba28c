"""Dropout in training mode draws random numbers, and says so."""

import numpy as np
import onnx
import pytest

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.network import read


@pytest.mark.parametrize(("ratio", "training", "random"), [(0.5, True, True), (0.0, True, False), (0.5, False, False)])
def test_notice_of_dropout(ratio: float, training: bool, random: bool) -> None:
    initializers = [
        onnx.numpy_helper.from_array(np.array(ratio, np.float32), "ratio"),
        onnx.numpy_helper.from_array(np.array(training), "training"),
    ]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [50])
    node = onnx.helper.make_node("Dropout", ["x", "ratio", "training"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")], initializer=initializers)
    network = read(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)]))
    assert bool(network.notices) == random
    answer = network(np.ones(50, np.float32))
    assert set(np.unique(answer)) == ({0.0, 2.0} if random else {1.0})
