"""Limits on reading: they grow by what a model's file holds, before it is read."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.network.model_file import load_model
from ranum_falsify.network.resource_limits import memory_limit

LIMIT = 2**20  # bytes


@pytest.mark.slow
@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_model_larger_than_the_limit_of_memory_is_read(tmp_path: Path, is_compressed: bool) -> None:
    weight = np.random.default_rng(0).standard_normal((16, LIMIT), np.float32)
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 16), ("y", LIMIT))
    )
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    data = helper.make_model(graph).SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(gzip.compress(data, compresslevel=0) if is_compressed else data)
    with memory_limit(LIMIT):
        assert load_model(path).ByteSize() == len(data)
