"""Linear forms show what intervals do not, and never more than is so."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ranum_falsify as rf
from ranum_falsify.api.result import proof_of
from ranum_falsify.checker import check
from ranum_falsify.checker.bounds import Bounds
from ranum_falsify.checker.check import Followed, check_model
from ranum_falsify.checker.node import NodeView, Operands
from ranum_falsify.checker.question import ProofFile, ask
from tests.checker.test_check import PLAIN, question_of
from tests.network.building import unchecked

RECTIFIED = """g (float[1,2] x) => (float[1,1] y) <
        float[2,2] w = {{1, 1, 1, -1}}, float[2,1] v = {{1, -1}}, float[1] b = {{{bias}}}
    > {{ a = MatMul(x, w) r = Relu(a) m = MatMul(r, v) s = Add(m, b) y = Log(s) }}"""
"""The least value of s is its bias less 2, where the second neuron alone fires; intervals say no less."""

CANCELLING: dict[str, tuple[str, dict[str, Any]]] = {
    "half": (
        "g (float[4] x) => (float[4] y) <float h = {0.5}, float t = {2}> "
        "{ a = Mul(x, h) b = Sub(x, a) c = Add(b, t) y = Log(c) }",
        {"x": (-3.9, 3.9)},
    ),
    "rectifiers": (
        "g (float[4] x) => (float[4] y) <float k = {1.1}, float z = {0}> "
        "{ a = Relu(x) d = Sub(x, z) e = Relu(d) f = Sub(k, a) g = Add(f, e) y = Log(g) }",
        {"x": (-2, 2)},
    ),
    "quotient": (
        "g (float[4] x, float[1] u) => (float[4] y) <float k = {3}, float one = {1}> "
        "{ a = Mul(x, u) b = Add(a, x) s = Sub(a, b) t = Add(s, k) y = Div(one, t) }",
        {"x": (-2, 2), "u": (-5, 5)},
    ),
    "square": (
        "g (float[4] x) => (float[4] y) <float k = {0.3}> { s = Mul(x, x) d = Sub(s, x) e = Add(d, k) y = Log(e) }",
        {"x": (0, 1)},
    ),
    "mean": (
        "g (float[6] x) => (float[6] y) <float k = {3}> "
        "{ m = ReduceMean<keepdims = 1>(x) d = Sub(x, m) p = Sub(d, x) e = Add(p, k) y = Sqrt(e) }",
        {"x": (-2, 2)},
    ),
    "moved": (
        "g (float[2,3] x) => (float[6] y) <int64[1] n = {6}, float k = {1}> "
        "{ t = Transpose(x) u = Transpose(t) a = Reshape(u, n) b = Reshape(x, n) d = Sub(a, b) "
        "e = Add(d, k) y = Log(e) }",
        {"x": (-9, 9)},
    ),
    "sigmoids": (
        "g (float[3] x) => (float[3] y) <float two = {2}, float k = {0.75}> "
        "{ s = Sigmoid(x) h = Div(s, two) d = Sub(h, s) e = Add(d, k) y = Log(e) }",
        {"x": (-1, 6)},
    ),
}


def follow(text: str, directions: Sequence[str], **ranges: Any) -> Followed:
    return check_model(question_of(text, **ranges), dataclasses.replace(PLAIN, directions=directions))


@pytest.mark.parametrize("name", CANCELLING)
def test_what_comes_of_one_source_cancels(name: str) -> None:
    text, box = CANCELLING[name]
    assert follow(text, (), **box).open
    assert not follow(text, "xuasr", **box).open
    assert follow(text, ("none", "y", ""), **box).open


def test_a_form_shows_nothing_that_is_not_so() -> None:
    assert not follow(RECTIFIED.format(bias=2.01), "xr", x=(-1, 1)).open
    assert follow(RECTIFIED.format(bias=1.99), "xr", x=(-1, 1)).open
    text, box = CANCELLING["half"]
    assert follow(text, "xa", **(box | {"x": (-4, 4)})).open, "2 - 4 / 2 is 0"


@pytest.mark.parametrize("name", ["half", "rectifiers", "moved"])
def test_proofs_by_linear_bounds_are_accepted(name: str, tmp_path: Path) -> None:
    text, box = CANCELLING[name]
    wide = text.replace("[4]", "[80]")  # too many elements to cut
    path, file = tmp_path / "model.onnx", tmp_path / "proof.npz"
    onnx.save(unchecked(wide, 18), path)
    result = rf.check(path, box=box["x"], n_starts=0, self_check=False)
    assert result.verdict == "holds"
    file.write_bytes(proof_of(result.answer, result.loaded, result.config))
    proof = ProofFile.read(file)
    question = ask(path.read_bytes(), {...: box["x"]}, sizes={}, runtimes=("onnxruntime",))
    assert not check_model(question, proof).open
    assert check_model(question, dataclasses.replace(proof, directions=())).open


# attacks --------------------------------------------------------------------------------------------------------------

UNARY = "Relu Sigmoid Tanh Abs Neg Softplus LeakyRelu Exp Sqrt HardSigmoid Identity".split()
BINARY = "Add Add Sub Sub Mul Max Min Div".split()


def random_model(rng: np.random.Generator, dtype: int) -> onnx.ModelProto:
    """Two dozen operators of one or two earlier tensors each, all of which are outputs."""
    numpy_type = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    nodes, weights, names = list[onnx.NodeProto](), list[onnx.TensorProto](), ["x", "z"]
    for number in range(24):
        name, kind = f"t{number}", rng.random()
        a, b = (str(one) for one in rng.choice(names[-6:], 2))
        if kind < 0.35:
            nodes.append(onnx.helper.make_node(str(rng.choice(UNARY)), [a], [name]))
        elif kind < 0.6:
            nodes.append(onnx.helper.make_node(str(rng.choice(BINARY)), [a, b], [name]))
        elif kind < 0.9:
            matrix = kind < 0.8
            array = rng.normal(0, 0.5, (4, 4) if matrix else (4,)).astype(numpy_type)
            weights.append(onnx.numpy_helper.from_array(array, f"w{number}"))
            op = "MatMul" if matrix else str(rng.choice(BINARY))
            nodes.append(onnx.helper.make_node(op, [a, f"w{number}"], [name]))
        else:
            nodes.append(onnx.helper.make_node("Transpose", [a], [f"{name}t"], perm=[1, 0]))
            nodes.append(onnx.helper.make_node("MatMul", [f"{name}t", b], [f"{name}m"]))
            nodes.append(onnx.helper.make_node("MatMul", [a, f"{name}m"], [name]))
        names.append(name)
    made = [name for node in nodes for name in node.output]
    values = [onnx.helper.make_tensor_value_info(name, dtype, (2, 4)) for name in ("x", "z")]
    outputs = [onnx.helper.make_tensor_value_info(name, dtype, None) for name in made]
    graph = onnx.helper.make_graph(nodes, "g", values, outputs, weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", [onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16])
@pytest.mark.parametrize("seed", range(12))
def test_tensors_of_random_models_stay_in_bounds(seed: int, dtype: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    model, low = random_model(rng, dtype), rng.normal(size=(2, 4))
    names = [one.name for one in model.graph.output]
    box: Mapping[Any, Any] = {"x": (low, low + rng.uniform(0, 2, (2, 4))), "z": (-0.5, rng.choice([0.5, -0.5]))}
    question = ask(model.SerializeToString(), box, sizes={}, runtimes=("onnxruntime",))
    found = dict[str, Bounds]()

    def record(node: NodeView, operands: Operands) -> Any:
        results = bound(node, operands)
        found.update((name, one) for name, one in zip(node.proto.output, results or (), strict=False) if one)
        return results

    bound = check.bound
    monkeypatch.setattr(check, "bound", record)
    chosen = [name for name in (*names, "x", "z") if rng.random() < 0.8]
    check_model(question, dataclasses.replace(PLAIN, directions=chosen))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if seed % 2:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for number in range(20):
        share = rng.random((2, 2, 4)) if number % 2 else rng.integers(0, 2, (2, 2, 4)).astype(float)
        point = {
            name: np.clip((one.lower + (one.upper - one.lower) * at).astype(one.dtype), one.lower, one.upper)
            for at, (name, one) in zip(share, question.inputs.items(), strict=True)
        }
        for name, y in zip(names, session.run(names, point), strict=True):
            if (said := found.get(name)) is not None:
                assert (said.lower <= y).all() and (y <= said.upper).all(), name
    assert found
