"""Error bounds: every constant by which bounds are widened, with its derivation.

Notation: u is the unit roundoff of a type, half the distance from 1 to the next larger number.  An operation of IEEE
754 that neither overflows nor underflows gives (a op b)(1 + d) with |d| <= u (IEEE 754-2019, sections 4.3 and 5.4;
Higham 2.4).  Then

- k such operations in a row stray by a factor between (1 - u)^k and (1 + u)^k, which lies within 1 +- gamma_k with
  gamma_k = k u / (1 - k u) (Higham, lemma 3.1), and errors in a row add up: gamma_j + gamma_k + gamma_j gamma_k
  <= gamma_(j + k) (lemma 3.3);
- a sum of n numbers, in whatever order and tree, strays by at most gamma_(n-1) times the sum of their magnitudes; a sum
  of n products by gamma_n; fused operations round less often (section 4.2 and 3.1).

What underflows loses at most the smallest normal number, since runtimes may replace denormal results by 0.

Rules also widen by `k * unit(dtype)` where they stand: k is at least the number of roundings of the operations that
the line before names, by every runtime, plus our own; first order suffices, because each k counts some operations more
than there are.

Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, SIAM 2002.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

_HALVES = (torch.float16, torch.bfloat16)


# types --------------------------------------------------------------------------------------------------------------


@cache
def unit(dtype: torch.dtype) -> float:
    """Return the unit roundoff u of a floating dtype: half the distance from 1 to the next larger number."""
    return float(torch.finfo(dtype).eps) / 2


@cache
def tiny(dtype: torch.dtype) -> float:
    """Return the smallest normal number of a floating dtype."""
    return float(torch.finfo(dtype).tiny)


def accumulation(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which runtimes add numbers of a dtype up: float32 for the half precisions."""
    return torch.float32 if dtype in _HALVES else dtype


def least_positive(dtype: torch.dtype) -> float:
    """Return the smallest positive number that a tensor may hold.

    For types of 16 bits that of float32, in which ONNX Runtime keeps the results of chains of half precision.
    """
    return 2.0**-1074 if dtype is torch.float64 else 2.0**-149


LARGEST_SQUARED = 1e150
"""Numbers whose squares float64 cannot add up are not followed: 1e8 squares of this add up to 1e308."""


# sums ---------------------------------------------------------------------------------------------------------------


def gamma(terms: int, dtype: torch.dtype) -> float:
    """Return gamma_n = n u / (1 - n u): the relative error of a sum of n products, to the sum of magnitudes.

    Infinite where n u reaches 1, as for sums of hundreds in bfloat16.
    """
    share = terms * unit(dtype)
    return share / (1 - share) if share < 1 else math.inf


def partial_sum_shares(terms: int, dtype: torch.dtype, steps: int) -> tuple[float, float]:
    """Return the error of a sum of n products, as shares of the sum of magnitudes and of all partial sums together.

    Each addition strays by u of what it adds up, some of the terms, whose errors count in second order: less than
    2 gamma_n^2 of the sum of magnitudes in all.

    Args:
        terms: How many products.
        dtype: That of the additions.
        steps: How many roundings of the factors, of each product and of the result there are besides.
    """
    added = gamma(terms + steps, dtype)
    return 2 * added * added + gamma(steps, dtype) * (1 + added), added / (terms + steps)


def bound_partial_sums(least: Tensor, greatest: Tensor) -> Tensor:
    """Return the most that all partial sums of some terms come to together, in whatever order and tree they are added.

    Of n - 1 additions, at most n - k + 1 add up k terms or more: by induction over the tree.  So they come to no more
    than those in a row would, the k-th of the terms that are worst for k of them or fewer.

    Args:
        least: Bounds of the terms `(sums, terms)`; terms of 0 count as none.
        greatest: Likewise.
    """
    is_term = (least != 0) | (greatest != 0)
    most = int(is_term.sum(1).amax()) if len(is_term) else 0
    terms = is_term.to(torch.uint8).topk(most, 1).indices
    up, down = (x.gather(1, terms).sort(1, descending=True).values.cumsum(1) for x in (greatest, -least))
    worst = torch.maximum(up, down).cummax(1).values
    return worst[:, 1:].sum(1) * (1 + double_share(terms.shape[1]))


def growth(terms: int, dtype: torch.dtype, *, stepwise: bool = False) -> float:
    """Return the relative error of n rounded operations in a row, in the accumulator of a floating dtype.

    That is gamma_n, or exp(n u) - 1 >= (1 + u)^n - 1 where n u is not small.

    Args:
        terms: How many operations.
        dtype: That of the operands.
        stepwise: Whether each result is rounded to the dtype itself.
    """
    share = terms * unit(dtype if stepwise else accumulation(dtype))
    return share / (1 - share) if share < 0.5 else math.expm1(min(share, 700.0))


def sum_error(terms: int, dtype: torch.dtype, steps: int = 0) -> float:
    """Return the relative error of a sum of non-negative terms, in any order, and of some roundings in the dtype.

    That is (1 + gamma_n)(1 + gamma_k) - 1 = gamma_n + gamma_k (1 + gamma_n), of which 1.01 k u is the second part
    where neither n u nor k u comes to a hundredth.  Our own sum in float64 counts four times: in a numerator and a
    denominator, at either end.

    Args:
        terms: How many numbers are added, in the type of :func:`accumulation`.
        dtype: That of operands and results.
        steps: How many roundings to the dtype come before and after.
    """
    own = 4 * gamma(terms, torch.float64)
    added = gamma(terms, accumulation(dtype))
    rounded = max(1.01 * steps * unit(dtype), gamma(steps, dtype) * (1 + added)) if steps else 0.0
    return added + rounded + own


def sum_growth(terms: int, dtype: torch.dtype) -> float:
    """Return by what factor a computed sum of n magnitudes may exceed the sum: 1 + gamma_n, and at least 1.01."""
    return max(1.01, 1 + growth(terms, dtype))


PRODUCT_ROUNDINGS = 12
"""Roundings of a matrix product besides those of its sum.

Of the runtimes: a bias added, a fused scale of either factor and of the result, a conversion: 5.  Of our own: centre
(2) and radius (3) of the operands, the sum of two products, and the bounds from centre and radius: 7.
"""


TF32_SHARE = 2.0**-10
"""Relative error of a float32 factor that is rounded or cut to the 11 significant bits of TF32."""

TENSOR_CORE_STEPS = 8
"""Roundings that a product counts for where additions cut and sums of several numbers have one exponent.

All numbers of such a sum are cut where float32 numbers of the greatest one's exponent end: each loses less than 2 u of
the greatest, and the sum as much when its own exponent is larger.  At worst each product is added to the sum before it
alone, which are three losses: 6 u; what is added up of several such sums, and rounding there: 2 u.
"""


@dataclass(frozen=True)
class ProductRounding:
    """How kernels round sums of products, beyond one rounding for each number that is added.

    Attributes:
        between: How often part of a sum in half precision is rounded to it before more is added, apart from a bias.
        factors: Relative error of each factor before it is multiplied.
        cuts: Whether sums are as :data:`TENSOR_CORE_STEPS` says, and denormal factors may count as 0.
    """

    between: int = 0
    factors: float = 0.0
    cuts: bool = False

    def beyond(self, terms: int, dtype: torch.dtype) -> float:
        """Return the error of a sum of n products, to the sum of magnitudes, besides gamma_n and roundings between.

        That is (1 + f)^2 (1 + gamma_(8 n)) - 1.
        """
        return (1 + self.factors) ** 2 * (1 + growth(TENSOR_CORE_STEPS * terms, dtype)) - 1 if self.cuts else 0.0

    def growth(self, terms: int, dtype: torch.dtype) -> float:
        """Return the relative error of what a sum of n products starts from, and to the sum of magnitudes."""
        each = growth(terms, dtype, stepwise=self.between > 0)
        return each + self.beyond(terms, dtype) * (1 + each)

    def lost(self, terms: int, dtype: torch.dtype, largest: float) -> float:
        """Return the most that a sum of n products, and ours, may lose to underflow.

        Args:
            terms: How many products are added up.
            dtype: Type of the operands.
            largest: The greatest magnitude of a factor, at least 1.
        """
        least = 4 * tiny(accumulation(dtype)) + (2 * tiny(dtype) if self.cuts else 0.0)
        return terms * least * largest


ROUNDED = ProductRounding()
"""Nothing beyond."""


def product_share(terms: int, dtype: torch.dtype, rounding: ProductRounding = ROUNDED) -> float:
    """Return the relative error, to the sum of magnitudes, of a runtime's sum of products and of our own together.

    With e = gamma_(n + 12) for either, that is 2 e of the true magnitudes; ours are computed, and too small by a factor
    of 1 - e at worst, and the share is multiplied by them once more: 2 e (1 + 4 e) >= 2 e (1 + e) / (1 - e), for
    e <= 1/2, which the rules make sure of.  What a runtime's sum errs beyond counts likewise.

    Args:
        terms: How many products are added up.
        dtype: The type in which they are.
        rounding: How.
    """
    error, beyond = (of(terms + PRODUCT_ROUNDINGS, dtype) for of in (gamma, rounding.beyond))
    return (2 * error + (beyond * (1 + error) if beyond else 0.0)) * (1 + 4 * error)


BLOCK_ROUNDINGS = 32
"""Roundings of a sum of products of blocks besides those of its terms.

A weight is a difference times a scale (2), a block of the other factor has a scale (1), the sum of a block is
multiplied with both (2), and a bias is added (1): 6, by kernels and by us: 12.  The rest is room for lanes' own sums.
"""

FUSED_ROUNDINGS = 8
"""Roundings that fused kernels add to those of a sum: a bias, a scale, a residual, an activation, twice each."""

SOFTMAX_ROUNDINGS = 8
"""Of a softmax besides those of its sum: the difference to the maximum, exponential and sum rounded to half precision,
reciprocal and product in place of the quotient, a scale before it, and our own logarithm and difference."""

LOSS_ROUNDINGS = 8
"""Of a loss besides those of its sum: the product with the weight, the quotient, the negation (exact), a conversion
to half precision before and after, and two for our own."""

STATISTICS_ROUNDINGS = 24
"""Of what is standardised besides those of its sums.

Difference to the mean, square, quotient by n, epsilon, root, quotient (or reciprocal and product): 8, with each result
a tensor of its own and so rounded, in a numerator as in a denominator: 16; and scale, bias and conversions: 8.
"""

ELEMENTWISE_ROUNDINGS = 16
"""Of a few elementwise operations in a row, as a model spells a norm or a softmax: at most 8 of them, rounded in
numerator and denominator."""

GATED_ROUNDINGS = 16
"""Of a number times a function of it, written with several nodes: four products and quotients by runtimes, rounded as
often again where they are fused in another order; as many for constants and our own function: 16."""

POWER_ROUNDINGS = 32
"""Error of kernels of powers, in roundings, for the exponents of `LRN`.

The records have 4e-7 for `Pow`, with a factor of safety of 1.5: 7 roundings.  The rest is room for the exponent's own
rounding, which counts by the logarithm of the base.
"""


def cancellation_share(terms: int, dtype: torch.dtype) -> float:
    """Return the error of mean(x^2) - mean(x)^2 to mean(x^2), for n numbers.

    With g = gamma_(n + 24): g for the first, (1 + g)^2 - 1 = 2 g + g^2 for the second, which is not larger.
    """
    error = gamma(terms + STATISTICS_ROUNDINGS, accumulation(dtype))
    return (3 + max(0.1, error)) * error


def fourier_share(length: int, dtype: torch.dtype) -> float:
    """Return the error of a Fourier transform to the sum of the magnitudes of its n numbers.

    By radix-2 steps, where n is a power of 2, each number goes through log2 n products and sums, with coefficients that
    err by 4 pi u + u because their angles are rounded: less than 18 u for a step.  For other n, kernels convolve with
    chirps, whose angles up to pi n are rounded: ONNX Runtime, the worst of them, strays by up to 9 n u in samples of
    all lengths up to 130 and of some up to 4,093.  More is taken, for our own transform too.
    """
    stages = math.log2(length + 1) + 1
    steps = 32 * stages if length & (length - 1) == 0 else 64 * (length + 8 * stages)
    return gamma(math.ceil(steps), dtype)


# float64, in which bounds are computed -----------------------------------------------------------------------------

DOUBLE_SHARE = 4 * 2.0**-53
"""Relative error of torch's float64 functions: two units in the last place.

They come from SLEEF's functions of 1.0 ULP (https://sleef.org/purec.xhtml) or from the C library's, of less than one
(https://sourceware.org/glibc/manual/latest/html_node/Errors-in-Math-Functions.html); a test holds them to it.
"""

FUNCTION_SHARE = 8 * 2.0**-53
"""The same for functions that a property applies: once for torch's, once for those of NumPy that replay applies."""

GELU_SHARE = 4e-13
"""The same for our own Gelu in float64, which nothing else covers where correct rounding is asked for.

The product of the operand with the root of 1/2, itself rounded, errs by up to 2 u, which counts 2 t^2 times in erfc(t)
with t <= 26.6 where that is a normal number: 2831 u = 3.2e-13; as in the exponential of Gelu's approximation by tanh,
of an operand up to 708, which errs by 4 u.
"""

DENORMAL_UNITS = 4
"""How far, in units in the last place, kernels may err where their results are denormal: the distance between numbers
does not shrink there any more, so that a relative error says nothing."""

CURVE_SHARE = 1e-12
"""Share of the magnitudes by which offsets of lines about curves are moved outward.

Value, product with the slope and difference err by 6 u = 7e-16, the functions by up to 4e-13: that of Gelu
far below 0, see :data:`GELU_SHARE`.
"""

TOTALS_SHARE = 1e-12
"""Share of the magnitudes that sums of the totals of a pass may stray: up to 9000 of them, one for each step."""

_FEW_TERMS, _FEW_SHARE = 400_000, 1e-10


def double_share(terms: int) -> float:
    """Return the share of the magnitudes that float64 products and sums may stray, coefficients and results together.

    Twice gamma_(n + 8): the coefficients that a pass carries are sums, and what is made of them is; for all sums of up
    to 4e5 terms 1e-10, which is more than that.
    """
    return _FEW_SHARE if terms <= _FEW_TERMS else max(_FEW_SHARE, 2 * gamma(terms + 8, torch.float64))


def vanishing(terms: int) -> float:
    """Return what a sum of products loses in float64 because some vanish: coefficients of networks get that small.

    Each loses less than the smallest normal number; at least as many count as :func:`double_share` takes for few.
    """
    return max(_FEW_TERMS, terms) * tiny(torch.float64)


PERIOD_SHARE = 2.0**-50
"""How far, relative to an operand, a point first + k period may be off in float64.

The period errs by u, its product with k and the sum by u each, and so does `first`: 4 u, and as much for the operand's
own comparison: 8 u.
"""

INTEGER_POWER_SHARE = 2.0**-40
"""Relative error allowed to integer powers, which runtimes compute in float64 and cut.

Results that matter are below 2^63, so that exponents are at most 63 where the base is 2 or more: a base that float64
rounds counts (1 + u)^63 - 1 = 7e-15, and pow itself 2 u.  Together less than a hundredth of 2^-40 = 9e-13.
"""

MEAN_SHARE = 1e-9
"""Share by which real results are widened before they are cut to integers.

Sums of integers are exact in float64 up to 2^53, and the quotient, root or logarithm of one errs by 4 u = 4.4e-16, here
and in kernels.  Far more is taken, since it costs nothing: where a result lies so close to an integer, both neighbours
count.
"""

# measured -----------------------------------------------------------------------------------------------------------

GATE_ROUNDINGS = 16
"""Error of the activation functions of recurrent kernels, in roundings of 1.

ONNX Runtime's rational tanh in GRU errs by 10.
"""

QUANTISED_SHARE = 2.0**-18
"""Relative error of kernels of quantised operators, to the magnitudes of what they add up.

70 times what was measured; `domain.rules.quantisation` says on what.
"""

COORDINATE_ROUNDINGS = 32
"""Error of the coordinates of `Resize` and of kernels at them, in roundings of the size of the axis.

Scale, product, shift by a half, and the crop's two products and sums: at most 8, by runtimes and by us: 16; and as much
for the weights that are made of them.
"""

CUBIC_ROUNDINGS = (16, 72)
"""Error of a weight of Keys' kernel: the first number, and the second times its coefficient a, in roundings of 1.

Near, ((a + 2) d - (a + 3)) d^2 + 1 with d <= 1: 5 |a| + 12.  Far, ((a d - 5 a) d + 8 a) d - 4 a with d <= 2, whose
terms cancel: 7 |a| after the first difference, 32 |a| after the sum, 72 |a| at the end.
"""

WINDOW_ERROR = 8 * 2.0**-24
"""Error of the elements of windows and mel weights, which lie in [0, 1]: their coefficients are of float32, the cosines
of float64 or float32.  Coefficients add up to 1 and err by u, and so do sum and quotient: 3 u.
"""


_UPDATES = 3.25


def reach_of_updates(n: int, magnitude: Tensor, epsilon: float) -> Tensor:
    """Return the most that (x - mean) / sqrt(variance + epsilon) is in float32, by two passes or Welford's updates.

    The mean strays by roundings that are relative to the numbers, however small the deviation is. Two passes take both
    from the mean as it is, so that no quotient is above sqrt(n). Welford's update of a number x that is d from the mean
    m adds d (x - m') to the sum M, and m' is m + d / k, rounded. Let s be the spacing of numbers there.

    - For k > 2, |x - m'| >= |d| / 4: rounding moves m' by s / 2 at most, and where |d| is s, m' is m again.
    - For k = 2 so, too, but where |d| is s, and m' may be x: then M does not know of it, and the first number is s off.
    - |m' - m| <= 2 |d| / k, because m itself is no nearer to m + d / k than m'.

    So the sum of all other d^2 is at most 4 M, and a number is |d| + 2 (sum of later |d| / k) from the last mean at
    most, or 1.61 sqrt(4 M) by the inequality of Cauchy and Schwarz. Source of the updates: B. Welford, Note on a method
    for calculating corrected sums of squares and products, Technometrics 4, 1962.

    Args:
        n: How many numbers are normalised together.
        magnitude: The most that one of them is, `(..., 1)`.
        epsilon: Number that is added to the variance.

    Returns:
        That of the first number and that of all others, `(..., 2)`; infinite where epsilon hides no underflow.
    """
    size = magnitude.double()
    if not epsilon >= 8 * tiny(torch.float32):
        return torch.full((*size.shape[:-1], 2), math.inf, dtype=torch.float64)
    most = torch.full_like(size, _UPDATES * math.sqrt(n))
    return torch.cat([most + (2 * unit(torch.float32) * size + tiny(torch.float32)) / math.sqrt(epsilon), most], -1)
