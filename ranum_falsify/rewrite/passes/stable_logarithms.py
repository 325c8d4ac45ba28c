"""Logarithms of probabilities and of sums of exponentials, without the probabilities and the exponentials.

1 - Sigmoid(x) rounds to 0 where Log(1 - Sigmoid(x)) is -17, and Exp(x) overflows where Log(1 + Exp(x)) is 89.  Casts,
moves, clips and epsilons may stand between Log and what it is of; they become those of logarithms: Log(p + c) becomes
logaddexp(Log(p), log c).  What else reads an inner tensor of a match still gets it.
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.passes import log_forms
from ranum_falsify.rewrite.passes.expressions import made_by, root_of, unwrap
from ranum_falsify.rewrite.passes.log_domain import Core, LogReader, inside
from ranum_falsify.rewrite.passes.stable_parts import StableForm, times
from ranum_falsify.rewrite.registry import Counterpart, register
from ranum_falsify.rewrite.rewrite import Plan, operand

_FLOATS = "float32, float64 or float16"
_PROBABILITIES: tuple[Core, ...] = (
    log_forms.softmax,
    log_forms.sigmoid,
    log_forms.one_minus_sigmoid,
    log_forms.one_minus_softmax,
    log_forms.exponential,
    log_forms.one_plus_exponential,
)
_EXPONENTIALS: tuple[Core, ...] = (
    log_forms.product,
    *_PROBABILITIES,
    log_forms.sum_of_exponentials,
    log_forms.sum_of_tensors,
)


class _Logarithm(StableForm):
    """A logarithm of forms that are known."""

    roots = ("Log",)
    cores: ClassVar[tuple[Core, ...]]
    drops_epsilons = False

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        p = operand(node, 0)
        reader = LogReader(self.cores, opset, drops_epsilons=self.drops_epsilons)
        plan = None if p.dtype is None else reader.read(p, p.dtype)
        return None if self.drops_epsilons and not reader.epsilons else plan


@verify.tolerance
@register(
    "stable_log_softmax",
    takes="Softmax Log",
    gives="LogSoftmax",
    needs=_FLOATS,
    stands_for=Counterpart("log_softmax", "tf.nn.log_softmax"),
)
class StableLogSoftmax(_Logarithm):
    """Log(Softmax(x)) becomes LogSoftmax(x)."""

    cores = (log_forms.softmax,)


@verify.tolerance
@register(
    "stable_log_sigmoid",
    takes="Sigmoid Log",
    gives="Neg Softplus",
    needs=_FLOATS,
    stands_for=Counterpart("logsigmoid", "tf.math.log_sigmoid"),
)
class StableLogSigmoid(_Logarithm):
    """Log(Sigmoid(x)) becomes -Softplus(-x)."""

    cores = (log_forms.sigmoid,)


@verify.tolerance
@register(
    "stable_log_one_minus_sigmoid",
    takes="Sigmoid Sub Log",
    gives="Neg Softplus",
    needs=f"{_FLOATS}; a constant 1 that adds no dimension",
    stands_for=Counterpart("logsigmoid(-x)", "tf.math.log_sigmoid(-x)"),
)
class StableLogOneMinusSigmoid(_Logarithm):
    """Log(1 - Sigmoid(x)) becomes -Softplus(x)."""

    cores = (log_forms.one_minus_sigmoid,)


@verify.tolerance
@register(
    "stable_log_one_minus_softmax",
    takes="Softmax Sub Log",
    gives="LogSoftmax Gather ReduceLogSumExp",
    needs=f"{_FLOATS}; an axis of fixed length, at most 256; a constant 1 that adds no dimension",
    stands_for=Counterpart("logsumexp of the other log_softmax(x)", "tf.reduce_logsumexp of the others"),
)
class StableLogOneMinusSoftmax(_Logarithm):
    """Log(1 - Softmax(x)) becomes ReduceLogSumExp of LogSoftmax(x) over all other classes."""

    cores = (log_forms.one_minus_softmax,)


@verify.tolerance
@register(
    "stable_log_one_minus_tanh_squared",
    takes="Tanh Mul Pow Sub Log",
    gives="Softplus Mul Sub",
    needs=f"{_FLOATS}; a constant 1 that adds no dimension",
    stands_for=Counterpart(
        "2 * (log(2) - x - softplus(-2 * x)), TanhTransform", "2 * (log(2) - x - tf.math.softplus(-2 * x))"
    ),
)
class StableLogOneMinusTanhSquared(_Logarithm):
    """Log(1 - Tanh(x)^2) becomes 2 (log 2 - x - Softplus(-2x)): the log-probability of squashed actions."""

    cores = (log_forms.one_minus_tanh_squared,)


@verify.tolerance
@register(
    "stable_softplus",
    takes="Exp Add Log",
    gives="Softplus",
    needs=f"{_FLOATS}; a positive constant that adds no dimension",
    stands_for=Counterpart("softplus", "tf.math.softplus"),
)
class StableSoftplus(_Logarithm):
    """Log(1 + Exp(x)) becomes Softplus(x), and Log(c + Exp(x)) becomes log c + Softplus(x - log c)."""

    cores = (log_forms.one_plus_exponential,)


@verify.tolerance
@register(
    "stable_log_expm1",
    takes="Exp Sub Log",
    gives="Tanh Log Softplus",
    needs=f"{_FLOATS}; a constant 1 that adds no dimension",
    stands_for=Counterpart("x + log(-expm1(-x)), log(-expm1(x))", "tfp.math.softplus_inverse, tfp.math.log1mexp"),
)
class StableLogExpm1(_Logarithm):
    """Log(Exp(x) - 1) becomes Log(Tanh(x/2)) + Softplus(x), and Log(1 - Exp(x)) becomes Log(Tanh(-x/2)) + Softplus(x).

    The inverse of Softplus, and the logarithm of the opposite probability.
    """

    cores = (log_forms.one_minus_exponential,)


@verify.tolerance
@register(
    "stable_log_normal_distribution",
    takes="Erf Add Sub Mul Div Log",
    gives="Abs Div Mul Add Log Exp Where",
    needs="float32 or float16; a constant 1 that adds no dimension",
    stands_for=Counterpart("special.log_ndtr", "tf.math.special.log_ndtr, tfp Normal.log_cdf"),
)
class StableLogNormalDistribution(_Logarithm):
    """Log(0.5 (1 + Erf(z))) becomes Log(Erfc(-z)) + Log(0.5) below 0, Erfc by its logarithm, which has no limit."""

    cores = (log_forms.normal_distribution, log_forms.product)


@verify.tolerance
@register(
    "stable_log_sum_exp",
    takes="Exp ReduceSum ReduceMean Log",
    gives="ReduceLogSumExp",
    needs=f"{_FLOATS}; constant axes",
    stands_for=Counterpart("logsumexp", "tf.reduce_logsumexp"),
)
class StableLogSumExp(_Logarithm):
    """Log(ReduceSum(Exp(x))) becomes ReduceLogSumExp(x); in float16, the same of x less its greatest element."""

    cores = (log_forms.sum_of_exponentials, log_forms.exponential)

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the logarithm of a sum, of nothing less."""
        return super()._read(node, opset) if _core_of(node, "ReduceSum", "ReduceMean") else None


@verify.tolerance
@register(
    "stable_log_add_exp",
    takes="Exp Add Log",
    gives="Max Sub Abs Softplus Add",
    needs=_FLOATS,
    stands_for=Counterpart("logaddexp", "tfp.math.log_add_exp"),
)
class StableLogAddExp(_Logarithm):
    """Log(Exp(x) + Exp(y)) becomes Max(x, y) + Softplus(-|x - y|)."""

    cores = (log_forms.sum_of_tensors, *_PROBABILITIES, log_forms.product)

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the logarithm of a sum of tensors, of nothing less."""
        p = operand(node, 0)
        if p.dtype is None or log_forms.terms_of(unwrap(p, p.dtype).inner) < 2:
            return None
        return super()._read(node, opset)


@verify.tolerance
@register(
    "stable_log_quotient",
    takes="Exp Softmax Sigmoid Mul Div Pow Sqrt Log",
    gives="Add Sub Mul LogSoftmax Softplus ReduceLogSumExp",
    needs=f"{_FLOATS}; positive constants",
    stands_for=Counterpart(
        "a - b of logarithms, Normal.log_prob, logit of sigmoid", "a - b of logarithms, tfp Normal.log_prob"
    ),
)
class StableLogQuotient(_Logarithm):
    """Log of products, quotients, powers and sums of exponentials becomes sums and multiples of what they are of.

    Log(Exp(x) / ReduceSum(Exp(x))) is x - ReduceLogSumExp(x); the logarithm of a normal density is its exponent less a
    constant.
    """

    cores = _EXPONENTIALS

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        """Read the logarithm of a product, of nothing less."""
        return super()._read(node, opset) if _core_of(node, "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "Exp") else None


@verify.tolerance
@register(
    "stable_log_squares",
    takes="Mul Pow ReduceSum Add Div Log",
    gives="Abs Max Log Mul ReduceLogSumExp Softplus",
    needs=f"{_FLOATS}; constant axes; positive constants",
    stands_for=Counterpart(
        "c.log() + softplus(2 * x.abs().log() - c.log())", "log(c) + tf.math.softplus(2 * log|x| - log(c))"
    ),
)
class StableLogSquares(_Logarithm):
    """Log(x^2) becomes 2 Log|x|, Log(ReduceSum(x^2)) ReduceLogSumExp(2 Log|x|), and Log(c + x^2) a softplus of that.

    Squares overflow and vanish early: the logarithm of a density with heavy tails, or of a distance, does not.
    """

    cores = (log_forms.square, log_forms.product, log_forms.sum_of_exponentials, log_forms.sum_of_tensors)


@verify.tolerance
@register(
    "stable_root_of_exp",
    takes="Exp Softmax Sigmoid Sqrt Pow",
    gives="LogSoftmax Softplus Mul Exp",
    needs=_FLOATS,
    stands_for=Counterpart("exp(x / 2), exp(log_softmax(x) / 2)", "tf.exp(x / 2), tf.exp(tf.nn.log_softmax(x) / 2)"),
)
class StableRootOfExp(StableForm):
    """Sqrt(Exp(x)) becomes Exp(x/2), and Sqrt(Softmax(x)) becomes Exp(LogSoftmax(x)/2).

    Its derivative is finite where the exponential is 0, and it overflows later.
    """

    roots = ("Sqrt", "Pow")

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        inner = root_of(node.outputs[0])
        dtype = None if inner is None else inner.dtype
        if inner is None or dtype is None:
            return None
        plan = LogReader(_PROBABILITIES, opset).read(inner, dtype)
        return None if plan is None else lambda op: op.Exp(times(op, plan(op), 0.5, dtype))


@verify.tolerance
@register(
    "stable_quotient_of_exp",
    takes="Exp Softmax Sigmoid Erf Mul Div",
    gives="LogSoftmax Softplus ReduceLogSumExp Sub Exp",
    needs=f"{_FLOATS}; positive constants",
    stands_for=Counterpart("exp(log_p - log_q)", "tf.exp(log_p - log_q)"),
)
class StableQuotientOfExp(StableForm):
    """p / q becomes Exp(log p - log q), as in a ratio of probabilities, or of a normal density to its distribution.

    Both may vanish, or overflow, where the quotient does not.
    """

    roots = ("Div",)

    def _read(self, node: ir.Node, opset: int) -> Plan | None:
        quotient, divisor = node.outputs[0], operand(node, 1)
        reader = LogReader((*_EXPONENTIALS, log_forms.normal_distribution), opset)
        if quotient.dtype is None or reader.read(divisor, quotient.dtype) is None:
            return None
        plan = reader.read(quotient, quotient.dtype)
        return None if plan is None else lambda op: op.Exp(plan(op))


@verify.metric
@register(
    "drop_log_epsilon",
    takes="Softmax Sigmoid Exp Add Log",
    gives="LogSoftmax Softplus",
    needs=f"{_FLOATS}; metrics, because the function changes",
    stands_for=Counterpart("log_softmax, logsigmoid", "tf.nn.log_softmax, tf.math.log_sigmoid", is_equal=False),
)
class DropLogEpsilon(_Logarithm):
    """Log(Softmax(x) + c) becomes LogSoftmax(x), and Log(Sigmoid(x) + c) becomes -Softplus(-x), without c."""

    cores = _PROBABILITIES
    drops_epsilons = True


def _core_of(node: ir.Node, *op_types: str) -> bool:
    """Tell whether one of some operators is below a logarithm, with nothing but what stands around probabilities."""
    p = operand(node, 0)
    while p.dtype is not None:
        p = unwrap(p, p.dtype).inner
        if made_by(p, *op_types) is not None:
            return True
        inner = inside(p)
        if inner is None:
            return False
        p = inner
    return False
