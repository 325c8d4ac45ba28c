"""Lists that scripted loops fill: what is read is what ONNX Runtime computes."""

import io
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from ranum_falsify.errors import UnsupportedOperatorError
from ranum_falsify.network import read
from ranum_falsify.network.collecting import collect_lists


class Recurrent(torch.nn.Module):
    def __init__(self, joined: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.joined = joined
        self.w, self.u = torch.nn.Parameter(torch.randn(4, 3)), torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(2, 4)
        rows = torch.jit.annotate(list[Tensor], [])
        for i in range(x.size(0)):
            z = torch.sigmoid(torch.matmul(x[i], self.w.t()) + torch.matmul(h, self.u.t()))
            h = z * h + (1 - z) * torch.tanh(torch.matmul(h, self.u))
            rows.append(h)
        if self.joined == "rows":
            return torch.cat(rows)
        return torch.stack(rows, 0 if self.joined == "first" else 1 if self.joined == "second" else -1)


def script(joined: str) -> onnx.ModelProto:
    target: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.script(Recurrent(joined))
        torch.onnx.export(module, (torch.ones(5, 2, 3),), target, dynamo=False, opset_version=17, input_names=["x"])
    return onnx.load_model_from_string(target.getvalue())


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found


@pytest.mark.parametrize("joined", ["first", "second", "last", "rows"])
def test_a_list_that_a_loop_fills_is_what_it_collects(joined: str) -> None:
    model = script(joined)
    assert {"SequenceEmpty", "Loop", "ConcatFromSequence"} <= {node.op_type for node in model.graph.node}
    x = np.random.default_rng(0).uniform(-1, 1, (5, 2, 3)).astype(np.float32)
    graph, expected = read(model), run(model, x)
    for found in (graph(x), run(graph.as_onnx(), x), run(collect_lists(model), x)):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert sum("/body/Sigmoid" in op.name for op in graph.nodes) == 5


def test_a_model_without_lists_is_left_alone() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    )
    assert collect_lists(model) is model


@pytest.mark.parametrize("change", ["position", "read", "output"])
def test_other_lists_are_not_collected(change: str) -> None:
    model = script("first")
    (loop,) = (node for node in model.graph.node if node.op_type == "Loop")
    (body,) = (attribute.g for attribute in loop.attribute)
    (insert,) = (node for node in body.node if node.op_type == "SequenceInsert")
    if change == "position":
        insert.input.append(body.input[0].name)
    elif change == "read":
        body.node.append(onnx.helper.make_node("SequenceLength", [insert.input[0]], ["length"]))
    else:
        model.graph.output.append(onnx.ValueInfoProto(name=loop.output[1]))
    assert [node.op_type for node in collect_lists(model).graph.node].count("ConcatFromSequence") == 1
    with pytest.raises(UnsupportedOperatorError):
        read(model)
