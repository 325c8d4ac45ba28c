"""Models that are just not safe, by what a kernel of ONNX Runtime does in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import ranum_falsify as rf

Array = np.ndarray[Any, Any]
DTYPES: dict[str, type[np.floating[Any]]] = {"float32": np.float32, "float16": np.float16}


def make(nodes: str, inputs: Mapping[str, Array], constants: Mapping[str, Array], **attributes: Any) -> ModelProto:
    """Return a model of one node per line, `y = Op(a, b)`; the first has the attributes, others those by their name."""
    made: list[NodeProto] = []
    for line in nodes.strip().splitlines():
        result, _, call = line.strip().partition(" = ")
        name, _, operands = call.rstrip(")").partition("(")
        domain, _, op_type = name.rpartition("::")
        first = {} if made else {key: value for key, value in attributes.items() if not isinstance(value, dict)}
        given = attributes.get(result) or first
        made.append(helper.make_node(op_type, operands.split(", "), [result], domain=domain, name=result, **given))
    graph = helper.make_graph(
        made,
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(made[-1].output[0])],
        [numpy_helper.from_array(x, name) for name, x in constants.items()],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def assert_open(model: ModelProto, box: Mapping[str, Any], point: Mapping[str, Array]) -> None:
    """The model in which a node fails at a point of the box, on ONNX Runtime, is not proved."""
    shown = ModelProto.FromString(model.SerializeToString())
    del shown.graph.output[:]
    shown.graph.output.extend(helper.make_empty_tensor_value_info(node.output[0]) for node in model.graph.node)
    # What is shown is not fused with others.
    sessions = [onnxruntime.InferenceSession(m.SerializeToString()) for m in (model, shown)]
    # Another version of ONNX Runtime may do otherwise, and then it may hold.
    if not all(np.isfinite(y).all() for session in sessions for y in session.run(None, dict(point))):
        found = rf.check(model, box=dict(box), n_starts=0, self_check=False)
        assert found.verdict != "holds"


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [0, 1])
def test_a_hidden_key_weighs_where_scores_reach_the_largest_number(dtype: str, causal: int) -> None:
    kind = DTYPES[dtype]
    large = kind(3e38) if dtype == "float32" else kind(6e4)
    constants = {
        "k": np.array([[[[-1], [1]]]], kind),
        "v": np.array([[[[1], [-1]]]], kind),
        "half": np.array(0.5, kind),
        "mask": np.array([[True, False]]),
    }
    operands = "q, k, v" if causal else "q, k, v, mask"
    model = make(
        f"a = Attention({operands})\nz = Sub(a, half)\nl = Log(z)",
        {"q": np.zeros((1, 1, 1, 1), kind)},
        constants,
        scale=1.0,
        is_causal=causal,
    )
    assert_open(model, {"q": (0, float(large))}, {"q": np.full((1, 1, 1, 1), large)})


def test_the_last_of_fewer_queries_than_keys_may_see_all_of_them() -> None:
    constants = {
        "k": np.array([[[0.5], [1]]], np.float32),
        "v": np.array([[[1], [-1]]], np.float32),
        "half": np.array(0.5, np.float32),
    }
    model = make(
        "a = com.microsoft::MultiHeadAttention(q, k, v)\nz = Sub(a, half)\nl = Log(z)",
        {"q": np.zeros((1, 1, 1), np.float32)},
        constants,
        num_heads=1,
        unidirectional=1,
        mask_filter_value=float("-inf"),
    )
    assert_open(model, {"q": (-60, 1)}, {"q": np.ones((1, 1, 1), np.float32)})


def test_inverses_in_half_precision_are_open() -> None:
    point = np.array([[6e4, 0, 5e4], [-19200, 6e4, 5e4], [0, 0, 6e4]], np.float16)
    low, high = np.minimum(point, np.diag([6e4] * 3)), np.maximum(point, np.diag([6e4] * 3))
    low[1, 0], high[1, 0] = -19200, 0
    model = make("y = com.microsoft::Inverse(x)", {"x": point}, {})
    assert_open(model, {"x": (low.astype(np.float16), high.astype(np.float16))}, {"x": point})


def test_experts_in_half_precision_without_normalised_weights_may_give_nothing() -> None:
    kind = np.float16
    inputs = {"x": np.ones((1, 4), kind), "r": np.zeros((1, 1), kind), "p": np.zeros((1, 4), kind)}
    constants = {"w1": np.ones((1, 4, 4), kind), "w2": np.ones((1, 4, 4), kind), "big": np.full((1,), 100, kind)}
    model = make(
        "m = com.microsoft::MoE(x, r, w1, , w2)\ns = Add(m, p)\nl = Log(s)\ny = Max(l, big)",
        inputs,
        constants,
        k=1,
        activation_type="relu",
    )
    assert_open(model, {"x": (1, 1.001), "r": (0, 0.1), "p": (0, 0.5)}, inputs)


def test_a_flag_that_is_added_inside_a_long_product_is_rounded_with_its_terms() -> None:
    constants = {
        "w": np.ones((768, 1), np.float32),
        "c": np.array(1e8, np.float32),
        "top": np.array(100000016, np.float32),
    }
    model = make(
        "f = Cast(z)\nh = Mul(f, c)\np = MatMul(x, w)\nd = Add(p, h)\ne = Sub(top, d)\ny = Sqrt(e)",
        {"x": np.zeros((1, 768), np.float32), "z": np.zeros((1,), np.bool_)},
        constants,
        to=TensorProto.FLOAT,
    )
    high = np.float32(0.01585937)
    point = {"x": np.full((1, 768), high), "z": np.ones((1,), np.bool_)}
    assert_open(model, {"x": (0, float(high)), "z": (0, 1)}, point)


@pytest.mark.parametrize("size", [1e20, -3e38])
def test_masked_elements_vanish_beside_large_numbers_too(size: float) -> None:
    constants = {
        "mask": np.array([[0, 0, -np.inf]], np.float32),
        "chosen": np.array([[0], [1], [0]], np.float32),
        "most": np.array(0.4, np.float32),
    }
    low = np.array([[size, size, 0]], np.float32)
    high = np.array([[size * (2 if size > 0 else 0.5), size, 0]], np.float32)
    model = make(
        "m = Add(x, mask)\np = Softmax(m)\nq = MatMul(p, chosen)\nd = Sub(most, q)\nz = Sqrt(d)", {"x": low}, constants
    )
    assert_open(model, {"x": (low, high)}, {"x": low})


def test_small_elements_beside_large_ones_keep_their_planes_apart() -> None:
    constants = {
        "scale": np.ones(2, np.float32),
        "half": np.array(0.5, np.float32),
        "chosen": np.array([[0], [1]], np.float32),
        "least": np.array(8.1007585e-31, np.float32),
    }
    low = np.array([[3.886304e-6, -1.6365168e-30]], np.float32)
    model = make(
        "y = RMSNormalization(x, scale)\np = Mul(y, half)\nd = MatMul(p, chosen)\ns = Add(d, least)\nz = Sqrt(s)",
        {"x": low},
        constants,
        epsilon=1.0,
    )
    assert_open(model, {"x": (low, abs(low))}, {"x": low})


_ZERO = np.zeros(1, np.uint8)
_SCALES: dict[str, Array] = {"s": np.full(1, 1e10, np.float32), "t": np.ones(1, np.float32), "p": _ZERO}
_LARGE = np.array([[1e33, -1e33], [1e33, 1e33]], np.float32)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("nodes", "x", "constants", "attributes"),
    [
        ("y = com.microsoft::DynamicQuantizeMatMul(x, w, s, p)", _LARGE, {"w": np.zeros((2, 1), np.uint8)}, {}),
        (
            "y = com.microsoft::DynamicQuantizeLSTM(x, w, r, , , , , , s, p, t, p)",
            np.stack([_LARGE, _LARGE]),
            {"w": np.zeros((1, 2, 4), np.uint8), "r": np.zeros((1, 1, 4), np.uint8)},
            {"hidden_size": 1},
        ),
        (
            "y = com.microsoft::MatMulNBits(x, w, s, p)",
            np.full((2, 32), 1e33, np.float32),
            {"w": np.zeros((1, 1, 16), np.uint8)},
            {"K": 32, "N": 1, "bits": 4, "block_size": 32, "accuracy_level": 4},
        ),
    ],
)
def test_a_product_of_scales_overflows_before_it_meets_integers_of_0(
    nodes: str, x: Array, constants: Mapping[str, Array], attributes: Mapping[str, Any]
) -> None:
    model = make(nodes, {"x": x}, {**_SCALES, **constants}, **attributes)
    assert_open(model, {"x": (-1e33, 1e33)}, {"x": x})


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("sizes", "place", "padding"),
    [((1, 2000), 17000, "border"), ((3, 3), 2e7, "reflection"), ((3, 3, 3), 2e7, "border")],
)
def test_elements_read_at_places_beyond_the_integers_of_float32_vanish(
    sizes: tuple[int, ...], place: float, padding: str
) -> None:
    x = np.ones((1, 1, *sizes), np.float32)
    grid = np.full((1, *[1] * len(sizes), len(sizes)), place, np.float32)
    model = make("t = GridSample(x, g)\ny = Reciprocal(t)", {"x": x, "g": grid}, {}, padding_mode=padding)
    assert_open(model, {"x": (1, 2), "g": (-place, place)}, {"x": x, "g": grid})
    near = rf.check(model, box={"x": (1, 2), "g": (-1000, 1000)}, n_starts=0, self_check=False)
    assert near.verdict == "holds"


def test_powers_that_vanish_make_local_responses_0() -> None:
    x = np.full((1, 1, 1, 1), 2.1e11, np.float32)
    model = make("t = LRN(x)\ny = Reciprocal(t)", {"x": x}, {}, alpha=1.0, beta=2.0, size=1, bias=1.0)
    assert_open(model, {"x": (1e10, 2.1e11)}, {"x": x})


@pytest.mark.parametrize("beta", [1e38, -1e10])
def test_local_responses_with_a_large_exponent_are_not_bounded(beta: float) -> None:
    x = np.ones((1, 1, 1, 1), np.float32)
    model = make("y = LRN(x)", {"x": x}, {}, alpha=1.0, beta=beta, size=1, bias=1.0)
    assert rf.check(model, box={"x": (-1, 1)}, n_starts=0, self_check=False).verdict == "unknown"


def test_the_least_integer_passes_a_test_of_its_absolute_value() -> None:
    constants = {"five": np.array([5], np.int32), "six": np.array([6], np.float32), "z": np.zeros(1, np.float32)}
    nodes = "a = Abs(x)\nc = LessOrEqual(a, five)\nf = Cast(x)\nw = Where(c, f, z)\np = Add(w, six)\ny = Sqrt(p)"
    model = make(nodes, {"x": np.zeros(1, np.int32)}, constants, f={"to": TensorProto.FLOAT})
    limits = np.iinfo(np.int32)
    assert_open(model, {"x": (limits.min, limits.max)}, {"x": np.array([limits.min], np.int32)})
    assert rf.check(model, box={"x": (limits.min + 1, limits.max)}, n_starts=0, self_check=False).verdict == "holds"


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_integers_are_their_absolute_values(dtype: type[np.integer[Any]]) -> None:
    constants = {"five": np.array([5], dtype), "three": np.full(1, 3, np.float32), "far": np.full(1, 9, np.float32)}
    nodes = "a = Abs(x)\nc = LessOrEqual(a, five)\nf = Cast(x)\nw = Where(c, f, far)\np = Sub(w, three)\ny = Sqrt(p)"
    model = make(nodes, {"x": np.zeros(1, dtype)}, constants, f={"to": TensorProto.FLOAT})
    assert_open(model, {"x": (0, 100)}, {"x": np.zeros(1, dtype)})
    assert rf.check(model, box={"x": (3, 100)}, n_starts=0, self_check=False).verdict == "holds"


@pytest.mark.parametrize(("dtype", "number"), [(np.int32, 2**24), (np.int64, 2**40)])
def test_large_integers_are_told_apart_where_one_is_excluded(dtype: type[np.integer[Any]], number: int) -> None:
    constants = {"k": np.array([number], dtype), "next": np.array([number + 1], dtype), "one": np.ones(1, np.float32)}
    # The test of z hides it from a trial at the ends and the centre.
    nodes = "c = Equal(x, k)\nd = Sub(x, next)\nf = Cast(d)\nw = Where(c, one, f)\nt = Equal(z, next)\n"
    point = {"x": np.array([number + 1], dtype), "z": np.array([number + 1], dtype)}
    model = make(f"{nodes}v = Where(t, w, one)\ny = Log(v)", point, constants, f={"to": TensorProto.FLOAT})
    assert_open(model, {"x": (number + 1, number + 5), "z": (number, number + 9)}, point)
