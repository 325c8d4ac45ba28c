"""What ONNX Runtime's optimiser makes of models is read, written and bounded as it runs."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.network import Graph, read, spec_of
from ranum_falsify.network.writer import to_onnx
from ranum_falsify.verify.prove.checked import check
from tests.network.building import Array, parse, rewritten, session

CONV = "g (float[1,2,5,5] x) => (float[1,3,3,3] y) <float[3,2,3,3] w = {W54}, float[3] b = {1, -2, 0.5}>"
GEMM = "g (float[2,3] x) => (float[2,4] y) <float[3,4] w = {W12}, float[4] b = {1, -2, 0.5, 3}>"
ROWS = "g (float[2,3,4] x, float[2,3,4] z) => (float[2,3,4] y) <float[4] v = {1, -2, 0.5, 3}, float[4] b = {W4}"
SHIFTED = "g (float[2,4] x) => (float[2,4] y) <float[4] b = {1, -2, 0.5, 3}>"
PAIR = "g (float[2,3,4] x, float[2,3,5] z) => (float[2,4,5] y)"
RMS = (
    ", float two = {2}, float e = {1e-6}> { q = Pow (x, two) m = ReduceMean <axes = [-1]> (q) a = Add (m, e)"
    " r = Sqrt (a) d = Div (x, r) y = Mul (d, v) }"
)

PATTERNS: dict[str, tuple[str, int, str]] = {
    "Conv, Relu": ("FusedConv", 17, CONV + " { t = Conv (x, w, b) y = Relu (t) }"),
    "Conv, Sigmoid": ("FusedConv", 17, CONV + " { t = Conv (x, w, b) y = Sigmoid (t) }"),
    "Conv, Tanh": ("FusedConv", 17, CONV + " { t = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w) y = Tanh (t) }"),
    "Conv, LeakyRelu": ("FusedConv", 17, CONV + " { t = Conv (x, w, b) y = LeakyRelu <alpha = 0.3> (t) }"),
    "Conv, HardSigmoid": ("FusedConv", 17, CONV + " { t = Conv (x, w, b) y = HardSigmoid <alpha = 0.3> (t) }"),
    "Conv, Clip": (
        "FusedConv",
        17,
        CONV[:-1] + ", float l = {-0.5}, float h = {2}> { t = Conv (x, w, b) y = Clip (t, l, h) }",
    ),
    **{
        f"Gemm, {activation}": ("FusedGemm", 17, GEMM + f" {{ t = Gemm (x, w, b) y = {activation} (t) }}")
        for activation in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Softplus", "Softsign")
    },
    "MatMul, Add, Relu": ("FusedGemm", 17, GEMM + " { t = MatMul (x, w) s = Add (t, b) y = Relu (s) }"),
    "Transpose, MatMul": ("FusedMatMul", 17, PAIR + " { t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (t, z) }"),
    "Transpose, MatMul with a vector": (
        "FusedMatMul",
        17,
        "g (float[2,3,4] x, float[3] z) => (float[2,4] y) { t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (t, z) }",
    ),
    "Mul, MatMul, Mul": (
        "FusedMatMul",
        17,
        "g (float[2,3,4] x, float[2,4,5] z) => (float[2,3,5] y) <float c = {0.5}, float d = {3}>"
        " { t = Mul (x, c) u = Div (z, d) v = MatMul (t, u) y = Mul (v, d) }",
    ),
    "Gelu by parts": (
        "Gelu",
        13,
        "g (float[2,4] x) => (float[2,4] y) <float r = {1.4142135}, float one = {1}, float h = {0.5}>"
        " { d = Div (x, r) e = Erf (d) a = Add (e, one) m = Mul (x, a) y = Mul (m, h) }",
    ),
    "Add, Gelu": ("BiasGelu", 20, SHIFTED + " { s = Add (x, b) y = Gelu (s) }"),
    "Add, Gelu tanh": ("FastGelu", 20, SHIFTED + ' { s = Add (x, b) y = Gelu <approximate = "tanh"> (s) }'),
    "x Sigmoid(1.702 x)": (
        "QuickGelu",
        17,
        "g (float[2,4] x) => (float[2,4] y) <float c = {1.702}> { m = Mul (x, c) s = Sigmoid (m) y = Mul (x, s) }",
    ),
    "x Sigmoid(x)": ("QuickGelu", 17, "g (float[2,4] x) => (float[2,4] y) { s = Sigmoid (x) y = Mul (x, s) }"),
    "Add, LayerNormalization": (
        "SkipLayerNormalization",
        17,
        ROWS + "> { s = Add (x, z) y = LayerNormalization <axis = -1> (s, v, b) }",
    ),
    "Add, Add, LayerNormalization": (
        "SkipLayerNormalization",
        17,
        ROWS + "> { t = Add (x, b) s = Add (t, z) y = LayerNormalization <axis = -1> (s, v, b) }",
    ),
    "LayerNormalization by parts": (
        "LayerNormalization",
        13,
        ROWS + ", float two = {2}, float e = {1e-6}> { n = ReduceMean <axes = [-1]> (x) c = Sub (x, n) q = Pow (c, two)"
        " m = ReduceMean <axes = [-1]> (q) a = Add (m, e) r = Sqrt (a) d = Div (c, r) w = Mul (d, v) y = Add (w, b) }",
    ),
    "RMSNormalization by parts": ("SimplifiedLayerNormalization", 13, ROWS + RMS),
    "RMSNormalization by parts in float64": (
        "SimplifiedLayerNormalization",
        13,
        (ROWS + RMS).replace("float", "double"),
    ),
}


IN_SOME_VERSIONS = "RMSNormalization by parts in float64"
"""What ONNX Runtime fuses up to 1.31."""


def model_of(name: str) -> onnx.ModelProto:
    """Return a pattern as a model; weights that are not spelled out are drawn."""
    _, opset, text = PATTERNS[name]
    rng = np.random.default_rng(0)
    for count in (4, 12, 54):
        text = text.replace(f"{{W{count}}}", f"{{{', '.join(f'{value:.6f}' for value in rng.normal(size=count))}}}")
    return parse(text, opset)


@pytest.fixture(params=PATTERNS)
def pattern(request: pytest.FixtureRequest) -> tuple[str, onnx.ModelProto, Graph]:
    """The operator that a pattern is fused to, its model, and the graph that ONNX Runtime makes of it."""
    model = model_of(request.param)
    return PATTERNS[request.param][0], model, rewritten(model)


def draws(graph: Graph, scale: float, seed: int) -> tuple[list[Array], list[Array]]:
    """Return a box: some elements known, some of a width of up to the scale."""
    rng = np.random.default_rng(seed)
    lower, upper = [], []
    for details in graph.input_details:
        centre, radius = (rng.normal(size=details.shape) * scale for _ in range(2))
        radius = np.abs(radius) * rng.choice((0, 1e-3, 1), details.shape)
        lower.append((centre - radius).astype(details.dtype))
        upper.append((centre + radius).astype(details.dtype))
    return lower, upper


def points(lower: Sequence[Array], upper: Sequence[Array], seed: int) -> Iterator[list[Array]]:
    """Yield points of a box, half of them vertices."""
    rng = np.random.default_rng(seed)
    for number in range(16):
        shares = [rng.random(x.shape) if number % 2 else rng.integers(0, 2, x.shape) for x in lower]
        yield [
            np.clip(low + (share * (high - low)).astype(low.dtype), low, high)
            for low, high, share in zip(lower, upper, shares, strict=True)
        ]


def test_fused_operator_is_read(pattern: tuple[str, onnx.ModelProto, Graph], request: pytest.FixtureRequest) -> None:
    fused, _, graph = pattern
    if request.node.callspec.params["pattern"] == IN_SOME_VERSIONS and fused not in _types(graph):
        pytest.skip("this version of ONNX Runtime leaves it as it is")
    assert fused in _types(graph)


def _types(graph: Graph) -> set[str]:
    return {spec_of(op).op_type for op in graph.nodes}


@pytest.mark.few(60)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_bounds_enclose_what_runs_by_default(pattern: tuple[str, onnx.ModelProto, Graph], scale: float) -> None:
    _, model, graph = pattern
    run = session(model, optimised=True)
    analysis = IntervalAnalysis(graph, runtimes=("onnxruntime",))
    lower, upper = draws(graph, scale, seed=1)
    checked = check(analysis, [Interval.box(*ends) for ends in zip(lower, upper, strict=True)])
    assert not checked.open
    (bounds,) = checked.outputs
    assert bounds is not None
    names = [op.name for op in graph.inputs]
    for arrays in points(lower, upper, seed=2):
        (y,) = run.run(None, dict(zip(names, arrays, strict=True)))
        assert bool(bounds.encloses(torch.as_tensor(y)).all())


def test_written_model_gives_the_same(pattern: tuple[str, onnx.ModelProto, Graph]) -> None:
    _, model, graph = pattern
    again = session(to_onnx(graph))
    feeds = dict(zip([op.name for op in graph.inputs], draws(graph, 1.0, seed=3)[0], strict=True))
    (theirs,), (ours,) = (s.run(None, feeds) for s in (session(model, optimised=True), again))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def attention() -> onnx.ModelProto:
    """Return two normalisations with self-attention between, as exporters wrote it, for batches of any size."""
    rng = np.random.default_rng(0)
    square = {f"float[4,4] w{i}": 16 for i in range(4)} | {f"float[4] b{i}": 4 for i in range(4)}
    weights = ", ".join(
        f"{name} = {{{', '.join(f'{value:.6f}' for value in rng.normal(size=count))}}}"
        for name, count in square.items()
    )
    constants = (
        ", float[4] v = {1, -2, 0.5, 3}, float[4] s = {1, 0, -1, 2}, float two = {2}, float one = {1}, float e = {1e-5}"
        ", int64[4] heads = {0, 0, 2, 2}, int64[3] flat = {0, 0, 4}, float far = {-10000}, float root = {1.4142135}"
    )
    text = "g (float[batch,length,4] x, int64[batch,length] mask) => (float[batch,length,4] y)"
    text += f" <{weights}{constants}> {{ {_normalised('x', 'n')}"
    for i, perm in enumerate(("0, 2, 1, 3", "0, 2, 3, 1", "0, 2, 1, 3")):
        text += f" m{i} = MatMul (n, w{i}) a{i} = Add (m{i}, b{i}) r{i} = Reshape (a{i}, heads)"
        text += f" h{i} = Transpose <perm = [{perm}]> (r{i})"
    text += (
        " u = Unsqueeze <axes = [1]> (mask) uu = Unsqueeze <axes = [2]> (u) f = Cast <to = 1> (uu) g0 = Sub (one, f)"
    )
    text += (
        " g1 = Mul (g0, far) p0 = MatMul (h0, h1) p1 = Div (p0, root) p2 = Add (p1, g1) p3 = Softmax <axis = 3> (p2)"
    )
    text += (
        " o0 = MatMul (p3, h2) o1 = Transpose <perm = [0, 2, 1, 3]> (o0) o2 = Reshape (o1, flat) o3 = MatMul (o2, w3)"
    )
    return parse(text + f" o4 = Add (o3, b3) z = Add (o4, n) {_normalised('z', 'y')} }}", 11)


def _normalised(x: str, y: str) -> str:
    return (
        f" {x}0 = ReduceMean <axes = [-1]> ({x}) {x}1 = Sub ({x}, {x}0) {x}2 = Pow ({x}1, two)"
        f" {x}3 = ReduceMean <axes = [-1]> ({x}2) {x}4 = Add ({x}3, e) {x}5 = Sqrt ({x}4) {x}6 = Div ({x}1, {x}5)"
        f" {x}7 = Mul ({x}6, v) {y} = Add ({x}7, s)"
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_fused_attention_is_enclosed(scale: float) -> None:
    model = attention()
    graph = rewritten(model, dims={"batch": 2, "length": 3})
    assert {"Attention", "SkipLayerNormalization"} <= {spec_of(op).op_type for op in graph.nodes}
    rng = np.random.default_rng(1)
    centre = (rng.normal(size=(2, 3, 4)) * scale).astype(np.float32)
    radius = np.abs(centre) * np.float32(0.01)
    lower, upper = [centre - radius, np.zeros((2, 3), np.int64)], [centre + radius, np.ones((2, 3), np.int64)]
    analysis = IntervalAnalysis(graph, runtimes=("onnxruntime",))
    checked = check(analysis, [Interval.box(*ends) for ends in zip(lower, upper, strict=True)])
    (bounds,) = checked.outputs
    assert not checked.open and bounds is not None
    run = session(model, optimised=True)
    for x, mask in points(lower, upper, seed=2):
        (y,) = run.run(None, {"x": x, "mask": mask})
        assert bool(bounds.encloses(torch.as_tensor(y)).all())


def layers(activation: str) -> onnx.ModelProto:
    """Return four layers with an activation each, and one without."""
    rng = np.random.default_rng(0)
    weights = ", ".join(
        f"float[6,6] w{i} = {{{', '.join(f'{value:.6f}' for value in 0.6 * rng.normal(size=36))}}}" for i in range(5)
    )
    names = ["x", "a", "b", "c", "d"]
    nodes = " ".join(
        f"{new}t = Gemm ({old}, w{i}) {new} = {activation} ({new}t)" for i, (old, new) in enumerate(pairwise(names))
    )
    return parse(f"g (float[1,6] x) => (float[1,6] y) <{weights}> {{ {nodes} y = Gemm (d, w4) }}")


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Sigmoid", "Tanh"])
def test_linear_bounds_pass_through_fused_layers(activation: str) -> None:
    model = layers(activation)
    graph = rewritten(model)
    assert len(graph.nodes) == 5
    centre = np.random.default_rng(1).normal(size=(1, 6)).astype(np.float32)
    lower, upper = [centre - np.float32(0.05)], [centre + np.float32(0.05)]
    box = [Interval.box(*lower, *upper)]
    found = [kind(graph, runtimes=("onnxruntime",)).run(box)[0] for kind in (IntervalAnalysis, LinearAnalysis)]
    (coarse, fine) = (bounds for bounds in found if bounds is not None)
    assert float((fine.upper - fine.lower).max()) < 0.9 * float((coarse.upper - coarse.lower).max())
    run = session(model, optimised=True)
    for (x,) in points(lower, upper, seed=2):
        (y,) = run.run(None, {"x": x})
        assert bool(fine.encloses(torch.as_tensor(y)).all())


OVERFLOWS = {
    "a product that a factor makes small": (
        "g (float[1,2] x, float[2,1] z) => (float[1,1] y) <float c = {1e-10}> { p = MatMul (x, z) y = Mul (p, c) }"
    ),
    "a convolution that Clip cuts": (
        "g (float[1,1,4] x) => (float[1,1,4] y) <float[1,1,1] w = {1e30}, float l = {0}, float h = {6}>"
        " { t = Conv (x, w) y = Clip (t, l, h) }"
    ),
    "a sum that is normalised": (
        "g (float[2,3,4] x, float[2,3,4] z) => (float[2,3,4] y) <float[4] v = {1, 1, 1, 1}>"
        " { s = Add (x, z) y = LayerNormalization <axis = -1> (s, v) }"
    ),
}


@pytest.mark.parametrize("text", OVERFLOWS.values(), ids=OVERFLOWS)
def test_an_overflow_inside_of_a_fused_operator_is_not_proved_away(text: str) -> None:
    graph = rewritten(parse(text))
    assert len(graph.nodes) == 1
    analysis = IntervalAnalysis(graph, runtimes=("onnxruntime",))
    for size, is_open in ((1.0, False), (3e38, True)):
        boxes = [Interval.fill(-size, size, d.shape, torch.float32) for d in graph.input_details]
        assert bool(check(analysis, boxes).open) is is_open


@pytest.mark.parametrize("name", ["LinearAttention", "com.microsoft.LinearAttention"])
@pytest.mark.parametrize("decay", [-1.0, 200.0])
def test_a_decay_that_overflows_on_a_state_of_zeros_is_not_proved_away(name: str, decay: float) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 27, "com.microsoft" : 1]>'
        "g (float[1, 2, 2] x, float[1, 2, 2] decay) => (float[1, 2, 2] y, float[1, 1, 2, 2] state)"
        f' {{ y, state = {name} <q_num_heads = 1, kv_num_heads = 1, update_rule = "gated"> (x, x, x, , decay) }}'
    )
    boxes = [Interval.fill(value, value, (1, 2, 2), torch.float32) for value in (0.0, decay)]
    assert bool(check(IntervalAnalysis(read(model)), boxes).open) is (decay > 0)
