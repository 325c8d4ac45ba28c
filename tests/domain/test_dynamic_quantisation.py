"""Tensors that are quantised as a model runs: the numbers that their integers stand for, times quantised weights."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch

import ranum_falsify as rf
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import read, spec_of
from tests.domain.boxes import Array
from tests.network.building import parse, rewritten, session

QUANTISE = "q, s, z = DynamicQuantizeLinear(x)"
MATRICES = f"{QUANTISE} m = MatMulInteger(q, w, z, p) n = Cast <to = 1> (m)"
IMAGES = f"{QUANTISE} m = ConvInteger <pads = [1, 0, 1, 1]> (q, w, z, p) n = Cast <to = 1> (m)"

NETWORKS: dict[str, tuple[str, str, str, str]] = {
    "matrix": (f"{MATRICES} f = Mul(s, c) y = Mul(n, f)", "uint8", "[6, 5]", "[1]"),
    "signed": (f"{MATRICES} f = Mul(c, s) y = Mul(f, n)", "int8", "[6, 5]", "[1]"),
    "scale of each column": (f"{MATRICES} f = Mul(s, c) y = Mul(n, f)", "int8", "[6, 5]", "[5]"),
    "one scale after the other": (f"{MATRICES} f = Mul(n, s) y = Mul(f, c)", "uint8", "[6, 5]", "[1]"),
    "read twice": (f"{MATRICES} f = Mul(s, c) g = Mul(n, f) h = Mul(n, s) y = Sub(g, h)", "int8", "[6, 5]", "[1]"),
    "image": (f"{IMAGES} f = Mul(s, c) y = Mul(n, f)", "uint8", "[3, 2, 2, 2]", "[1]"),
    "bias": (f"{MATRICES} f = Mul(s, c) g = Mul(n, f) y = Add(g, b)", "int8", "[6, 5]", "[1]"),
    "of two products": (
        f"{MATRICES} f = Mul(s, c) g = Mul(n, f) m2 = MatMulInteger(q, w, z) n2 = Cast <to = 1> (m2) "
        "e = Mul(s, b) h = Mul(n2, e) y = Sub(g, h)",
        "int8",
        "[6, 5]",
        "[1]",
    ),
}
SHAPES = {"[6, 5]": (4, 6), "[3, 2, 2, 2]": (2, 2, 4, 3)}
"""Shapes of the input, by those of the weights."""


def network(name: str, seed: int = 0, scale: float = 0.02) -> onnx.ModelProto:
    """Return a network with weights, zero points and scales that are drawn."""
    body, dtype, of, scales = NETWORKS[name]
    rng, limits = np.random.default_rng(seed), np.iinfo(np.dtype(dtype))
    sizes = [int(size) for size in of.strip("[]").split(",")]
    count = int(scales.strip("[]"))
    weights = rng.integers(limits.min, limits.max + 1, sizes).astype(dtype)
    zero = np.asarray(rng.integers(limits.min, limits.max + 1), dtype)
    factors = (scale * rng.uniform(0.5, 1, count if count > 1 else ())).astype(np.float32)
    bias = rng.uniform(-1, 1, 5).astype(np.float32)
    drawn = {"w": weights, "p": zero, "c": factors, "b": bias}
    constants = ", ".join(f"{_type_of(value)} {key} = {{{_list(value)}}}" for key, value in drawn.items())
    model = parse(f"g (float{list(SHAPES[of])} x) => (float[N] y) <{constants}> {{ {body} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def _type_of(value: Array) -> str:
    return str(value.dtype).replace("float32", "float") + (str(list(value.shape)) if value.shape else "")


def _list(value: Array) -> str:
    return ", ".join(map(str, value.reshape(-1).tolist()))


def bounds(graph: Any, lower: Array, upper: Array) -> Interval:
    (y,) = IntervalAnalysis(graph, runtimes=("onnxruntime",)).run([Interval.box(lower, upper)])
    assert y is not None
    return y


def boxes(shape: tuple[int, ...], rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Return boxes around 0 and elsewhere, of ordinary, denormal and huge numbers, and points."""
    found = []
    for size in (1.0, 1e-30, 1e-36, 1e-40, 3e-45, 1e30):
        for centre in (0.0, size, -size):
            radius = size * rng.choice([0.0, 0.01, 1.0]) if centre else size
            ends = centre - radius * rng.random(shape), centre + radius * rng.random(shape)
            found.append((ends[0].astype(np.float32), ends[1].astype(np.float32)))
    zeros = np.zeros(shape, np.float32)
    return [*found, (zeros, zeros), (zeros, zeros + 1)]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_results_lie_within_the_bounds(name: str) -> None:
    for seed, scale in enumerate((0.02, 1e-38, 1e-44, 1e5)):
        model, rng = network(name, seed, scale), np.random.default_rng(seed)
        graphs = {True: rewritten(model), False: read(model)}
        shape = SHAPES[NETWORKS[name][2]]
        runs = {optimised: session(model, optimised=optimised) for optimised in graphs}
        for lower, upper in boxes(shape, rng):
            for optimised, graph in graphs.items():
                y = bounds(graph, lower, upper)
                for number in range(4):
                    share = rng.random(shape) if number % 2 else rng.integers(0, 2, shape)
                    x = np.clip((lower + share * (upper.astype(float) - lower)).astype(np.float32), lower, upper)
                    x *= number != 2 or bool((lower > 0).any() or (upper < 0).any())
                    result = torch.from_numpy(runs[optimised].run(None, {"x": x})[0])
                    assert bool(y.encloses(result).all()), (seed, scale, optimised, lower.min(), upper.max())


@pytest.mark.parametrize("name", ["matrix", "scale of each column", "one scale after the other", "image", "bias"])
@pytest.mark.parametrize("size", [2.0, 1e-3])
def test_bounds_are_not_those_of_the_largest_scale(name: str, size: float) -> None:
    model = network(name)
    shape = SHAPES[NETWORKS[name][2]]
    y = bounds(read(model), np.full(shape, -size, np.float32), np.full(shape, size, np.float32))
    # 8 products of at most 255 steps of a fiftieth, once more for numbers a step off and for pairs that saturate
    assert max(map(abs, y.extremes)) < 2 * 8 * 255 * 0.02 * size + ("Add" in NETWORKS[name][0])


def test_integers_that_two_products_read_are_bounded_too() -> None:
    graph = rewritten(network("of two products"))
    assert "MatMulIntegerToFloat" in {spec_of(op).op_type for op in graph.nodes}
    (op,) = (op for op in graph.nodes if spec_of(op).op_type == "Sub")
    found = []
    analysis = IntervalAnalysis(graph, runtimes=("onnxruntime",))
    box = [Interval.fill(-2, 2, SHAPES["[6, 5]"], torch.float32)]
    analysis.run(box, lambda visited: found.append(visited) if visited.op is op else None)
    product = found[0].operands[0]
    assert isinstance(product, Interval)
    assert max(map(abs, product.extremes)) < 2 * 6 * 255 * 0.02 * 2


def test_other_scales_say_nothing() -> None:
    body = "q, s, z = DynamicQuantizeLinear(x) r, t, v = DynamicQuantizeLinear(w) m = MatMulInteger(q, d, v)"
    model = parse(
        f"g (float[2, 2] x, float[2] w) => (float[2, 2] y) <uint8[2, 2] d = {{1, 2, 3, 4}}> "
        f"{{ {body} n = Cast <to = 1> (m) y = Mul(n, s) }}"
    )
    zeros = Interval.fill(0, 0, (2,), torch.float32)
    (y,) = IntervalAnalysis(read(model), runtimes=("onnxruntime",)).run(
        [Interval.fill(-1, 1, (2, 2), torch.float32), zeros]
    )
    assert y is not None
    x = np.array([[1, 1], [-1, 1]], np.float32)
    (result,) = session(model, optimised=False).run(None, {"x": x, "w": np.zeros(2, np.float32)})
    assert bool(y.encloses(torch.from_numpy(result)).all())


def test_an_exponential_behind_dynamically_quantised_layers_is_proved() -> None:
    model = network("matrix")
    model.graph.node[-1].output[0] = "t"
    model.graph.node.append(onnx.helper.make_node("Exp", ["t"], ["y"], "exp"))
    assert rf.check(model, box=(-0.5, 0.5), n_starts=0).verdict == "holds"


def test_differences_of_integers_of_32_bits_lie_in_the_bounds_wrapped_or_not() -> None:
    text = """g (int32[1, 6] x) => (float[1, 6] y) <float[1, 2] s = {1, 2}, int32[1, 2] z = {2000000000, -2000000000}>
        { y = DequantizeLinear <axis = 1, block_size = 3> (x, s, z) }"""
    model, x = parse(text, opset=21), np.array([[-2e9, -1e9, 5, 2e9, 1e9, 5]], np.int32)
    (bounds,) = IntervalAnalysis(read(model)).run([Interval.point(torch.from_numpy(x))])
    (given,) = session(model).run(None, {"x": x})
    assert bounds is not None and bool(bounds.encloses(torch.from_numpy(given)).all())
