"""Operands that ONNX Runtime refuses: indices outside of tables, counts and lengths that do not fit."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import parser

import ranum_falsify as rf
from ranum_falsify.domain import Interval
from ranum_falsify.network import Graph, read, spec_of
from ranum_falsify.operators.support.conditions import list_refusals
from tests.network.building import runs

_HEAD = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "ai.onnx.ml" : 3]>\n'
_TABLE = (
    "<float[4, 2] t = {1, 2, 3, 4, 5, 6, 7, 8}, int64 two = {2}, int64 zero = {0}, int64 three = {3}, int64 four = {4}>"
)

SINGLE = {
    "Gather": "g (float[4, 2] x, int64[3] i) => (float[n, m] y) { y = Gather(x, i) }",
    "Gather axis": "g (float[4, 2] x, int32[3] i) => (float[n, m] y) { y = Gather<axis = -1>(x, i) }",
    "GatherElements": "g (float[4, 2] x, int64[2, 2] i) => (float[n, m] y) { y = GatherElements<axis = 1>(x, i) }",
    "GatherND": "g (float[4, 2] x, int64[3, 2] i) => (float[n] y) { y = GatherND(x, i) }",
    "GatherND batch": "g (float[2, 4, 3] x, int64[2, 1] i) => (float[n, m] y) { y = GatherND<batch_dims = 1>(x, i) }",
    "ScatterElements": """g (float[4, 2] x, int64[1, 2] i, float[1, 2] u) => (float[n, m] y) {
        y = ScatterElements(x, i, u) }""",
    "ScatterND": "g (float[4, 2] x, int64[2, 1] i, float[2, 2] u) => (float[n, m] y) { y = ScatterND(x, i, u) }",
    "ArrayFeatureExtractor": """g (float[2, 3] x, int64[2] i) => (float[n, m] y) {
        y = ai.onnx.ml.ArrayFeatureExtractor(x, i) }""",
    "OneHotEncoder": """g (int64[3] i) => (float[n, m] y) {
        y = ai.onnx.ml.OneHotEncoder<cats_int64s = [2, -1, 0, 2], zeros = 0>(i) }""",
    "ReverseSequence": "g (float[4, 3] x, int64[3] i) => (float[4, 3] y) { y = ReverseSequence(x, i) }",
    "NegativeLogLikelihoodLoss": "g (float[2, 3] x, int64[2] i) => (float y) { y = NegativeLogLikelihoodLoss(x, i) }",
    "SoftmaxCrossEntropyLoss": """g (float[2, 3] x, int64[2] i) => (float y) {
        y = SoftmaxCrossEntropyLoss<ignore_index = -5>(x, i) }""",
    "MaxUnpool": """g (float[1, 1, 2, 2] x, int64[1, 1, 2, 2] i) => (float[1, 1, 3, 3] y) {
        y = MaxUnpool<kernel_shape = [2, 2]>(x, i) }""",
    "EmbedLayerNormalization": """
        g (int32[1, 2] i, float[4, 2] x, float[2, 2] p, float[2] w) => (float[1, 2, 2] y, int32[1] m) {
        y, m = com.microsoft.EmbedLayerNormalization(i, , x, p, , w, w) }""",
    "com.microsoft GatherND": """g (float[4, 2] x, int64[3, 2] i) => (float[n] y) {
        y = com.microsoft.GatherND(x, i) }""",
    "NGramRepeatBlock": """g (int64[2, 4] i, float[2, 4] x) => (float[2, 4] y) {
        y = com.microsoft.NGramRepeatBlock<ngram_size = 2>(i, x) }""",
    "QEmbedLayerNormalization": """
        g (int32[1, 2] i, uint8[4, 2] x, uint8[2, 2] p, uint8[2] w, float s, uint8 z)
        => (float[1, 2, 2] y, int32[1] m) {
        y, m = com.microsoft.QEmbedLayerNormalization(i, , x, p, , w, w, , s, s, , s, s, z, z, , z, z) }""",
    "TopK": "g (float[4, 3] x, int64[1] i) => (float[n, m] y) { y, j = TopK(x, i) }",
    "Reshape": "g (float[4, 3] x, int64[2] i) => (float[n, m] y) { y = Reshape(x, i) }",
    "Expand": "g (float[1] x, int64[2] i) => (float[n, m] y) { y = Expand(x, i) }",
    "Tile": "g (float[4, 3] x, int64[2] i) => (float[n, m] y) { y = Tile(x, i) }",
}
"""Models of one operator, whose input `i` says where, or how many."""

_NEEDS_SIZES = {"TopK", "Reshape", "Expand", "Tile"}

_RECURRENT = """g (float[3, 2, 2] x, int32[2] i) => (float[n, m, o, p] y)
    <float[1, {rows}, 2] w = {{{zeros}}}, float[1, {rows}, 2] r = {{{zeros}}}> {{
    y, h = {name}<hidden_size = 2>(x, w, r, , i) }}"""


def _zeros(count: int) -> str:
    return ", ".join(["0"] * count)


STEERED = {
    "RNN": _RECURRENT.format(name="RNN", rows=2, zeros=_zeros(4)),
    "GRU": _RECURRENT.format(name="GRU", rows=6, zeros=_zeros(12)),
    "LSTM": _RECURRENT.format(name="LSTM", rows=8, zeros=_zeros(16)),
    "DynamicQuantizeLSTM": """g (float[3, 2, 2] x, int32[2] i) => (float[n, m, o, p] y)
        <uint8[1, 2, 8] w = {ZEROS}, float[1] s = {0.1}, uint8[1] z = {0}> {
        y = com.microsoft.DynamicQuantizeLSTM<hidden_size = 2>(x, w, w, , i, , , , s, z, s, z) }""".replace(
        "ZEROS", _zeros(16)
    ),
    "Slice steps": """g (float[4, 2] x, int64[2] i) => (float[n, m] y) <int64[2] a = {0, 1}, int64[2] b = {3, 2}> {
        y = Slice(x, a, b, a, i) }""",
    "Slice axes": """g (float[4, 2] x, int64[2] i) => (float[n, m] y) <int64[2] a = {0, 1}, int64[2] b = {3, 2}> {
        y = Slice(x, a, b, i) }""",
    "OneHot": "g (int64[2] x, int64 i) => (float[n, m] y) <float[2] v = {0, 1}> { y = OneHot(x, i, v) }",
    "ReduceSum": "g (float[4, 2] x, int64[2] i) => (float[n, m] y) { y = ReduceSum(x, i) }",
    "ReduceMax": "g (float[4, 2] x, int64[1] i) => (float[n, m] y) { y = ReduceMax(x, i) }",
    "CumSum": "g (float[4, 2] x, int64 i) => (float[n, m] y) { y = CumSum(x, i) }",
    "Unsqueeze": "g (float[4, 2] x, int64[2] i) => (float[n, m, o, p] y) { y = Unsqueeze(x, i) }",
    "ExpandDims": "g (float[4, 2] x, int32 i) => (float[n, m, o] y) { y = com.microsoft.ExpandDims(x, i) }",
    "Squeeze": "g (float[1, 4, 1] x, int64[2] i) => (float[n] y) { y = Squeeze(x, i) }",
    "Split": "g (float[4, 2] x, int64[2] i) => (float[n, m] y, float[o, p] z) { y, z = Split(x, i) }",
    "Pad": "g (float[2, 3] x, int64[4] i) => (float[n, m] y) { y = Pad(x, i) }",
    "Pad reflect": 'g (float[2, 3] x, int64[4] i) => (float[n, m] y) { y = Pad<mode = "reflect">(x, i) }',
    "Pad edge": 'g (float[2, 3] x, int64[4] i) => (float[n, m] y) { y = Pad<mode = "edge">(x, i) }',
    "Pad wrap": 'g (float[2, 3] x, int64[4] i) => (float[n, m] y) { y = Pad<mode = "wrap">(x, i) }',
    "Pad axes": "g (float[2, 3] x, int64[1] i) => (float[n, m] y) <int64[2] p = {1, 1}> { y = Pad(x, p, , i) }",
    "NonMaxSuppression": """g (float[1] i) => (int64[n, m] y)
        <float[1, 2, 4] b = {0, 0, 1, 1, 0, 0, 2, 2}, float[1, 1, 2] s = {0, 1}, int64 k = {2}> {
        y = NonMaxSuppression(b, s, k, i) }""",
    "ConstantOfShape": "g (int64[2] i) => (float[n, m] y) { y = ConstantOfShape(i) }",
    "HannWindow": "g (int64 i) => (float[n] y) { y = HannWindow(i) }",
    "RoiAlign": """g (float[2, 1, 4, 4] x, int64[1] i) => (float[n, m, o, p] y) <float[1, 4] r = {0, 0, 2, 2}> {
        y = RoiAlign(x, r, i) }""",
    "MaxRoiPool": """g (float[2, 1, 4, 4] x, float[1, 5] i) => (float[n, m, o, p] y) {
        y = MaxRoiPool<pooled_shape = [2, 2]>(x, i) }""",
    "Attention": """g (float[1, 1, 2, 4] q, float[1, 1, 3, 4] k, int64[1] i) => (float[1, 1, 2, 4] y) {
        y = Attention(q, k, k, , , , i) }""",
    "com.microsoft Attention": """g (float[2, 3, 2] x, float[2, 6] w, float[6] b, int32[2] i) => (float[2, 3, 2] y) {
        y = com.microsoft.Attention<num_heads = 1>(x, w, b, i) }""",
}
"""Models of operators that refuse some `i`, which are asked about only where inputs compute it."""

_SAMPLES = {"Split": {"i": np.array([2, 2])}, "Slice steps": {"i": np.array([1, 1])}}
"""Where zeros are refused: an input on which a model can be read."""


def _parse(text: str) -> onnx.ModelProto:
    head = _HEAD.replace("21", "24") if " = Attention" in text else _HEAD
    return parser.parse_model(head + text)


def _feeds(graph: Graph, rng: np.random.Generator, reach: int) -> dict[str, np.ndarray]:
    feeds = {}
    for name, details in zip(graph.input_names, graph.input_details, strict=True):
        if np.issubdtype(details.dtype, np.integer):
            feeds[name] = rng.integers(-reach, reach + 1, details.shape).astype(details.dtype)
        else:
            feeds[name] = rng.normal(size=details.shape).astype(np.float32)
    return feeds


@pytest.mark.few(7)
@pytest.mark.parametrize("name", [*SINGLE, *STEERED])
def test_conditions_say_what_onnxruntime_refuses(name: str) -> None:
    model = _parse(SINGLE.get(name) or STEERED[name])
    graph, session = read(model, sample=_SAMPLES.get(name, {})), ort.InferenceSession(model.SerializeToString())
    (op,) = graph.nodes
    conditions = [c for c in list_refusals(op) if getattr(c, "operand", "") in ("", *_reading(op))]
    rng, seen = np.random.default_rng(0), set()
    for reach in [1, 2, 3, 4, 5, 6] * 20:
        feeds = _feeds(graph, rng, reach)
        operands = [feeds.get(getattr(x, "name", ""), x) for x in spec_of(op).operands_of(op)]
        named = {key: x for key, x in spec_of(op).name_values(operands).items() if x is not None}
        refused, taken = any(bool(c.is_violated(op, named).any()) for c in conditions), runs(session, feeds)
        assert refused == (not taken), feeds
        bounds = {key: Interval.point(x) for key, x in named.items()}
        if name not in _NEEDS_SIZES:
            assert all(c.holds(op, bounds) for c in conditions) == taken
            assert any(c.fails(op, bounds) for c in conditions) == refused or name in STEERED
        seen.add(taken)
    assert seen == {True, False}


def _reading(op: object) -> list[str]:
    return [name for name, x in vars(op).items() if getattr(x, "name", "") == "i"]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", [name for name in SINGLE if name not in {*_NEEDS_SIZES, "NGramRepeatBlock"}])
def test_bounds_hold_for_all_that_they_enclose_and_fail_only_for_all(name: str) -> None:
    graph = read(_parse(SINGLE[name]))
    (op,) = graph.nodes
    (condition,) = [c for c in list_refusals(op) if getattr(c, "operand", "") in _reading(op)]
    rng = np.random.default_rng(1)
    for _ in range(150):
        feeds = [_feeds(graph, rng, 5) for _ in range(2)]
        order = [None if x is None else x.name for x in spec_of(op).operands_of(op)]
        ends = [[None if key is None else feed[key] for key in order] for feed in feeds]
        low = [None if a is None else np.minimum(a, b) for a, b in zip(*ends, strict=True)]
        high = [None if a is None else np.maximum(a, b) for a, b in zip(*ends, strict=True)]
        boxes = [None if a is None or b is None else Interval.box(a, b) for a, b in zip(low, high, strict=True)]
        bounds = {key: x for key, x in spec_of(op).name_values(boxes).items() if x is not None}
        holds, fails = condition.holds(op, bounds), condition.fails(op, bounds)
        for _ in range(10):
            drawn = [None if a is None or b is None else _draw(rng, a, b) for a, b in zip(low, high, strict=True)]
            named = {key: x for key, x in spec_of(op).name_values(drawn).items() if x is not None}
            violated = bool(condition.is_violated(op, named).any())
            assert not (holds and violated) and not (fails and not violated)


_OUT = "=> (float[n, m] y)"
_TAKE = "[emb] y = Gather(t, i) }"
_CAST = f"g (float[2] x) {_OUT} %s {{ i = Cast<to = 7>(x) {_TAKE}"
_ARGMAX = "i = ArgMax<axis = 1>(x) [emb] y = GatherND(t, i) }"
_LOOP = """g (int64[2] k) => (float[2] y) <int64 n = {2}, bool c = {1}, float[4] t = {1, 2, 3, 4}, float[2] z = {0, 0}>
{ y = Loop(n, c, z) <body = b (int64 it, bool go, float[2] s) => (bool on, float[2] r) {
    on = Identity(go) [emb] e = Gather(t, k) r = Add(s, e) }> }"""


def _draw(rng: np.random.Generator, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return rng.integers(low, high + 1).astype(low.dtype) if low.dtype.kind == "i" else low


_FEW_BITS = """g (float[1, 32] x, int32[32] i) => (float[1, 1] y) <uint8[1, 2, 8] b = {ZEROS}, float[2] s = {1, 1}> {
    y = com.microsoft.MatMulNBits<K = 32, N = 1, bits = 4, block_size = 16>(x, b, s, , i) }""".replace(
    "ZEROS", _zeros(16)
)

DECIDED = {
    "input": (f"g (int64[2] i) {_OUT} %s {{ {_TAKE}", (-9, 9), "violated"),
    "input inside": (f"g (int64[2] i) {_OUT} %s {{ {_TAKE}", (-4, 3), "holds"),
    "one too many": (f"g (int64[2] i) {_OUT} %s {{ {_TAKE}", (0, 4), "violated"),
    "one too few": (f"g (int64[2] i) {_OUT} %s {{ {_TAKE}", (-5, 3), "violated"),
    "default": (f"g (int64[2] i) {_OUT} %s {{ {_TAKE}", None, "holds"),
    "default of floats": (_CAST, None, "holds"),
    "cast": (_CAST, (-4.9, 4.5), "violated"),
    "cast inside": (_CAST, (-4.9, 3.9), "holds"),
    "arithmetic": (f"g (int64[2] k) {_OUT} %s {{ i = Mul(k, two) {_TAKE}", (0, 2), "violated"),
    "remainder": (f"g (int64[2] k) {_OUT} %s {{ i = Mod(k, four) {_TAKE}", (-99, 99), "holds"),
    "clip": (f"g (int64[2] k) {_OUT} %s {{ i = Clip(k, zero, three) {_TAKE}", (-99, 99), "holds"),
    "argmax": (f"g (float[3, 4] x) {_OUT} %s {{ {_ARGMAX}", (-1, 1), "holds"),
    "argmax outside": (f"g (float[3, 5] x) {_OUT} %s {{ {_ARGMAX}", (-1, 1), "violated"),
    "constant": ("g (float[2, 2] x) => (float[n] y) %s { [emb] y = Gather(x, two) }", (-1, 1), "violated"),
    "folded": ("g (float[2] x) => (float[2] y) %s { [emb] r = Gather(t, four) y = Add(x, r) }", (-1, 1), "violated"),
    "minus one": ("g (float[2, 2] x) => (float[n] y) <int64 k = {-1}> { [emb] y = Gather(x, k) }", (-1, 1), "holds"),
    "loss": (SINGLE["NegativeLogLikelihoodLoss"], (-4, 3), "violated"),
    "loop": (_LOOP, (0, 4), "violated"),
    "count": (SINGLE["TopK"], (0, 5), "violated"),
    "shape": (f"g (float[2, 3] x, int64[2] k) {_OUT} {{ v = Reshape(x, k) y = Exp(v) }}", (-2, 4), "violated"),
    "lengths": (STEERED["GRU"], (0, 5), "violated"),
    "lengths inside": (STEERED["LSTM"], (0, 3), "holds"),
    "depth": (STEERED["OneHot"], (0, 3), "violated"),
    "depth inside": (STEERED["OneHot"], (1, 3), "holds"),
    "step of a slice": (STEERED["Slice steps"], (0, 2), "violated"),
    "step of a slice inside": (STEERED["Slice steps"], (1, 2), "holds"),
    "axes": (STEERED["ReduceSum"], (0, 3), "violated"),
    "axes of a number": (
        "g (float x, int64[1] i) => (float y) { [m] d = ReduceMax(x, i) y = Neg(x) }",
        (-3, 3),
        "holds",
    ),
    "new axes": (STEERED["ExpandDims"], (-3, 3), "violated"),
    "new axes inside": (STEERED["ExpandDims"], (-3, 2), "holds"),
    "blocks": (_FEW_BITS, (0, 3), "violated"),
    "one block": (_FEW_BITS, (1, 1), "holds"),
    "parts": (STEERED["Split"], (1, 3), "violated"),
    "axes of one sample": (
        "g (float[1, 4] x, int64[1] i) => (float[n, m, o] y) { y = Unsqueeze(x, i) }",
        (-4, 3),
        "violated",
    ),
    "axes to drop": ("g (float[1, 1, 4] x, int64[1] i) => (float[n, m] y) { y = Squeeze(x, i) }", (-2, -1), "violated"),
    "any axis": (
        "g (int64[1, 4] x, int64[1] i) => (int64[n, m, o] y) { y = Unsqueeze(x, i) }",
        (-(2**63), 2**63 - 1),
        "violated",
    ),
    "bins of a spectrum": (
        """g (int64 i) => (float[n, m] y) <int64 a = {16}, int64 r = {8000}, float l = {0}, float h = {4000}> {
        y = MelWeightMatrix(i, a, r, l, h) }""",
        (-6, 9),
        "violated",
    ),
    "pads": (STEERED["Pad axes"], (-1, 2), "violated"),
    "pads inside": (STEERED["Pad edge"], (0, 1), "holds"),
    "size": (STEERED["ConstantOfShape"], (-1, 5), "violated"),
    "share": (STEERED["NonMaxSuppression"], (0, 2), "violated"),
    "step": ("g (float a, float b, float c) => (float[n] y) { y = Range(a, b, c) }", (-9, 9), "violated"),
}
"""Models, the box of all their inputs, and the verdict."""


@pytest.mark.few(6)
@pytest.mark.parametrize("name", DECIDED)
def test_verdicts_about_indices(name: str) -> None:
    text, box, verdict = DECIDED[name]
    model = _parse(text.replace("%s", _TABLE))
    result = rf.check(model, box=box, runtime="onnxruntime", self_check=False)
    assert result.verdict == verdict
    if verdict == "violated":
        assert result.counterexample is not None
        assert not runs(ort.InferenceSession(model.SerializeToString()), dict(result.counterexample))
        assert "error" in {operator.kind for operator in result.operators}
    else:
        session = ort.InferenceSession(model.SerializeToString())
        assert runs(session, _corner(session, box))


@pytest.mark.parametrize(("count", "verdicts"), [(2**62, {"unknown", "violated"}), (-1, {"violated"}), (0, {"holds"})])
def test_a_count_beyond_the_axis_or_of_none_is_no_traceback(count: int, verdicts: set[str]) -> None:
    text = """g (float[4] x, int64[1] i) => (float[n] y, int64[m] z) <float[4] c = {1, 2, 3, 4}> {
        w = Mul(x, c) y, z = TopK(w, i) }"""
    box = {"x": (-1.0, 1.0), "i": (count, count)}
    result = rf.check(_parse(text), box=box, runtime="onnxruntime", self_check=False, n_starts=8)
    assert result.verdict in verdicts


def test_a_branch_that_does_not_run_on_zeros_is_read_on_what_the_box_allows() -> None:
    text = """g (float[4] x, bool k, int64[1] i) => (float[n] y) <int64[1] a = {0}, int64[1] b = {4}> {
        y = If(k) <then_branch = t () => (float[p] u) { u = Slice(x, a, b, a, i) },
                   else_branch = e () => (float[q] w) { w = Neg(x) }> }"""
    box = {"x": (-1.0, 1.0), "k": (0, 1)}
    asked = [
        rf.check(_parse(text), box=box | {"i": i}, runtime="onnxruntime", self_check=False) for i in [(1, 1), (0, 1)]
    ]
    assert [result.verdict for result in asked] == ["holds", "violated"]


def test_a_grid_without_elements_is_no_traceback() -> None:
    model = _parse("g (float[1, 2, 3] x, int64[4] i) => (float[n, m, o, p] y) { y = AffineGrid(x, i) }")
    result = rf.check(model, box={"x": (0.0, 1.0), "i": (0, 1)}, runtime="onnxruntime", self_check=False, n_starts=8)
    assert result.verdict == "unknown"


_KINDS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}


def _corner(session: ort.InferenceSession, box: tuple[float, float] | None) -> dict[str, np.ndarray]:
    return {x.name: np.full(x.shape, box[0] if box else 0).astype(_KINDS[x.type]) for x in session.get_inputs()}


def test_an_index_outside_hides_no_other_violation() -> None:
    text = "g (int64[2] i, float[2] x) => (float[n, m] y, float[2] z) %s { [emb] y = Gather(t, i) [log] z = Log(x) }"
    result = rf.check(_parse(text.replace("%s", _TABLE)), box=(-9, 9), runtime="onnxruntime", self_check=False)
    assert {op.node: (op.verdict, op.kind) for op in result.operators} == {
        "emb": ("violated", "error"),
        "log": ("violated", "nan"),
    }


def test_two_indices_outside_are_both_found() -> None:
    text = """g (int64[2] i) => (float[n, m] y, float[k, l] z) %s {
        [a] y = Gather(t, i) j = Add(i, four) [b] z = Gather(t, j) }"""
    result = rf.check(_parse(text.replace("%s", _TABLE)), box=(4, 9), runtime="onnxruntime", self_check=False)
    assert [(op.node, op.verdict, op.kind, op.reach) for op in result.operators] == [
        ("a", "violated", "error", "output"),
        ("b", "violated", "error", "output"),
    ]


def test_nan_of_a_table_is_handed_on() -> None:
    model = _parse("g (int64[2] i) => (float[2] y) <float[3] t = {1, 3, 2}> { [emb] y = Gather(t, i) }")
    model.graph.initializer[0].float_data[1] = np.nan
    assert rf.check(model, box=(0, 2), runtime="onnxruntime", self_check=False).verdict == "holds"


def test_margins_of_huge_indices_are_exact() -> None:
    (op,) = read(_parse(SINGLE["Gather"])).nodes
    (condition,) = list_refusals(op)
    ends = torch.tensor([torch.iinfo(torch.int64).min, -5, -4, 3, 4, torch.iinfo(torch.int64).max])
    margin = condition.margin(op, {"x": torch.zeros(4, 2), "indices": ends})
    assert (margin < 0).tolist() == [True, True, False, False, True, True]


UNREAD = {
    "Gather": "{ l = Gather(x, i) y = Neg(x) }",
    "Slice": "<int64[1] k = {0}> { j = Gather(i, k) l = Slice(x, k, j, k, j) y = Neg(x) }",
    "Div": "{ l = Div(i, i) y = Neg(x) }",
    "If": """{ s = ReduceSum<keepdims = 0>(x) z = Sub(s, s) c = Greater(s, z)
        y = If(c) <then_branch = t () => (float[2] a) { l = Gather(x, i) a = Neg(x) },
                   else_branch = e () => (float[2] b) { k = Gather(x, i) b = Abs(x) }> }""",
    "Loop": """<int64 k = {3}> { y = Loop(k, , x) <body = b (int64 it, bool go, float[2] s) => (bool on, float[2] r)
        { on = Identity(go) l = Gather(s, i) r = Neg(s) }> }""",
}
"""Nodes that ONNX Runtime runs although nothing reads their results."""


@pytest.mark.few(5)
@pytest.mark.parametrize("name", UNREAD)
@pytest.mark.parametrize(("low", "high", "verdict"), [(0, 2, "violated"), (1, 1, "holds")])
def test_what_nothing_reads_ends_a_run_all_the_same(name: str, low: int, high: int, verdict: str) -> None:
    model = _parse(f"g (float[2] x, int64[2] i) => (float[2] y) {UNREAD[name]}")
    box = {"x": (-1.0, 1.0), "i": (low, high)}
    assert rf.check(model, box=box, runtime="onnxruntime", self_check=False).verdict == verdict


_FITTING = {
    "Slice axes": [0, 1],
    "Unsqueeze": [0, 1],
    "Squeeze": [0, 2],
    "Split": [1, 3],
    "ReduceSum": [0, 1],
}
"""What can be stored where ones are refused."""


@pytest.mark.parametrize("name", STEERED)
def test_what_a_model_stores_is_no_condition(name: str) -> None:
    model = _parse(STEERED[name])
    (steering,) = [value for value in model.graph.input if value.name == "i"]
    model.graph.input.remove(steering)
    kind = steering.type.tensor_type
    shape = [dim.dim_value for dim in kind.shape.dim]
    stored = np.array(_FITTING.get(name, np.ones(shape)), onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    model.graph.initializer.append(onnx.numpy_helper.from_array(stored, "i"))
    assert not any(list_refusals(op) for op in read(model).nodes)


def test_a_dead_slice_is_no_node_unless_inputs_steer_it() -> None:
    text = """g (float[4] x, int64[1] i) => (float[4] y) <int64[1] k = {{1}}, int64[1] a = {{0}}> {{
        l = Slice(x, i, k, a, {}) y = Neg(x) }}"""
    box = {"i": np.ones(1, np.int64)}
    nodes = {by: read(_parse(text.format(by)), sample=box).nodes for by in "ki"}
    assert {by: sorted(spec_of(op).op_type for op in ops) for by, ops in nodes.items()} == {
        "k": ["Neg"],
        "i": ["Neg", "Slice"],
    }
