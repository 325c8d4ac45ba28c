"""The rules by operator, and what operators can do wrong."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import partial

import numpy as np
import onnx

from ranum_falsify.checker import arithmetic, functions, layers, moving, quantised, sums
from ranum_falsify.checker.bounds import Bounds, enclose
from ranum_falsify.checker.node import NodeView, Operands, Results, Rule

SHAPES = ("Shape", "Size")  # they read no values
_OLDEST = 7
_UNKNOWN_FORMS = (
    *(ValueError, TypeError, IndexError, RuntimeError, NotImplementedError, AttributeError, KeyError, OverflowError),
    MemoryError,
)
"""What rules, and ONNX's evaluator, raise at forms of an operator that they do not know."""

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


def bound(node: NodeView, operands: Operands) -> Results:
    """Return bounds of the results of a node, None where no rule shows that they are finite."""
    if not _OLDEST <= node.opset <= onnx.defs.onnx_opset_version() or any(
        one is not None and not one.is_sound for one in operands
    ):
        return None
    is_exact = node.key in moving.EXACT and all(
        one is None or (one.dtype.kind in "biu" and one.is_point) for one in operands
    )
    rule = _RULES.get(node.key)
    try:
        with np.errstate(all="ignore"):
            found = moving.make_exact(node, operands) if is_exact else None
            found = rule(node, operands) if found is None and rule is not None else found
    except _UNKNOWN_FORMS:
        return None
    if not found or node.has_unread_attributes:
        return None
    flushed = [one if one is None else Bounds(np.asarray(one.lower), np.asarray(one.upper)).flushed() for one in found]
    return flushed if all(one is None or one.is_sound for one in flushed) else None


def _dropped(node: NodeView, operands: Operands) -> Results:
    """Dropout, where it drops nothing."""
    x, _, training = [*operands, None, None][:3]
    node.attribute("ratio", 0.5)
    node.attribute("seed", 0)
    if x is None or (training is not None and training.upper.any()):
        return None
    return [x, Bounds(np.zeros(x.lower.shape, bool), np.ones(x.lower.shape, bool))][: len(node.proto.output)]


def _places(node: NodeView, operands: Operands) -> Results:
    """ArgMax and ArgMin: any place along the axis."""
    x = operands[0]
    if x is None or not x.lower.size or not x.lower.ndim:
        return None
    axis, keep = int(node.attribute("axis", 0)) % x.lower.ndim, node.attribute("keepdims", 1)
    node.attribute("select_last_index", 0)
    shape = [1 if i == axis else n for i, n in enumerate(x.lower.shape) if keep or i != axis]
    return [Bounds(np.zeros(shape, np.int64), np.full(shape, x.lower.shape[axis] - 1, np.int64))]


def _likelihood(node: NodeView, operands: Operands) -> Results:
    """NegativeLogLikelihoodLoss of labels that are classes, without weights."""
    x, labels, *weights = operands
    if x is None or labels is None or weights or not x.is_float or not labels.lower.size:
        return None
    if not (0 <= labels.lower.min() and labels.upper.max() < x.lower.shape[1]):
        return None
    of_each = Bounds(-x.upper.max(1), -x.lower.min(1))
    reduction = node.attribute("reduction", "mean")
    if reduction == "none":
        return [of_each]
    kind, axes = {"sum": "ReduceSum", "mean": "ReduceMean"}[reduction], tuple(range(labels.lower.ndim))
    return sums.add_up(kind, of_each, axes, keep=False)


def _modulo(node: NodeView, operands: Operands) -> Results:
    """Remainders by one positive integer."""
    x, by = operands
    if x is None or by is None or x.dtype.kind not in "iu" or node.attribute("fmod", 0) or not (by.lower > 0).all():
        return None
    high = by.upper - 1 + np.zeros_like(x.upper)
    return [Bounds(np.zeros_like(high), high)]


def _biased(rule_name: str, node: NodeView, operands: Operands) -> Results:
    """Gelu and its relatives, some of a sum."""
    x, bias = [*operands, None][:2]
    if x is None or not x.is_float:
        return None
    if bias is not None:
        x = enclose(x.real + bias.real, x.dtype, 0.0)
    if rule_name == "Swish" and abs(float(node.attribute("alpha", 1.702)) - 1.702) > 1e-6:
        return None
    if rule_name == "Swish":  # x sigmoid(1.702 x) lies between relu(x) - 0.1637 and relu(x)
        found = functions.apply(functions.FUNCTIONS["Gelu"], x, 0.03)
    else:
        found = functions.apply(functions.FUNCTIONS["Gelu"], x, 5e-4)
    return None if found is None else [found]


def _fused_convolution(node: NodeView, operands: Operands) -> Results:
    """A convolution, the sum with what stands beside it, and an activation."""
    name, parameters = str(node.attribute("activation", "")), list(node.attribute("activation_params", []))
    x, w, bias, beside = [*operands, None, None][:4]
    found = sums.convolve(node, [x, w, bias])
    if not found or found[0] is None or x is None:
        return None
    result = found[0] if beside is None else enclose(found[0].real + beside.real, x.dtype, 0.0)
    active = layers.activate(result, name, parameters)
    return None if active is None else [active]


def _fused_product(node: NodeView, operands: Operands) -> Results:
    """A Gemm and an activation."""
    name = str(node.attribute("activation", ""))
    alpha = node.attribute("activation_alpha", None)
    found = sums.products(node, operands)
    if not found or found[0] is None:
        return None
    active = layers.activate(found[0], name, [] if alpha is None else [float(alpha)])
    return None if active is None else [active]


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(moving.MOVING, moving.move),
    **dict.fromkeys(SHAPES, moving.make_shape),
    **dict.fromkeys(("ScatterElements", "ScatterND"), moving.scatter),
    **dict.fromkeys(("Constant", "ConstantOfShape", "EyeLike"), moving.make_exact),
    "Pad": moving.pad,
    "Dropout": _dropped,
    **dict.fromkeys(functions.FUNCTIONS, functions.bound_function),
    "Pow": functions.power,
    **dict.fromkeys(("Add", "Sub", "Mul"), arithmetic.combine),
    **dict.fromkeys(("Sum", "Mean"), arithmetic.add_up),
    **dict.fromkeys(("Div", "Reciprocal"), arithmetic.divide),
    "Neg": arithmetic.negate,
    **dict.fromkeys("Relu Abs Floor Ceil Round Sign LeakyRelu PRelu HardSigmoid".split(), arithmetic.piecewise),
    **dict.fromkeys("Greater GreaterOrEqual Less LessOrEqual Equal".split(), arithmetic.compare),
    **dict.fromkeys("Not And Or Xor IsNaN IsInf".split(), arithmetic.decide),
    "Where": arithmetic.choose,
    **dict.fromkeys(("Cast", "CastLike"), arithmetic.cast),
    "NegativeLogLikelihoodLoss": _likelihood,
    "Mod": _modulo,
    **dict.fromkeys(("ArgMax", "ArgMin"), _places),
    **dict.fromkeys(("MatMul", "Gemm", "com.microsoft.FusedMatMul"), sums.products),
    "com.microsoft.FusedGemm": _fused_product,
    **dict.fromkeys(("Conv", "ConvTranspose"), sums.convolve),
    "com.microsoft.FusedConv": _fused_convolution,
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), sums.pool),
    **dict.fromkeys("ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare".split(), sums.reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax"), layers.soft),
    "BatchNormalization": layers.batch_normalise,
    "LayerNormalization": layers.layer_normalise,
    "InstanceNormalization": partial(layers.layer_normalise, by_channel=True),
    **dict.fromkeys(
        ("RMSNormalization", "SimplifiedLayerNormalization"), partial(layers.layer_normalise, centred=False)
    ),
    "com.microsoft.SkipLayerNormalization": layers.skip_normalise,
    "com.microsoft.SkipSimplifiedLayerNormalization": partial(layers.skip_normalise, centred=False),
    "LSTM": partial(layers.recur, gates=4),
    "GRU": partial(layers.recur, gates=3),
    "RNN": partial(layers.recur, gates=1),
    **dict.fromkeys("RandomUniform RandomNormal RandomUniformLike RandomNormalLike".split(), layers.random_numbers),
    **dict.fromkeys(
        ("com.microsoft.Gelu", "com.microsoft.BiasGelu", "com.microsoft.FastGelu"), partial(_biased, "Gelu")
    ),
    "com.microsoft.QuickGelu": partial(_biased, "Swish"),
    **dict.fromkeys(("DequantizeLinear", "com.microsoft.DequantizeLinear"), quantised.dequantise),
    **dict.fromkeys(("QuantizeLinear", "com.microsoft.QuantizeLinear"), quantised.quantise),
    "DynamicQuantizeLinear": quantised.dynamic,
    **dict.fromkeys(
        ("com.microsoft.MatMulIntegerToFloat", "com.microsoft.DynamicQuantizeMatMul"), quantised.scaled_product
    ),
    "com.microsoft.DynamicQuantizeLSTM": quantised.dynamic_lstm,
    **dict.fromkeys(("MatMulInteger", "ConvInteger"), quantised.multiply_integers),
    **dict.fromkeys(quantised.FORMS, quantised.quantised_result),
}
"""The rules by ONNX operator, with its domain where it is another one."""

OPERATORS = frozenset(_RULES)
"""Those that have one."""
