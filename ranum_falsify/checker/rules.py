"""The rules, and what operators can do wrong."""

from __future__ import annotations

from collections.abc import Container, Sequence

import onnx

from ranum_falsify.checker import elementwise, layers, moving  # noqa: F401 - they enter rules
from ranum_falsify.checker.bounds import Bounds
from ranum_falsify.checker.node import RULES, NodeView, Operands

SHAPES = ("Shape", "Size")  # they read no values
DEBUG=False
_OLDEST = 7
_CANNOT_FAIL = frozenset(
    "Abs And ArgMax ArgMin Ceil Clip Concat Constant ConstantOfShape DepthToSpace Dropout Equal EyeLike Flatten Floor"
    " GlobalMaxPool Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Max Min Neg NonZero Not Or Relu Round"
    " Shape Sign Size SpaceToDepth Transpose Trilu Unique Where Xor".split()
)
"""Operators that make finite numbers of finite ones, by choosing, comparing or rounding, and accept all."""

_MAY_END_A_RUN = frozenset(
    "ArrayFeatureExtractor Div EmbedLayerNormalization Expand Gather GatherElements GatherND If Loop MaxUnpool Mod "
    "NGramRepeatBlock NegativeLogLikelihoodLoss OneHotEncoder QEmbedLayerNormalization Range Reshape ReverseSequence "
    "Scan Scatter ScatterElements ScatterND SoftmaxCrossEntropyLoss TensorScatter Tile TopK".split()
)
"""Operators at which ONNX Runtime refuses some integers, whether or not anything reads their results."""

_BY_POSITION = (
    "BlackmanWindow ConstantOfShape HammingWindow HannWindow MelWeightMatrix",
    "CumProd CumSum ExpandDims MaxRoiPool OneHot Pad ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax"
    " ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Split Squeeze Unsqueeze",
    "RoiAlign",
    "Attention NonMaxSuppression Slice",
    "DynamicQuantizeLSTM GRU LSTM MatMulNBits RNN",
    "QAttention",
)
_OF_INPUTS = {name: position for position, names in enumerate(_BY_POSITION) for name in names.split()}
"""Others, which do so where an input reaches an operand at this position or after it."""


def may_end_a_run(proto: onnx.NodeProto, reached: Container[str]) -> bool:
    """Tell whether ONNX Runtime may refuse what an operator reads, given the tensors that inputs reach."""
    at = _OF_INPUTS.get(proto.op_type, len(proto.input))
    return proto.op_type in _MAY_END_A_RUN or any(name in reached for name in proto.input[at:])


def can_fail(proto: onnx.NodeProto) -> bool:
    """Tell whether an operator can make NaN or infinity of finite numbers, or end a run."""
    return proto.domain not in ("", "ai.onnx") or proto.op_type not in _CANNOT_FAIL


def bound(node: NodeView, operands: Operands) -> Sequence[Bounds | None] | None:
    """Return bounds of the results of a node, None where no rule shows that they are finite."""
    given = [one for one in operands if one is not None]
    if not _OLDEST <= node.opset <= onnx.defs.onnx_opset_version() or not all(one.is_sound for one in given):
        return None
    rule = moving.make_exact if moving.is_exact(node, given) else RULES.get(node.key)
    try:
        found = [] if rule is None else rule(node, *operands)
        results = [one and one.flushed() for one in ([found] if isinstance(found, Bounds) else found)]
        node.require_read()
    except Exception:  # a form of the operator that its rule, or ONNX's evaluator, does not know
        if DEBUG:
            raise
        return None
    return results if results and all(one is None or one.is_sound for one in results) else None
