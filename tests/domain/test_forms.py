"""Forms of all rows against ONNX Runtime: a few of each, and those in which rows were wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.forms import check_form, describe
from tests.operators.forms.walk import Form
from tests.operators.harness import OperatorCase, Spread
from tests.operators.test_operators import CASES

MICROSOFT, LEARNED = "com.microsoft", "ai.onnx.ml"
X, LAST = Spread((2, 3, 4)), np.array([-1])
AS_FLOAT, HALF, STEP = Spread((3, 5), "uint8", 0, 255), np.float16(0.05), np.float32(0.07)
TINY = np.array([[1, -1, 0.3, -0.2], [3, 2, 1, 0]], np.float32) * np.float32(1e-30)
MOST = float(np.finfo(np.float32).max)
FINE = np.array([[[1.0, 1.0, 1.0, 1.0, -1.0]]]) * 1e-50
MIDDLE = np.linspace(-0.5, 0.5, 18, dtype=np.float32).reshape(1, 3, 3, 2)
LARGE = 2**60
SIZES = None, None, np.array([1, 1, 3, 4])


def form(
    op_type: str,
    *inputs: Any,
    opset: int = 21,
    domain: str = "",
    outputs: int = 1,
    constants: frozenset[int] | None = None,
    **attributes: Any,
) -> Any:
    name = ", ".join(f"{key}={value}" for key, value in attributes.items())[:60]
    case = OperatorCase(
        op_type=op_type,
        inputs=inputs,
        attributes=attributes,
        opset=opset,
        domain=domain,
        outputs=outputs,
        constants=constants,
        own_opset=4 if domain == LEARNED else 1,
        name=name,
    )
    return pytest.param(case, id=f"{case.id} {[np.shape(x) if x is not None else None for x in inputs]}")


def like(op_type: str, name: str, **attributes: Any) -> OperatorCase:
    """Return a case of the tables with some attributes of others; None removes one."""
    case = next(case for case in CASES if case.op_type == op_type and case.name == name)
    merged = {key: value for key, value in (dict(case.attributes) | attributes).items() if value is not None}
    return replace(case, attributes=merged)


WRONG = [
    # flags other than 0 and 1
    form("TopK", Spread((4, 5)), np.array([2]), largest=-4, outputs=2),
    form("TopK", Spread((6,)), np.array([5]), sorted=-2, outputs=2),
    form("ReduceSum", X, np.array([1]), keepdims=-2),
    form("ReduceSum", X, keepdims=1, noop_with_empty_axes=5),
    form("Cast", Spread((17,), "uint16", 0, 9), to=5, saturate=4),
    form("RotaryEmbedding", Spread((2, 2, 3, 4)), Spread((2, 3, 2)), Spread((2, 3, 2)), interleaved=2, opset=23),
    # factors that are no numbers
    form("LeakyRelu", X, alpha=float("nan")),
    form("Elu", X, alpha=float("nan")),
    form("Scaler", Spread((1, 3)), scale=[1.0, 2.0, 3.0], offset=[float("nan")] * 3, domain=LEARNED),
    # differences that overflow before a factor of 0
    form("Scaler", Spread((1, 2), low=-1e33, high=-1e32), scale=[0.0, 1.0], offset=[MOST, 0.0], domain=LEARNED),
    # exponentials that overflow before a small factor
    form("Celu", Spread((8,), low=-5.6, high=-5.55), alpha=-0.0627, opset=12),
    # thresholds that half precision does not have
    form("ThresholdedRelu", np.array([np.inf, 1], np.float16), alpha=MOST, opset=10),
    # sums of no terms
    form("TransposeMatMul", np.zeros((1, 3, 0), np.float32), np.zeros((3, 0, 1), np.float32), domain=MICROSOFT),
    # sums that overflow beside a bias that is infinite
    form(
        *("ConvTranspose", np.full((1, 1, 2), 300, np.float16), np.full((1, 1, 2), -300, np.float16)),
        np.array([np.inf], np.float16),
        pads=[0, 1],
        constants=frozenset(),
    ),
    # sums that overflow before a factor that is repeated along them makes them small
    *(
        form("Einsum", Spread((2, 1), dtype, -0.2, 0.2), Spread((3, 3), dtype, 0.7 * most, most), equation="ij,jk->ik")
        for dtype, most in ((np.float32, MOST), (np.float16, 65000))
    ),
    # words and powers that mean nothing
    form("NegativeLogLikelihoodLoss", Spread((3, 4)), np.array([1, 0, 3]), reduction="min"),
    form("SoftmaxCrossEntropyLoss", Spread((3, 4)), np.array([1, 0, 3]), reduction="min"),
    form("GlobalLpPool", X, p=0),
    form("LpPool", X, p=0, kernel_shape=[2]),
    form("QuantizeLinear", Spread((40,), low=-9, high=9), np.float32(0.3), precision=3, opset=23),
    form("Selu", np.array([np.inf], np.float32), gamma=0.0),
    form("Split", Spread((8,)), num_outputs=4, outputs=3),
    # what kernels read otherwise
    form("Clip", Spread(()), np.ones(1, np.float32)),
    form("ReverseSequence", Spread((3, 5)), np.array([2, 1, 3]), time_axis=1, batch_axis=-5),
    form("Squeeze", Spread((2, 1, 3, 1)), np.zeros(0, np.int64)),
    form("AffineGrid", Spread((5, 2, 3), np.float16), np.array([2, 3, 3, 4]), opset=20),
    form("AffineGrid", Spread((2, 2, 3), np.float16), np.array([0, 3, 3, 4]), opset=20),
    form("BatchNormalization", X, *[Spread((3,), low=1)] * 4, opset=15, outputs=3),
    form("BatchNormalization", Spread((2, 3, 0)), *[Spread((3,), low=1)] * 4, opset=15, outputs=3, training_mode=1),
    # sums that overflow before they divide
    form(
        *("BatchNormalization", X, Spread((3,), low=1), np.zeros(3, np.float32), np.zeros(3, np.float32)),
        np.array([1e32, 1e33, 1e34], np.float32),
        epsilon=MOST,
        opset=15,
    ),
    # sizes of 0 that a reshape takes for those of its operand
    form("GroupNormalization", Spread((2, 0, 0, 2)), Spread((2,)), Spread((2,)), num_groups=2, opset=18),
    # reductions of nothing
    *(
        form(op_type, Spread((2, 3, 0)), axes=[-1, 0], opset=13)
        for op_type in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMean", "ReduceSumSquare")
    ),
    form("ReduceL1", Spread((2, 3, 0)), np.array([-1, 0]), opset=18),
    form("ReduceLogSumExp", Spread((2, 3, 0)), np.array([-1, 0]), opset=18),
    form("ReduceLogSum", Spread((2, 0, 3), np.int64), np.array([-3]), opset=18, constants=frozenset()),
    form("ReduceMean", Spread((0, 0, 3)), np.array([2**63 - 2]), opset=18, constants=frozenset({0})),
    form("RMSNormalization", Spread((2, 3, 4)), Spread((4,), np.float16), opset=23, stash_type=-2),
    form("LpNormalization", Spread((2, 0, 4)), axis=1),
    form("PRelu", Spread((0, 4)), np.full(4, np.inf, np.float32), opset=16, constants=frozenset({0})),
    # statistics: in float32 whatever the type, and of squares that overflow
    form("LayerNormalization", Spread((2, 4), float), Spread((4,), float), outputs=2, stash_type=1 - 2**63),
    form("LayerNormalization", np.array([[8e307, -8e307, 0], [9.1e307, 1e307, 0]]), np.array(1.0), outputs=3),
    # what underflows before it is multiplied by a large number
    form("RMSNormalization", TINY, np.full(4, 1e30, np.float32), epsilon=1e30, opset=23),
    form("LayerNormalization", TINY, np.full(4, 1e30, np.float32), epsilon=1e30),
    form(
        "InstanceNormalization",
        TINY[None] * np.float32(1e24) * np.float32(1e24),
        np.full(2, 1e-28, np.float32),
        np.zeros(2, np.float32),
    ),
    # what underflows where float64 is computed in float32
    form("GroupNormalization", FINE, np.array([1e50]), np.zeros(1), num_groups=1, constants=frozenset()),
    form("Shrink", FINE, lambd=0.0, bias=-2.0, constants=frozenset()),
    form("Shrink", FINE, lambd=0.0, bias=0.0, constants=frozenset()),
    # weighted neighbours so small that each product is rounded to denormal numbers
    *(
        form(
            "GridSample",
            np.full((1, 1, 5, 5), 1e-45, np.float32),
            MIDDLE,
            mode=mode,
            opset=20,
            constants=frozenset({1}),
        )
        for mode in ("linear", "cubic")
    ),
    # logarithms of exponentials, which are not exact
    form("ReduceLogSumExp", np.full((2, 3), 2, np.uint64), None, opset=18, noop_with_empty_axes=1),
    # statistics of groups, scaled by whatever has as many elements as there are channels
    form("GroupNormalization", Spread((2, 4, 4, 2)), Spread((1, 4)), Spread((4,)), num_groups=2),
    form("GroupNormalization", Spread((2, 4, 1, 2)), Spread((1, 4)), np.float32(0.5), num_groups=2),
    # differences of integers that wrap, with scales of blocks
    form(
        "DequantizeLinear",
        np.full((2, 6), -(2**31), np.int32),
        np.array([[0.5, 1.4], [0.3, 0.9]], np.float32),
        np.array([[3, -5], [7, 0]], np.int32),
        axis=1,
        block_size=3,
        opset=21,
        constants=frozenset({0}),
    ),
    # differences that wrap by less than float64 tells
    form("Sub", *[Spread((9,), np.uint64, LARGE, LARGE + 9)] * 2),
    # a start so late that places after it are beyond all integers
    form("TensorScatter", Spread((1, 1, 5, 1)), Spread((1, 1, 2, 1)), np.array([2**63 - 1]), mode="circular", opset=24),
    # regions that end before they start, of which kernels would take a negative number of samples
    form(
        *("RoiAlign", Spread((1, 1, 4, 4)), np.array([[0, 0, 2, 1]], np.float32), np.array([0])),
        sampling_ratio=0,
        opset=16,
        constants=frozenset({2}),
    ),
    # sizes that inputs compute
    form("Resize", np.full((1, 1, 2, 2), np.inf, np.float32), *SIZES, opset=18, constants=frozenset()),
    form(
        *("Resize", Spread((1, 1, 3, 2)), np.linspace(0, 0.5, 8, dtype=np.float32), *SIZES[1:]),
        coordinate_transformation_mode="tf_crop_and_resize",
        constants=frozenset({1}),
    ),
    # tables
    form("LabelEncoder", Spread((4,)), keys_floats=[1.0], values_int64s=[5], default_string="a", domain=LEARNED),
    form("LabelEncoder", np.ones(4, np.float32), keys_floats=[1.0], values_floats=[float("inf")], domain=LEARNED),
    form(
        *("LabelEncoder", Spread((4,), np.int64, LARGE, LARGE + 9)),
        keys_int64s=[LARGE + 1, LARGE + 4],
        values_int64s=[5, 6],
        domain=LEARNED,
    ),
    form(
        "OneHotEncoder",
        np.full(3, LARGE + 1),
        cats_int64s=[LARGE + 1, 0],
        zeros=0,
        domain=LEARNED,
        constants=frozenset(),
    ),
    form(
        "OneHotEncoder", np.array([2**24], np.float32), cats_int64s=[2**24 + 1], domain=LEARNED, constants=frozenset()
    ),
    form("OneHotEncoder", Spread((4,), low=0), cats_strings=["a"], domain=LEARNED),
    # types and forms of ONNX Runtime's own operators
    form("FastGelu", Spread((2, 5), np.float64), domain=MICROSOFT),
    form("BiasGelu", Spread((90, 5), np.float16), Spread((5,), np.float16), domain=MICROSOFT),
    form("MatMulIntegerToFloat", AS_FLOAT, Spread((5, 4), "int8"), *[np.asarray(HALF)] * 2, domain=MICROSOFT),
    form(
        *("QLinearConcat", STEP, np.uint8(9), np.array([100, 200], np.uint8), np.float32(0.05), np.uint8(128)),
        *(np.array([77], np.uint8), STEP, np.full(3, 9, np.uint8)),
        axis=0,
        constants=frozenset({0, 1, 3, 4, 6, 7}),
        domain=MICROSOFT,
    ),
    # scales that kernels refuse when they run
    form(
        *("QLinearGlobalAveragePool", Spread((1, 2, 4), "uint8", 0, 200), Spread((), low=0), np.uint8(0)),
        *(np.float32(1), np.uint8(0)),
        domain=MICROSOFT,
    ),
    form(
        "SkipLayerNormalization",
        *[Spread((n, 3, 8), np.float16) for n in (1, 2)],
        Spread((8,), np.float16),
        domain=MICROSOFT,
    ),
]

CHANGED = {
    "QLinearSoftmax": like("QLinearSoftmax", "first", opset=2**63 - 1),
    "QMoE": like("QMoE", "8 bits", swiglu_fusion=3),
    "MatMulNBits": like("MatMulNBits", "8 bits", bits=2**63 - 2),
    "RNN, negative": like("RNN", "scaled-tanh", clip=-0.5),
    "RNN, 0": like("RNN", "scaled-tanh", clip=0.0),
}


def faults(case: OperatorCase) -> list[str]:
    _, tally, _ = check_form(case, np.random.default_rng(3), boxes=4, samples=12)
    return tally.faults


@pytest.mark.parametrize("case", WRONG)
def test_form_is_bounded_or_refused(case: OperatorCase) -> None:
    assert not faults(case), describe(Form(case))


@pytest.mark.parametrize("case", CHANGED.values(), ids=CHANGED.keys())
def test_changed_case_is_bounded_or_refused(case: OperatorCase) -> None:
    assert not faults(case), describe(Form(case))
