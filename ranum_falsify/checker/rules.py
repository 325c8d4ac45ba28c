"""Bounds of the results of operators, from bounds of their operands: what the checker knows.

Bounds are about float32 as runtimes compute it: correctly rounded where IEEE 754 says so, sums in any order with or
without fused operations, and results below the smallest normal number possibly replaced by 0. Everything else is left
to the proof, which the checker then says that it trusts.

Notation: u = 2^-24, gamma_n = n u / (1 - n u) (N. Higham, Accuracy and Stability of Numerical Algorithms, 2002,
lemma 3.1 and section 3.1: a sum of n products strays by at most gamma_n times the sum of their magnitudes).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

__all__ = ["SHAPES", "Bounds", "has_rule", "is_valid", "may_end_a_run", "results_of"]

_LARGEST = float(np.finfo(np.float32).max)
_TINY = float(np.finfo(np.float32).tiny)
_UNIT = 2.0**-24
_DOUBLE_UNIT = 2.0**-53
_EXTRA_ROUNDINGS = 5  # a bias added, either factor and the result scaled, a conversion
_LARGEST_EXPONENT = 88.0  # exp of it is below the largest float32 by more than any kernel errs

SHAPES = ("Shape", "Size")  # they read no values
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


@dataclass(frozen=True)
class Bounds:
    """Least and greatest values of a tensor, element by element, in its own type and shape."""

    lower: np.ndarray
    upper: np.ndarray

    @property
    def is_point(self) -> bool:
        """Whether its values are known."""
        return np.array_equal(self.lower, self.upper)

    @property
    def is_finite(self) -> bool:
        """Whether neither bound is infinite or NaN, and they are in order."""
        with np.errstate(invalid="ignore"):
            return bool(np.isfinite(self.lower).all() and np.isfinite(self.upper).all()) and bool(
                (self.lower <= self.upper).all()
            )

    def lies_in(self, other: Bounds) -> bool:
        """Tell whether other bounds are the same or wider."""
        if self.lower.shape != other.lower.shape or self.lower.dtype != other.lower.dtype:
            return False
        return bool((other.lower <= self.lower).all() and (self.upper <= other.upper).all())

    def flushed(self) -> Bounds:
        """Return bounds that hold where denormal numbers are replaced by 0, too."""
        if self.lower.dtype != np.float32:
            return self
        low, high = (self.lower > 0) & (self.lower < _TINY), (self.upper < 0) & (self.upper > -_TINY)
        if not (low.any() or high.any()):
            return self
        return Bounds(np.where(low, np.float32(0), self.lower), np.where(high, np.float32(0), self.upper))


_Operands = Sequence[Bounds | None]


@dataclass(frozen=True)
class _Node:
    """A node with the operator sets of its model."""

    proto: onnx.NodeProto
    opsets: Sequence[onnx.OperatorSetIdProto]

    def attribute(self, name: str, default: object) -> object:
        found = next((one for one in self.proto.attribute if one.name == name), None)
        return default if found is None else onnx.helper.get_attribute_value(found)

    def run(self, arrays: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Return what the reference evaluator of ONNX makes of operands."""
        proto = onnx.NodeProto()
        proto.CopyFrom(self.proto)
        names = [f"x{i}" if array is not None else "" for i, array in enumerate(arrays)]
        del proto.input[:]
        proto.input.extend(names)
        feeds = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
        made = [name for name in proto.output if name]
        graph = onnx.helper.make_graph(
            [proto],
            "node",
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in feeds],
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in made],
        )
        model = onnx.helper.make_model(graph, opset_imports=self.opsets)
        found = dict(zip(made, ReferenceEvaluator(model).run(None, feeds), strict=True))
        return [np.asarray(found[name]) for name in proto.output if name]


_Rule = Callable[[_Node, _Operands], list[Bounds] | None]


def results_of(
    proto: onnx.NodeProto, operands: _Operands, opsets: Sequence[onnx.OperatorSetIdProto]
) -> list[Bounds] | None:
    """Return bounds of the results of a node, None where no rule shows that they are finite.

    Args:
        proto: The node.
        operands: Bounds of its operands; None for those that it is not given.
        opsets: The operator sets of its model.
    """
    if proto.domain not in ("", "ai.onnx") or any(one is not None and not one.is_finite for one in operands):
        return None
    rule = _exact if _is_of_integers(proto, operands) else _RULES.get(proto.op_type)
    if rule is None:
        return None
    try:
        with np.errstate(all="ignore"):
            found = rule(_Node(proto, opsets), operands)
    except (ValueError, TypeError, IndexError, RuntimeError, NotImplementedError, AttributeError, KeyError):
        return None  # the evaluator does not know this form of the operator
    flushed = [one.flushed() for one in found or ()]
    return flushed if found and all(one.is_finite for one in flushed) else None


def has_rule(proto: onnx.NodeProto) -> bool:
    """Tell whether there is a rule for an operator, which may not be enough for each of its forms."""
    return proto.domain in ("", "ai.onnx") and proto.op_type in _RULES


def is_valid(proto: onnx.NodeProto, operands: _Operands) -> bool:
    """Tell whether bounds of the operands alone show that an operator without a rule makes no NaN or infinity."""
    x = operands[0] if operands else None
    if x is None or x.lower.dtype != np.float32 or not all(one is None or one.is_finite for one in operands):
        return False
    if proto.op_type == "Exp":
        return bool((x.upper <= _LARGEST_EXPONENT).all())
    if proto.op_type == "Log":
        return bool((x.lower >= _TINY).all())
    return proto.op_type in ("Sigmoid", "Tanh", "Erf", "Softmax", "HardSigmoid", "Sin", "Cos", "Atan")


def may_end_a_run(proto: onnx.NodeProto, reached: Container[str]) -> bool:
    """Tell whether ONNX Runtime may refuse what an operator reads, given the tensors that inputs reach."""
    at = _OF_INPUTS.get(proto.op_type, len(proto.input))
    return proto.op_type in _MAY_END_A_RUN or any(name in reached for name in proto.input[at:])


# rules ----------------------------------------------------------------------------------------------------------------


def _is_of_integers(proto: onnx.NodeProto, operands: _Operands) -> bool:
    """Tell whether an operator makes something of known integers, as those do that compute shapes."""
    return proto.op_type in _EXACT and all(
        one is None or (one.lower.dtype.kind in "biu" and one.is_point) for one in operands
    )


def _exact(node: _Node, operands: _Operands) -> list[Bounds] | None:
    made = node.run([None if one is None else one.lower for one in operands])
    is_known = node.proto.op_type in ("Constant", "ConstantOfShape") or all(one.dtype.kind in "biu" for one in made)
    return [Bounds(one, one) for one in made] if is_known else None


def _is_float(operands: _Operands) -> bool:
    return all(one is None or one.lower.dtype == np.float32 for one in operands)


def _select(node: _Node, operands: _Operands) -> list[Bounds] | None:
    """Operators that choose and move elements; the operands that say which have to be known."""
    moved = operands if node.proto.op_type in ("Concat", "Max", "Min", "Add") else operands[:1]
    if not all(one is None or one.is_point for one in operands[len(moved) :]):
        return None
    lows = node.run([None if one is None else one.lower for one in operands])
    highs = node.run([None if one is None else one.upper for one in operands])
    return [Bounds(low, high) for low, high in zip(lows, highs, strict=True)]


def _monotone(node: _Node, operands: _Operands) -> list[Bounds] | None:
    """Correctly rounded operators that grow with each operand, and have one result."""
    return _select(node, operands) if _is_float(operands) and len(node.proto.output) == 1 else None


def _subtract(node: _Node, operands: _Operands) -> list[Bounds] | None:
    a, b = operands
    if a is None or b is None or not _is_float(operands):
        return None
    return [Bounds(a.lower - b.upper, a.upper - b.lower)]


def _negate(node: _Node, operands: _Operands) -> list[Bounds] | None:
    (x,) = operands
    return None if x is None or not _is_float(operands) else [Bounds(-x.upper, -x.lower)]


def _magnitude(node: _Node, operands: _Operands) -> list[Bounds] | None:
    (x,) = operands
    if x is None or not _is_float(operands):
        return None
    low, high = np.abs(x.lower), np.abs(x.upper)
    around = (x.lower <= 0) & (x.upper >= 0)
    return [Bounds(np.where(around, np.float32(0), np.minimum(low, high)), np.maximum(low, high))]


def _corners(combine: Callable[[np.ndarray, np.ndarray], np.ndarray], a: Bounds, b: Bounds) -> list[Bounds]:
    values = [combine(x, y) for x in (a.lower, a.upper) for y in (b.lower, b.upper)]
    return [Bounds(np.minimum.reduce(values), np.maximum.reduce(values))]


def _multiply(node: _Node, operands: _Operands) -> list[Bounds] | None:
    a, b = operands
    if a is None or b is None or not _is_float(operands):
        return None
    if node.proto.input[0] == node.proto.input[1]:
        (size,) = _magnitude(node, [a]) or [a]
        return [Bounds(size.lower * size.lower, size.upper * size.upper)]
    return _corners(np.multiply, a, b)


def _divide(node: _Node, operands: _Operands) -> list[Bounds] | None:
    a, b = operands
    if a is None or b is None or not _is_float(operands):
        return None
    away = (b.lower >= _TINY) | (b.upper <= -_TINY)
    return _corners(np.divide, a, b) if away.all() else None


def _root(node: _Node, operands: _Operands) -> list[Bounds] | None:
    (x,) = operands
    if x is None or not _is_float(operands) or not (x.lower >= 0).all():
        return None
    return [Bounds(np.sqrt(x.lower), np.sqrt(x.upper))]


def _compare(node: _Node, operands: _Operands) -> list[Bounds] | None:
    a, b = reversed(operands) if node.proto.op_type == "Less" else operands
    return None if a is None or b is None else [Bounds(a.lower > b.upper, a.upper > b.lower)]


def _choose(node: _Node, operands: _Operands) -> list[Bounds] | None:
    condition, a, b = operands
    if condition is None or a is None or b is None or a.lower.dtype != b.lower.dtype:
        return None
    first, second = condition.upper, ~condition.lower  # whether it may be chosen
    low = np.where(first & second, np.minimum(a.lower, b.lower), np.where(first, a.lower, b.lower))
    high = np.where(first & second, np.maximum(a.upper, b.upper), np.where(first, a.upper, b.upper))
    return [Bounds(low, high)]


def _shape(node: _Node, operands: _Operands) -> list[Bounds] | None:
    (x,) = operands
    if x is None:
        return None
    return [Bounds(one, one) for one in node.run([x.lower])]


def _products(node: _Node, operands: _Operands) -> list[Bounds] | None:
    """Sums of products, by centre and radius of each factor: matrix products and convolutions."""
    if not _is_float(operands) or any(one is None for one in operands[:2]):
        return None
    if node.attribute("alpha", 1.0) != 1.0 or node.attribute("beta", 1.0) != 1.0:
        return None
    x, w, *added = (_Ball.of(one) for one in operands if one is not None)

    def apply(values: np.ndarray, factors: np.ndarray, bias: list[np.ndarray]) -> np.ndarray:
        (result,) = node.run([values, factors, *bias])
        return result

    nothing = [np.zeros_like(one.centre) for one in added]
    centre = apply(x.centre, w.centre, [one.centre for one in added])
    radius = apply(x.radius, np.abs(w.centre) + w.radius, [one.radius for one in added])
    radius = radius + apply(np.abs(x.centre), w.radius, nothing)
    magnitude = apply(x.size, w.size, [one.size for one in added])
    return _rounded(centre - radius, centre + radius, magnitude, _terms(node, w.centre.shape))


@dataclass(frozen=True)
class _Ball:
    """Bounds in float64 as a centre and a radius, whose own roundings are few units of the size."""

    centre: np.ndarray
    radius: np.ndarray
    size: np.ndarray

    @classmethod
    def of(cls, x: Bounds) -> _Ball:
        low, high = x.lower.astype(np.float64), x.upper.astype(np.float64)
        return cls(low / 2 + high / 2, high / 2 - low / 2, np.maximum(np.abs(low), np.abs(high)))


def _terms(node: _Node, shape: tuple[int, ...]) -> int:
    """Return how many products a result sums up, given the shape of the second factor."""
    if node.proto.op_type == "Conv":
        return int(np.prod(shape[1:]))
    if node.proto.op_type == "Gemm":
        return shape[1 if node.attribute("transB", 0) else 0]
    return shape[-2] if len(shape) > 1 else shape[0]


def _sums(node: _Node, operands: _Operands) -> list[Bounds] | None:
    """Sums and means of elements."""
    x = operands[0]
    if x is None or not _is_float(operands[:1]) or not all(one is None or one.is_point for one in operands[1:]):
        return None
    rest = [None if one is None else one.lower for one in operands[1:]]
    low, high = x.lower.astype(np.float64), x.upper.astype(np.float64)
    largest = np.maximum(np.abs(low), np.abs(high))
    if not largest.sum() * (1 + 1e-3) < _LARGEST:  # means are sums first
        return None
    ends = [node.run([values, *rest])[0] for values in (low, high, largest)]
    found = _rounded(ends[0], ends[1], ends[2], 2 * x.lower.size)
    if found is None or not (x.lower >= 0).all():
        return found
    return [Bounds(np.maximum(one.lower, np.float32(0)), one.upper) for one in found]  # rounded sums keep their sign


def _rounded(lower: np.ndarray, upper: np.ndarray, magnitude: np.ndarray, terms: int) -> list[Bounds] | None:
    """Return bounds of sums that runtimes compute in float32, from those computed here in float64."""
    count = terms + _EXTRA_ROUNDINGS
    if count * _UNIT > 0.5:
        return None
    share = count * _UNIT / (1 - count * _UNIT) + 8 * count * _DOUBLE_UNIT
    error = magnitude * share * (1 + 1e-6) + 2 * count * _TINY
    # Partial sums stay below the magnitudes, in any order; where these may overflow, a partial sum may.
    if not np.all((magnitude + error) * (1 + 1e-6) < _LARGEST):
        return None
    least, greatest = lower - error, upper + error
    low, high = least.astype(np.float32), greatest.astype(np.float32)
    low = np.where(low > least, np.nextafter(low, np.float32(-np.inf)), low)
    high = np.where(high < greatest, np.nextafter(high, np.float32(np.inf)), high)
    return [Bounds(low, high)]


_SELECTIONS = (
    "Reshape Flatten Transpose Squeeze Unsqueeze Concat Slice Gather GatherElements GatherND Split Expand Tile"
)
_EXACT = frozenset(
    f"Constant ConstantOfShape Shape Size Range Cast Add Sub Mul Equal Where Not Less Greater {_SELECTIONS}".split()
)
"""What is exact on integers."""

_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys([*_SELECTIONS.split(), "Identity", "DepthToSpace", "SpaceToDepth"], _select),
    **dict.fromkeys(("Relu", "Max", "Min", "Clip", "Add", "MaxPool"), _monotone),
    **dict.fromkeys(("MatMul", "Gemm", "Conv"), _products),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "GlobalAveragePool"), _sums),
    **dict.fromkeys(("Greater", "Less"), _compare),
    "Where": _choose,
    "Sub": _subtract,
    "Neg": _negate,
    "Abs": _magnitude,
    "Mul": _multiply,
    "Div": _divide,
    "Sqrt": _root,
    "Shape": _shape,
}
"""The rules by ONNX operator."""
