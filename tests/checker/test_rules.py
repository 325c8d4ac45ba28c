"""The checker's rules enclose what ONNX Runtime computes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from ranum_falsify.checker.bounds import Bounds
from ranum_falsify.checker.check import bound
from ranum_falsify.checker.node import RULES as OPERATORS
from ranum_falsify.checker.node import NodeView
from tests.domain.soundness import retyped
from tests.operators.harness import OperatorCase, Spread, model_of
from tests.operators.test_operators import CASES

BY_OPERATOR = {
    key: [case for case in CASES if ".".join(filter(None, (case.domain, case.op_type))) == key] for key in OPERATORS
}
X = Spread((2, 3))
WHOLE = Spread((2, 3), np.int32, -5, 5)
BY_OPERATOR |= {
    **{key: [OperatorCase(op_type=key, inputs=[X])] for key in ("Ceil", "Floor", "Round", "IsNaN", "IsInf")},
    "Mod": [OperatorCase(op_type="Mod", inputs=[WHOLE, np.array(3, np.int32)])],
}
UNTRIED = {"SimplifiedLayerNormalization", "com.microsoft.DequantizeLinear", "com.microsoft.QuantizeLinear"}
"""They are those of another name, or none that a model of a user has."""
SCALES = (1.0, 1.0, 1e-3, 30.0, 1e-38)


def random_box(case: OperatorCase, rng: np.random.Generator) -> list[Bounds | None]:
    """Bounds of a case's operands: points, narrow and wide boxes."""
    draws = [case.arrays(int(rng.integers(1000))) for _ in range(2)]
    scale, share = rng.choice(SCALES), rng.choice([0.0, 1e-3, 1.0])
    found: list[Bounds | None] = []
    for given, a, b in zip(case.inputs, *draws, strict=True):
        if a is None or b is None:
            found.append(None)
        elif not isinstance(given, Spread):
            found.append(Bounds(a, a))
        elif a.dtype.kind == "f":
            low, high = a * a.dtype.type(scale), (a + (b - a) * a.dtype.type(share)) * a.dtype.type(scale)
            found.append(Bounds(np.minimum(low, high), np.maximum(low, high)))
        elif rng.random() < 0.5 or a.dtype.kind not in "iu":
            found.append(Bounds(a, a))
        else:
            found.append(Bounds(np.minimum(a, b), np.maximum(a, b)))
    return found


def points(box: list[Bounds | None], rng: np.random.Generator, count: int) -> Iterator[list[np.ndarray | None]]:
    """Points of a box: corners, and others."""
    for number in range(count):
        yield [None if one is None else _point(one, rng, number) for one in box]


def _point(one: Bounds, rng: np.random.Generator, number: int) -> np.ndarray:
    pick = rng.random(one.lower.shape)
    if number % 2 or one.dtype.kind not in "f":
        return np.where(pick < 0.5, one.lower, one.upper)
    inner = one.lower.astype(np.float64) * (1 - pick) + one.upper.astype(np.float64) * pick
    return np.asarray(np.clip(inner.astype(one.dtype), one.lower, one.upper))


def named(box: list[Bounds | None]) -> tuple[list[Bounds | None], int]:
    """The same with each element of a float that varies as a direction, and how many there are."""
    found, count = list[Bounds | None](), 0
    for one in box:
        if one is not None and one.is_float and not one.is_point:
            one, count = one.named(count)
        found.append(one)
    return found, count


def place_of(box: list[Bounds | None], values: list[np.ndarray | None], count: int) -> np.ndarray:
    """Where a point of a box lies along each direction."""
    place = np.zeros(count)
    for one, x in zip(box, values, strict=True):
        if one is not None and one.rest is not None and x is not None:
            planes = one.planes.reshape(len(one.planes), -1)
            at, element = np.nonzero(planes)
            far = x.astype(np.float64).reshape(-1)[element] - one.rest.ball[0].reshape(-1)[element]
            place[at] = far / planes[at, element]
    return place


def faults_of(case: OperatorCase, rng: np.random.Generator, *, forms: bool, optimised: bool) -> tuple[int, list[str]]:
    """How often a rule said something, and what was wrong with it."""
    box, count = random_box(case, rng), 0
    if forms:
        box, count = named(box)
    model, feeds = model_of(case, [None if one is None else one.lower for one in box])
    (proto,) = model.graph.node
    found = bound(NodeView(proto, model.opset_import), box)
    if found is None:
        return 0, []
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    except Exception:  # ONNX Runtime has no kernel of that type
        return 0, []
    faults = []
    for values in points(box, rng, 6):
        by_name = dict(zip(proto.input, values, strict=True))
        given: dict[str, Any] = {name: by_name[name] for name in feeds}
        try:
            made = session.run(None, given)
        except Exception as error:
            if "not support" in str(error):
                return 0, []
            raise
        for name, y, said in zip(
            filter(None, proto.output),
            made,
            [one for one, output in zip(found, proto.output, strict=False) if output],
            strict=False,
        ):
            if said is None:
                continue
            inside = y.dtype == said.dtype and y.shape == said.lower.shape
            if not (inside and bool((said.lower <= y).all() and (y <= said.upper).all())):
                faults.append(f"{case.id} {name}: {y.dtype}{y.shape} {said.dtype}{said.lower.shape} {y} {said}"[:600])
            if inside and said.rest is not None:
                place = place_of(box, values, count)[: len(said.planes)]
                far = y.astype(np.float64) - np.tensordot(place, said.planes, 1)
                own = 1e-12 * said.spread.size  # of computing it here
                if not ((said.rest.lower - own <= far) & (far <= said.rest.upper + own)).all():
                    faults.append(f"{case.id} {name}: {far} is left of {y}, not in {said.rest}"[:600])
    return 1 + any(one is not None and one.rest is not None for one in found), faults


FOLLOWED = frozenset(
    "Abs Add Atan Clip Concat Conv ConvTranspose Div Erf Exp Gemm HardSigmoid LeakyRelu Log MatMul Max Mean Min Mul Pad"
    " Pow Reciprocal ReduceMean ReduceSum Relu Reshape Sigmoid Slice Softplus Sqrt Sub Sum Tanh Transpose Where"
    " AveragePool GlobalAveragePool BatchNormalization Gather com.microsoft.FusedConv com.microsoft.FusedGemm".split()
)
"""Operators whose results are linear forms where their operands are."""


@pytest.mark.few(60)
@pytest.mark.parametrize("key", sorted(BY_OPERATOR.keys() - UNTRIED))
def test_rules_enclose_what_onnx_runtime_computes(key: str) -> None:
    rng = np.random.default_rng(0)
    cases = [
        form
        for case in BY_OPERATOR[key]
        for form in (case, *(retyped(case, dtype) for dtype in (np.float16, np.float64)))
        if form is not None and form.oracle == "onnxruntime"
    ]
    said = followed = 0
    for number in range(24):
        case = cases[number // 2 * len(cases) // 12]
        count, faults = faults_of(case, rng, forms=number % 2 == 1, optimised=number % 4 < 2)
        assert not faults, "\n".join(faults)
        said, followed = said + bool(count), followed + (count > 1)
    assert said, f"no case of {key} is bounded"
    assert followed or key not in FOLLOWED, f"no case of {key} is followed as a linear form"


def test_a_variance_that_cancels_beside_a_scale_that_broadcasts_is_not_shown() -> None:
    node = onnx.helper.make_node("LayerNormalization", ["x", "s"], ["y"])
    view = NodeView(node, [onnx.helper.make_opsetid("", 17)])
    x = Bounds(np.full((1, 1027), 1e6, np.float32), np.full((1, 1027), 1e7, np.float32))
    assert bound(view, [x, Bounds.of(np.ones(1027, np.float32))]) is not None
    assert bound(view, [x, Bounds.of(np.ones(1, np.float32))]) is None


def view_of(op_type: str, inputs: int, opset: int = 18, domain: str = "", **attributes: Any) -> NodeView:
    proto = onnx.helper.make_node(op_type, [f"x{i}" for i in range(inputs)], ["y"], domain=domain, **attributes)
    return NodeView(proto, [onnx.helper.make_opsetid("", opset)])


def test_a_share_may_be_whole_where_the_greatest_may_be_far_below_itself() -> None:
    x = Bounds(np.array([-1000, -2000], np.float32), np.array([1000, 0], np.float32))
    found = bound(view_of("Softmax", 1), [x])
    assert found is not None and found[0] is not None
    assert found[0].upper.tolist() == [1, 1], "at (-1000, 0), the second share is 1"


def test_the_attributes_of_an_old_clip_are_no_straight_line() -> None:
    x, _ = Bounds(np.full(1, -3.0), np.full(1, 3.0)).named(0)
    (found,) = bound(view_of("Clip", 1, 7, min=-1.0), [x]) or [None]
    assert found is not None and found.rest is not None
    left = -1.0 - found.planes[:, 0] @ [-2 / 3]  # of the result at -2
    assert found.rest.lower <= left <= found.rest.upper


def test_what_stands_beside_a_convolution_is_part_of_its_sum() -> None:
    x, w, z = np.full((1, 3, 3, 3), 1e-3, np.float32), np.ones((1, 3, 3, 3), np.float32), np.full((1, 1, 1, 1), 1e8)
    operands = [Bounds.of(x), Bounds.of(w), None, Bounds.of(z.astype(np.float32))]
    (found,) = bound(view_of("FusedConv", 4, domain="com.microsoft"), operands) or [None]
    assert found is not None
    assert found.upper - found.lower > 2 * 27 * 2.0**-24 * 1e8, "each of 27 products may be lost beside it"


def test_a_shape_that_shape_inference_denies_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Bounds.of(np.ones((2, 3), np.float32))
    assert bound(view_of("Relu", 1), [x]) is not None
    monkeypatch.setattr("onnx.reference.ReferenceEvaluator.run", lambda *_: [np.ones((2, 1, 3), np.float32)])
    assert bound(view_of("Relu", 1), [x]) is None


def test_pairs_of_products_with_signed_weights_may_be_cut_off_at_16_bits() -> None:
    operands = [Bounds.of(np.full((1, 2), 255, np.uint8)), Bounds.of(np.full((2, 1), 127, np.int8))]
    (found,) = bound(view_of("MatMulInteger", 2), operands) or [None]
    assert found is not None
    assert (found.lower <= 2**15 - 1).all() and (found.upper >= 2 * 255 * 127).all()
    (found,) = bound(view_of("MatMulInteger", 2), [operands[0], Bounds.of(np.full((2, 1), 127, np.uint8))]) or [None]
    assert found is not None and found.upper - found.lower < 4


def test_the_magnitude_of_the_least_integer_is_not_believed() -> None:
    x = Bounds(np.full(2, -127, np.int8), np.full(2, -100, np.int8))
    (found,) = bound(view_of("Abs", 1), [x]) or [None]
    assert found is not None and (found.lower.tolist(), found.upper.tolist()) == ([100, 100], [127, 127])
    assert bound(view_of("Abs", 1), [Bounds(x.lower - np.int8(1), x.upper)]) is None
