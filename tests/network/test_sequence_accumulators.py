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

import ranum_falsify as rf
from ranum_falsify.errors import UnsupportedOperatorError
from ranum_falsify.network import read
from ranum_falsify.network.sequence_accumulators import collect_lists


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


class Chosen(torch.nn.Module):
    """Appends something else under each of three conditions."""

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.jit.annotate(list[Tensor], [])
        for i in range(x.size(0)):
            total = x[i].sum()
            if bool(total > 1):
                rows.append(torch.log(total) + x[i])
            elif bool(total > -1):
                rows.append(torch.sqrt(total + 1) * x[i])
            else:
                rows.append(x[i] / total)
        return torch.stack(rows)


class Uneven(torch.nn.Module):
    """Appends rows of two lengths."""

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.jit.annotate(list[Tensor], [])
        for i in range(x.size(0)):
            if bool(x[i].sum() > 0):
                rows.append(x[i])
            else:
                rows.append(x[i][:2])
        return 1 / (torch.tensor(torch.cat(rows).size(0)).to(torch.float32) - 7)


class Kept(torch.nn.Module):
    """Appends, or not."""

    def forward(self, x: Tensor) -> Tensor:
        rows = [x[0]]
        for i in range(x.size(0)):
            if bool(x[i].sum() > 0):
                rows.append(x[i])
        return torch.stack(rows)


class Several(torch.nn.Module):
    """Appends the same item to two lists."""

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = torch.jit.annotate(list[Tensor], []), torch.jit.annotate(list[Tensor], [])
        for i in range(x.size(0)):
            h = torch.tanh(x[i])
            rows.append(h)
            columns.append(h)
        return torch.stack(rows) + torch.cat(columns).sum()


class Numbered(torch.nn.Module):
    """Appends what depends on the list's length, in a branch."""

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.jit.annotate(list[Tensor], [])
        for i in range(x.size(0)):
            if bool(x[i].sum() > 0):
                rows.append(x[i] * len(rows))
            else:
                rows.append(x[i] - len(rows))
        return torch.stack(rows)


class Summed(torch.nn.Module):
    """Appends what depends on the list's items, in a branch."""

    def forward(self, x: Tensor) -> Tensor:
        rows = [x[0]]
        for i in range(x.size(0)):
            if bool(x[i].sum() > 0):
                h = rows[-1] + x[i]
            else:
                h = x[i]
            rows.append(h)
        return torch.stack(rows)


def script(joined: str) -> onnx.ModelProto:
    return scripted(Recurrent(joined), torch.ones(5, 2, 3))


def scripted(module: torch.nn.Module, x: Tensor) -> onnx.ModelProto:
    target: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.script(module)
        torch.onnx.export(module, (x,), target, dynamo=False, opset_version=17, input_names=["x"])
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


@pytest.mark.slow
def test_a_list_to_which_every_branch_appends_is_what_the_loop_collects() -> None:
    model = scripted(Chosen(), torch.ones(3, 4))
    graph, random = read(model), np.random.default_rng(0)
    for scale in (0.3, 1, 3) * 5:
        x = (scale * random.normal(size=(3, 4))).astype(np.float32)
        expected = run(model, x)
        for found in (graph(x), run(graph.as_onnx(), x)):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert rf.check(model, box=(-2, 2), n_starts=0).verdict == "holds"


@pytest.mark.parametrize("module", [Several(), Numbered()])
def test_other_uses_of_lists_are_followed(module: torch.nn.Module) -> None:
    model = scripted(module, torch.ones(5, 4))
    graph, random = read(model), np.random.default_rng(0)
    for _ in range(4):
        x = random.uniform(-1, 1, (5, 4)).astype(np.float32)
        for found in (graph(x), run(graph.as_onnx(), x)):
            np.testing.assert_allclose(found, run(model, x), rtol=1e-5, atol=1e-6)


def test_a_branch_that_reads_a_list_is_refused_for_that() -> None:
    with pytest.raises(
        UnsupportedOperatorError,
        match=r"If is not supported here: a branch or body inside it reads '.*', which is no tensor",
    ):
        read(scripted(Summed(), torch.ones(3, 4)))


@pytest.mark.parametrize("name", ["z/item", "z/item/row", "l/rows", "j/sizes", "j/shape", "o/length"])
def test_names_of_the_model_are_not_taken_again(name: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[3,2] x) => (float[6] y) {
        n = Constant<value = int64 {3}>() t = Constant<value = bool {1}>() s = SequenceEmpty<dtype = 1>()
        outer = Neg(x)
        l, rest = Loop(n, t, s) <body = b (int64 i, bool k, seq(float[2]) a) => (bool kk, seq(float[2]) z, float[2] f) {
            kk = Identity(k) e = Gather(x, i) m = ReduceSum<keepdims = 0>(e) p = Cast<to = 9>(m)
            z = If(p) <then_branch = u () => (seq(float[2]) v) {
                o = SequenceLength(a) q = Cast<to = 1>(o) h = Mul(e, q) v = SequenceInsert(a, h)
            }, else_branch = r () => (seq(float[2]) d) { d = SequenceInsert(a, e) }>
            f = Gather(outer, i)
        }>
        j = ConcatFromSequence<axis = 0>(l) w = ReduceSum<keepdims = 0>(rest) y = Add(j, w)
    }"""
    if name != "o/length":
        text = text.replace("o = SequenceLength(a)", "").replace("Cast<to = 1>(o)", "Abs(m)")
    x = np.arange(6, dtype=np.float32).reshape(3, 2) - 2
    model = onnx.parser.parse_model(text.replace("outer", f'"{name}"'))
    expected = run(onnx.parser.parse_model(text), x)
    np.testing.assert_array_equal(run(model, x), expected)
    np.testing.assert_allclose(read(model)(x), expected, rtol=1e-6)


@pytest.mark.slow
def test_rows_of_several_lengths_prove_nothing() -> None:
    model = scripted(Uneven(), torch.ones(2, 4))
    assert run(model, np.array([[1] * 4, [-1] * 4], np.float32)) == -1.0
    result = rf.check(model, box=(-1, 1), n_starts=0)
    assert result.verdict == "unknown"


def test_a_list_to_which_one_branch_appends_is_refused_for_that() -> None:
    with pytest.raises(
        UnsupportedOperatorError,
        match=r"If is not supported here: a branch or body inside it reads '.*', which is no tensor",
    ):
        read(scripted(Kept(), torch.ones(3, 4)))


def test_a_model_without_lists_is_left_alone() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    )
    assert collect_lists(model) is model


@pytest.mark.parametrize("change", ["position", "read", "output"])
def test_other_lists_are_not_collected_but_followed_item_by_item(change: str) -> None:
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
    x = np.random.default_rng(0).uniform(-1, 1, (5, 2, 3)).astype(np.float32)
    found = read(model)(x)
    np.testing.assert_allclose(found[0] if isinstance(found, tuple) else found, run(model, x), rtol=1e-5, atol=1e-6)
