"""Forms that ONNX Runtime computes in its own way, or ends the process at: rows refuse them, or leave them open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ranum_falsify.errors import ModelError
from ranum_falsify.network import read
from tests.domain.boxes import Recipe
from tests.domain.soundness import Subject, sweep_case
from tests.domain.subjects import Setting
from tests.operators.harness import Operand, OperatorCase, Spread, model_of
from tests.operators.test_operators import CASES

MICROSOFT = "com.microsoft"
SCALED: list[Operand] = [
    np.ones((2, 3), np.uint8),
    np.array(0.5, np.float32),
    np.array(1, np.uint8),
    np.array(0.5, np.float32),
]
EMBEDDED: list[Operand] = [np.zeros((2, 3), np.int32), None, Spread((5, 4)), Spread((4, 4)), None, *[Spread((4,))] * 2]
EMBEDDED += [None, np.array(2, np.int32)]
HEADS: dict[str, Any] = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear", "scale": 1.0}
EMPTY: list[Operand] = [Spread((1, 3, 0)), Spread((1, 3, 0)), Spread((1, 3, 8))]
EDGES = [np.array(edge, np.float32) for edge in (0, 4096)]
STATISTICS = [np.ones(4, dtype) for dtype in (np.float32, np.float32, np.float16, np.float16)]


def form(op_type: str, *inputs: Operand, domain: str = "", opset: int = 21, **attributes: Any) -> OperatorCase:
    return OperatorCase(
        op_type=op_type, inputs=inputs, domain=domain, opset=opset, attributes=attributes, gradient=False
    )


def like(
    op_type: str,
    name: str = "",
    *,
    without: int = -1,
    leaving: int = -1,
    flat: int = -1,
    outputs: int = 0,
    **attributes: Any,
) -> OperatorCase:
    """A case of the tables with other attributes, an operand computed, left out, or without its first axis."""
    case = next(case for case in CASES if case.op_type == op_type and name in case.name)
    constants = frozenset(range(len(case.inputs))) - {without} if without >= 0 else case.constants
    given = {key: value for key, value in {**case.attributes, **attributes}.items() if value is not None}
    inputs = [None if i == leaving else x for i, x in enumerate(case.inputs)]
    if flat >= 0 and (x := inputs[flat]) is not None:
        inputs[flat] = np.zeros(x.shape[1:], x.dtype)
    return replace(case, inputs=inputs, attributes=given, constants=constants, outputs=outputs or case.outputs)


SEVERAL: list[Operand] = [np.zeros((5, 1), np.uint8), np.array(0.01, np.float32), np.array(128, np.uint8)]
SEVERAL += [np.full(2, 0.003, np.float32), np.array(9, np.uint8)]
PRODUCT: list[Operand] = [Spread((1, 3), np.uint8), np.ones((3, 2), np.int8), np.array(0.5, np.float32)]
PRODUCT += [np.full(2, 0.5, np.float32), None, None]
BATCH: list[Operand] = [np.ones((1, 1, 3), np.uint8), np.ones((1, 3, 2), np.int8), *PRODUCT[2:]]
BATCH += [np.full(2, 0.5, np.float32)]
FLAT: list[Operand] = [*PRODUCT[:3], np.full((1, 1), 0.5, np.float32), None, None]
PAIRS = np.zeros((2, 1, 3, 1), np.int64)
ROWS = np.zeros((2, 1), np.int64)
REFUSED = {
    "of which ONNX Runtime reads one": form("MatMul", Spread((5, 1, 2, 0)), Spread((4, 0, 2))),
    "empty factors": form("MatMul", Spread((2, 0)), Spread((0,))),
    "batch_dims 2, which": form("GatherND", Spread((2, 1, 4, 2)), ROWS, batch_dims=2),
    "2, which x and indices do not share": form("GatherND", Spread((2, 3, 1, 2)), PAIRS, batch_dims=2),
    "a size of 2147483648": form("CenterCropPad", Spread((0, 5)), np.array([2**31, 0]), opset=18),
    "a size of -2": form("CenterCropPad", Spread((6, 5)), np.array([-2, 3]), opset=18),
    "2 base values for one class": like("TreeEnsembleClassifier", "first 2 bases", classlabels_int64s=[4]),
    "3 outputs for 2 results": replace(
        form("Split", np.arange(6.0), opset=7, split=[6, 0]), outputs=3, constants=frozenset({0})
    ),
    "where ONNX Runtime ignores it": form("Gemm", Spread((2, 0)), Spread((0, 4)), Spread((4,)), beta=2.0),
    "ONNX Runtime scales the bias, too": form("MatMulIntegerToFloat", *BATCH, domain=MICROSOFT),
    "elements than the product has columns": form("MatMulIntegerToFloat", *FLAT, domain=MICROSOFT),
    "more dimensions or rows than the product": form(
        "MatMulIntegerToFloat", *PRODUCT, np.ones((1, 1, 2), np.float32), domain=MICROSOFT
    ),
    "several values": form("Constant", value_int=7, value_floats=[2.0]),
    "that it does not have": form("ReduceMin", Spread((3, 0, 3, 1)), opset=7, axes=[4, 6], keepdims=0),
    "along negative axes": form("ArgMin", Spread((0, 4)), axis=-1),
    "is no number of torch.float16": form("HardSigmoid", Spread((4,), np.float16), beta=-3e38),
    "a table of segments": like("EmbedLayerNormalization", "segments", leaving=1),
    "beside w of uint8": form("ConvInteger", Spread((1, 4, 6), np.int8), np.full((4, 4, 3), 200, np.uint8)),
    "as wide as its operand": form("BatchNormalization", Spread((2, 4, 3)), *STATISTICS, training_mode=1),
    "share a root": like("TreeEnsemble", tree_roots=[0, 0]),
    "of which kernels read one": like("TreeEnsembleClassifier", classlabels_strings=["a", "b"]),
    "low 2.0 above high 1.0": form("RandomUniform", shape=[4], low=2.0),
    "scale -2.0": form("RandomNormalLike", Spread((4,)), scale=-2.0),
    "9 outputs for": like("Split", outputs=9),
    "Clip without its limits": like("FusedGemm", activation="Clip"),
    "axis 7 is not one of 2": like("QLinearSoftmax", axis=7),
    "queries without elements": replace(form("LinearAttention", *EMPTY, domain=MICROSOFT, **HEADS), outputs=2),
    "dft_length is negative": form("MelWeightMatrix", *(np.array(n) for n in (8, -1, 8192)), *EDGES),
    "an input without a name": form("DFT", Spread((1, 4, 2)), None, None),
    "without a bias": form("Attention", Spread((2, 3, 4)), Spread((4, 12)), domain=MICROSOFT, num_heads=2),
    "another rank than input_ids": replace(form("EmbedLayerNormalization", *EMBEDDED, domain=MICROSOFT), outputs=2),
    "a scale of 2 dimensions": form("GatedRMSNorm", Spread((2, 4)), Spread((2, 1)), Spread((2, 4)), domain=MICROSOFT),
    "fewer than 5 inputs": form("QLinearSigmoid", *SCALED, domain=MICROSOFT),
    "weights of other than 3 dimensions": like("QMoE", "4 bits", flat=2),
    "4 weights for 7 classes": form("NegativeLogLikelihoodLoss", Spread((3, 7)), np.zeros(3, np.int64), Spread((4,))),
    "rotary_embedding_dim 5": like("RotaryEmbedding", "part", rotary_embedding_dim=5),
    "a whole head where left out, beside angles of 4": form(
        "RotaryEmbedding", Spread((1, 1, 3, 5)), *[Spread((1, 3, 2))] * 2, opset=23
    ),
    "a scale of another type": form(
        "LayerNormalization", Spread((2, 8)), Spread((8,), np.float16), opset=9, stash_type=0
    ),
    "product has columns": form(
        "DynamicQuantizeMatMul", Spread((3, 5)), np.ones((5, 4), np.int8), Spread((3, 4)), domain=MICROSOFT
    ),
    "a scale of 2 elements": replace(like("QLinearSoftmax"), inputs=SEVERAL),
    "looks beyond it": like("TreeEnsembleClassifier", classlabels_int64s=None, classlabels_strings=["a"]),
    "MultiHeadAttention: a past": like("MultiHeadAttention", "past", outputs=2),
    "qk_matmul_output_mode -3": like("Attention", "scores 1", qk_matmul_output_mode=-3),
    "local_window_size -7": like("GroupQueryAttention", "window", local_window_size=-7),
    "GroupQueryAttention: a past": like("GroupQueryAttention", "past", outputs=1),
    "zero points of X and Y": like("QLinearWhere", without=3),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why: str) -> None:
    model, _ = model_of(REFUSED[why], REFUSED[why].arrays())
    with pytest.raises(ModelError, match=why):
        read(model, strict=True)


LARGE = np.array([[-(2**63), -(2**63), -(2**31)], [2**31, 2**31, 2**31]], np.int64)
BLOCKS: dict[str, Any] = {"K": 64, "N": 3, "bits": 8, "block_size": 16, "accuracy_level": 4}
QUANTISED: list[Operand] = [Spread((2, 64)), np.full((3, 4, 16), 200, np.uint8), np.ones((3, 4), np.float32)]
COLUMNS: list[Operand] = [
    np.ones((2, 5), np.uint8),
    np.array(0.5, np.float32),
    np.array(1, np.uint8),
    np.ones((5, 0), np.uint8),
]
COLUMNS += [np.ones(0, np.float32), np.ones(0, np.uint8), np.ones(0, np.int32)]
BARE: dict[str, Any] = {"base_values": [0.0, 0.25, 0.25], "post_transform": "NONE"}
VECTORS: list[Operand] = [np.ones(7, np.uint8), np.array([0.5], np.float32), SCALED[2], np.ones(7, np.uint8)]
VECTORS += [SCALED[1], SCALED[2], SCALED[1], SCALED[2]]
GRID: list[Operand] = [Spread((2, 2, 3), np.float16), np.array([2, 3, 1, 3])]
FAR: list[Operand] = [np.zeros((1, 2, 4), np.float32), np.full((1, 2, 4), 1e20, np.float32), Spread((1, 2, 4))]
MASKED: list[Operand] = [Spread((2, 2, 3, 4)), Spread((2, 2, 5, 4)), Spread((2, 2, 5, 3)), np.ones((1, 5), np.uint32)]
SOUND = {
    "a place in a line of half precision": form("AffineGrid", *GRID, opset=20, align_corners=1),
    "padding with NaN": form("Pad", Spread((3, 4)), opset=7, pads=[3, 0, 2, 3], value=float("nan")),
    "a product of vectors": form("QLinearMatMul", *VECTORS),
    "roots of scales that overflow": form("MultiHeadAttention", *FAR, domain=MICROSOFT, num_heads=2, scale=3e38),
    "the root of a negative scale": form("Attention", *MASKED, opset=24, scale=-0.5),
    "an extreme of no leaf": like("TreeEnsembleRegressor", "some MIN", **BARE),
    "magnitudes of the least integers": form("Normalizer", LARGE, domain="ai.onnx.ml", norm="L1"),
    "computed scales": replace(form("MatMulNBits", *QUANTISED, domain=MICROSOFT, **BLOCKS), constants=frozenset({1})),
    "images of nothing": form("Col2Im", Spread((0, 18, 9)), np.array([5, 4]), np.array([3, 2])),
    "position in a number": form("ArgMax", np.array(3, np.float32), opset=7, axis=0),
    "extremes of no integers": form("ReduceMax", Spread((2, 0, 4), np.int8), opset=13),
    "products without columns": form("QGemm", *COLUMNS, domain=MICROSOFT),
    "factors whose product overflows": form("Selu", Spread((4,)), alpha=3.4e38, gamma=1.05),
    "parameters that are not given": form(
        *("LSTM", Spread((3, 2, 4)), Spread((1, 12, 4)), Spread((1, 12, 3))),
        hidden_size=3,
        activations=["Affine", "Sigmoid", "Affine"],
        activation_beta=[0.25, 428.0],
    ),
}


@pytest.mark.parametrize("case", SOUND.values(), ids=SOUND)
def test_bounds_enclose(case: OperatorCase) -> None:
    tally = sweep_case(case, given=[Recipe(width="none")])
    assert tally.samples and not tally.faults


def test_products_without_elements_are_open() -> None:
    # ONNX Runtime divides by the number of elements, which ends the process.
    case = form("FusedMatMul", Spread((4, 2, 3)), Spread((0, 2, 4)), domain=MICROSOFT, transA=1, transB=1)
    case = replace(case, attributes={**case.attributes, "transBatchA": 1, "transBatchB": 1})
    model, feeds = model_of(case, case.arrays())
    subject = Subject(model)
    assert not subject.proved(subject.analyse(feeds, feeds, Setting(rewritten=False)))
