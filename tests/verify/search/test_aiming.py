"""Numbers at which the installed kernels fail, and inputs that are aimed at them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from ranum_falsify.network import Graph, read
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.verify.search.aiming import aim
from ranum_falsify.verify.search.kernels import find_numbers, find_paths
from ranum_falsify.verify.search.search import SearchContext
from tests.network.building import parse
from tests.verify.search.search_kit import Array, Bounds, context, found, network, search, valid_in_box

LINEAR = "g (float[1,2] x) => (float[1,1] y) <float[2,1] w = {0.6, -0.3}, float[1] b = {BIAS}, VALUES>"


def saturating(scale: float = 1.0, bias: float = 17.5) -> str:
    """Return a network whose logarithm fails only where the sigmoid of a number is above 1."""
    values = f"float one = {{1.0}}, float small = {{1e-8}}, float scale = {{{scale!r}}}"
    head = LINEAR.replace("BIAS", repr(bias)).replace("VALUES", values)
    return (
        f"{head} {{ m = MatMul(x, w) k = Mul(m, scale) h = Add(k, b) s = Sigmoid(h) d = Sub(one, s) g = Add(d, small) "
        "[log] y = Log(g) }"
    )


def picking(wanted: float) -> str:
    """Return a network whose logarithm fails only where the sigmoid, a multiple of 2^-24, is a certain number."""
    values = f"float many = {{16777216.0}}, float wanted = {{{wanted!r}}}, float small = {{1e-6}}"
    head = LINEAR.replace("BIAS", "0.30005").replace("0.6, -0.3", "0.0006, -0.0003").replace("VALUES", values)
    return (
        f"{head} {{ m = MatMul(x, w) h = Add(m, b) s = Sigmoid(h) t = Mul(s, many) f = Floor(t) e = Equal(f, wanted) "
        "n = Not(e) c = Cast <to = 1> (n) g = Mul(c, small) [log] y = Log(g) }"
    )


def run(text: str, name: str, feeds: dict[str, Array]) -> Array:
    """Return a tensor of a model in text, as ONNX Runtime computes it without optimisations."""
    model = parse(text)
    model.graph.output.extend([onnx.ValueInfoProto(name=name)])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run([name], feeds)[0])


def sigmoid(numbers: Array) -> Array:
    text = "g (float[n] x) => (float[n] y) { y = Sigmoid(x) }"
    return run(text, "y", {"x": numbers}) if len(numbers) else numbers


def floats(low: float, high: float) -> Array:
    ends = np.array([low, high], np.float32).view(np.int32)
    return np.arange(ends[0], ends[1] + 1, dtype=np.int32).view(np.float32)


def logarithm(given: SearchContext) -> Target:
    return next(t for t in given.targets() if t.op.name == "log" and not t.is_remote)


def numbers_of(graph: Graph, low: float, high: float) -> list[float]:
    given = context(valid_in_box(graph, [(-1.0, 1.0)]))
    (path,) = find_paths(graph, logarithm(given))
    assert path.source.name == "Add_h"
    with given.confirmer:
        numbers = find_numbers(given.confirmer, path, torch.tensor(low), torch.tensor(high))
        inner = find_numbers(given.confirmer, path, torch.tensor(low), torch.tensor((low + high) / 2))
    assert inner.tolist() == [x for x in numbers.tolist() if x <= np.float32((low + high) / 2)]
    return sorted(numbers.tolist())


@pytest.mark.parametrize("bounds", [(15.0, 20.0), (-1e3, 1e5)], ids=["near", "in a wide range"])
def test_numbers_are_those_that_the_kernel_fails_at(bounds: Bounds) -> None:
    tried = floats(15.0, 20.0)
    truth = tried[np.float32(1) - sigmoid(tried) + np.float32(1e-8) <= 0].tolist()
    assert numbers_of(read(parse(saturating())), *bounds) == truth


def test_all_numbers_of_a_short_range_are_tried() -> None:
    wanted = float(np.floor(sigmoid(np.array([0.3], np.float32))[0] * np.float32(2**24)))
    tried = floats(0.299, 0.3005)
    truth = tried[np.floor(sigmoid(tried) * np.float32(2**24)) == wanted].tolist()
    assert truth
    assert numbers_of(read(parse(picking(wanted))), 0.299, 0.3005) == truth


def test_functions_without_errors_of_kernels_are_left_alone() -> None:
    graph = network(
        "(float[1,2] x) => (float[1,2] y) { two = Constant<value_float = 2.0>() r = Relu(x) d = Mul(r, two) "
        "[log] y = Log(d) }"
    )
    given = context(valid_in_box(graph, [(1.0, 2.0)]))
    assert list(find_paths(graph, logarithm(given))) == []


@pytest.mark.parametrize("seed", range(3))
def test_inputs_meet_the_number(seed: int) -> None:
    """The number is one of some fifty thousand, and nothing but it tells where it lies."""
    wanted = float(np.floor(sigmoid(np.array([0.3], np.float32))[0] * np.float32(2**24)))
    text = picking(wanted)
    given = context(valid_in_box(read(parse(text)), [(-1.0, 1.0)]), seed=seed)
    (region,) = given.regions()
    points: list[Array] = []

    def replay(inputs: Sequence[Tensor], position: int) -> bool:
        points.append(to_numpy(inputs[0][position]))
        return True

    with given.confirmer:
        aim(given, logarithm(given), region, [torch.zeros(1, 1, 2)], replay)
    (point,) = points
    assert (np.abs(point) <= 1).all()
    assert np.isinf(run(text, "y", {"x": point})).all()


def test_nothing_runs_without_a_function_of_one_number() -> None:
    graph = network("(float[1,2] x) => (float[1,2] y) { s = Softmax(x) [log] y = Log(s) }")
    given = context(valid_in_box(graph, [(0.0, 1.0)]))
    (region,) = given.regions()
    with given.confirmer:
        began = given.generator.get_state()
        aim(given, logarithm(given), region, [torch.zeros(1, 1, 2)], lambda inputs, position: True)
        assert torch.equal(given.generator.get_state(), began)


def test_what_the_kernel_alone_fails_at_is_found() -> None:
    tried = floats(17.0, 18.0)
    if not (sigmoid(tried) > np.float32(1)).any():
        pytest.skip("the sigmoid of this processor is never above 1")
    # Without a dimension of samples, few points run in ONNX Runtime, of which none meets one of those numbers.
    text = saturating(2.0).replace("float[1,2] x", "float[2] x").replace("float[1,1] y", "float[1] y")
    answer = search(valid_in_box(read(parse(text)), [(-1.0, 1.0)]), n_starts=4, n_steps=2)
    assert found(answer).keys() == {"log"}
    assert found(answer)["log"].runtimes == ("onnxruntime",)
