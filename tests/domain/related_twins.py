"""Pairs of networks that differ in how two operands are related, which makes one of them safe."""

from tests.domain.twins import Twins

__all__ = ["RELATED"]

_SETS = "n = Neg(x) p = Sigmoid(x) e = Mul(n, n) g = Div(e, large) t = Sigmoid(g) "
_SUMS = "a = ReduceSum(p, last) b = {second} m = Mul({product}) c = ReduceSum(m, last) "
_UNION = "s = Add(a, b) u = Sub(s, c) r = Add(u, least) y = Div({part}, r)"
_MORE = "float large = {16}, float least = {1e-7}, int64[1] first = {0}"
_CORNERS = (
    "x1 = Slice(x, from, to, last) x2 = Slice(x, to, end, last) "
    "h = Slice(x2, first, last, first) k = Slice(x2, last, next, first) "
    "f = Slice(x1, first, last, first) g = Slice(x1, last, next, first) l = {larger}(f, g) r = {smaller}(h, k) "
)
_SIDES = (
    "w = Sub(r, l) v = Relu(w) q0 = Sub(h, f) w0 = Relu(q0) q1 = Sub(k, {left}) w1 = Relu(q1) "
    "v0 = Gather<axis = 1>(v, number) v1 = Gather<axis = 1>(v, another) i = Mul(v0, v1) "
    "a0 = Gather<axis = 1>(w0, number) a1 = Gather<axis = 1>(w0, {other}) a = Mul(a0, a1) "
    "b0 = Gather<axis = 1>(w1, number) b1 = Gather<axis = 1>(w1, another) b = Mul(b0, b1) "
    "s = Add(a, b) u = Sub(s, i) d = Add(u, least) y = Div(i, d)"
)
_PLACES = (
    "int64[1] from = {0}, int64[1] to = {3}, int64[1] end = {6}, int64[1] next = {2}, "
    "int64[1] first = {0}, int64 number = {0}, int64 another = {1}, float least = {1e-7}"
)


def _sets(*, second: str = "ReduceSum(t, last)", product: str = "p, t", part: str = "c") -> str:
    sums = _SUMS.format(second=second, product=product)
    return _SETS + sums + _UNION.format(part=part)


def _boxes(*, larger: str = "Max", smaller: str = "Min", left: str = "g", other: str = "another") -> str:
    return _CORNERS.format(larger=larger, smaller=smaller) + _SIDES.format(left=left, other=other)


def _by_maxima(body: str) -> str:
    return (
        body.replace("Relu(w)", "Max(w, zero)")
        .replace("Relu(q0)", "Max(zero, q0)")
        .replace("Relu(q1)", "Max(q1, zero)")
    )


_RANKED = (
    "int64[1] count = {6}, int64 axis = {1}, float[6] ranks = {1, 2, 3, 4, 5, 6}, float large = {1e8}, "
    "float minus = {-1}"
)


def _sparsemax(ranked: str, *, along: str = "1", order: str = "") -> str:
    return (
        f"b = Mul(x, large) m = ReduceMax<axes = [{along}]>(b) d = Sub(b, m) h = Div(d, two) n = Mul(d, minus) "
        f"v, i = TopK<axis = 1{order}>({ranked}, count) a = CumSum(v, axis) e = Sub(a, one) r = Mul(ranks, v) "
        "c = Greater(r, e) k = Cast<to = 7>(c) t = ReduceSum(k, last) s = Cast<to = 1>(t) y = Div(one, s)"
    )


ORDERED = [
    Twins("a union of sums", _sets(), _sets(second="ReduceMean<axes = [1]>(t)"), more=_MORE),
    Twins("a union of sums along one axis", _sets(), _sets(second="ReduceSum(t, first)"), more=_MORE),
    Twins("a union of what is no more than 1", _sets(), _sets(product="p, e"), more=_MORE),
    Twins("an intersection with itself", _sets(product="t, p"), _sets(product="x, t"), more=_MORE),
    Twins("a union of boxes", _boxes(), _boxes(larger="Min"), more=_PLACES),
    Twins("a union of boxes by maxima", _by_maxima(_boxes()), _by_maxima(_boxes(smaller="Max")), more=_PLACES),
    Twins("the right corners of boxes", _boxes(), _boxes(smaller="Max"), more=_PLACES),
    Twins("the left corners of boxes", _boxes(), _boxes(left="h"), more=_PLACES),
    Twins("the sides of boxes", _boxes(), _boxes(other="number"), more=_PLACES),
    Twins(
        "max - min",
        "a = ReduceMax<axes = [1]>(x) b = ReduceMin<axes = [1]>(x) d = Sub(a, b) y = Sqrt(d)",
        "a = ReduceMax<axes = [1]>(x) b = ReduceMin<axes = [0]>(x) c = ReduceMax<axes = [1]>(b) d = Sub(a, c) "
        "y = Sqrt(d)",
    ),
    Twins(
        "max - min of one tensor",
        "a = ReduceMax<axes = [1]>(x) b = ReduceMin<axes = [1]>(x) d = Sub(a, b) y = Sqrt(d)",
        "n = Neg(x) a = ReduceMax<axes = [1]>(x) b = ReduceMin<axes = [1]>(n) d = Sub(a, b) y = Sqrt(d)",
    ),
    Twins(
        "a share of a sum of two",
        "p = Exp(x) t = Abs(x) s = Add(p, t) q = Div(p, s) d = Sub(one, q) y = Sqrt(d)",
        "p = Exp(x) t = Sub(x, one) s = Add(p, t) r = Abs(s) k = Add(r, one) q = Div(p, k) d = Sub(one, q) y = Sqrt(d)",
    ),
    Twins("sparsemax", _sparsemax("d"), _sparsemax("b"), more=_RANKED),
    Twins("sparsemax of halves", _sparsemax("h"), _sparsemax("n"), more=_RANKED),
    Twins("sparsemax along its rows", _sparsemax("d"), _sparsemax("d", along="0"), more=_RANKED),
    Twins("sparsemax in order", _sparsemax("d"), _sparsemax("d", order=", largest = 0"), more=_RANKED),
]

_UNIT = "n = ReduceL2<axes = [{along}]>(x) c = Max(n, {least}) u = Div({divided}, c) "


def _cosines(
    *, along: str = "1", least: str = "least", divided: str = "x", turned: str = "u", left: str = "u", k: str = "many"
) -> str:
    body = _UNIT.format(along=along, least=least, divided=divided)
    return body + f"t = Transpose({turned}) p = MatMul({left}, t) s = Mul(p, {k}) y = Exp(s)"


_LONG = "float least = {1e-12}, float none = {0}, float many = {80}, float more = {90}"

LENGTHS = [
    Twins("cosines", _cosines(), _cosines(along="0"), more=_LONG),
    Twins("cosines, and too large a factor", _cosines(), _cosines(k="more"), more=_LONG),
    Twins("cosines of rows that may be short", _cosines(), _cosines(least="none"), more=_LONG),
    Twins("a row of one length and one of another", _cosines(), _cosines(turned="x"), more=_LONG),
    Twins("both rows of one length", _cosines(), _cosines(left="x"), more=_LONG),
    Twins(
        "cosines by sums",
        _UNIT.format(along="1", least="least", divided="x")
        + "w = Neg(x) d = ReduceL2<axes = [1]>(w) e = Add(d, least) "
        "v = Div(w, e) m = Mul(u, v) r = ReduceSum(m, last) s = Mul(r, many) y = Exp(s)",
        _UNIT.format(along="1", least="least", divided="x")
        + "w = Neg(x) d = ReduceL2<axes = [1]>(x) e = Add(d, least) "
        "v = Div(w, e) h = Add(v, tiny) m = Mul(u, h) r = ReduceSum(m, last) s = Mul(r, many) y = Exp(s)",
        more=_LONG,
    ),
    Twins(
        "cosines of parts of rows",
        _UNIT.format(along="1", least="least", divided="x") + "a, b = Split<axis = 1>(u, halves) t = Transpose(a) "
        "p = MatMul(b, t) s = Mul(p, many) y = Exp(s)",
        _UNIT.format(along="1", least="least", divided="x") + "a, b = Split<axis = 1>(x, halves) t = Transpose(a) "
        "p = MatMul(b, t) s = Mul(p, many) y = Exp(s)",
        more=_LONG + ", int64[2] halves = {3, 3}",
    ),
]

_ENTROPY = (
    "q = Add(p, tiny) l = Log(q) m = Mul({factor}, l) s = ReduceSum(m, last) n = Neg(s) z = Mul(n, big) y = Exp(z)"
)


def _entropy(shares: str = "p = Softmax<axis = 1>(x) ", *, factor: str = "p") -> str:
    return shares + _ENTROPY.format(factor=factor)


_CHOSEN = "i = ArgMax<axis = 1>(x) d = Equal(i, {places}) o = Cast<to = 1>(d) p = ReduceMean<axes = [{axis}]>(o) "
_WRITTEN_SHARES = "i = ArgMax<axis = 1>(x) p = ScatterElements<axis = 1>({before}, i, written) "
_PARTS = (
    "float big = {45}, int64[6] places = {0, 1, 2, 3, 4, 5}, "
    "int64[6] twice = {0, 0, 0, 0, 0, 0}, float[2, 6] zeros = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "
    "float[2, 6] halves = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, float[2, 1] written = {1, 1}"
)

ENTROPIES = [
    Twins("the entropy of shares", _entropy(), _entropy("p = Sigmoid(x) "), more=_PARTS),
    Twins("the entropy of shares, of themselves", _entropy(), _entropy(factor="x"), more=_PARTS),
    Twins(
        "the entropy of chosen places",
        _entropy(_CHOSEN.format(places="places", axis=0)),
        _entropy(_CHOSEN.format(places="twice", axis=0) + "c = Sigmoid(x) ", factor="c"),
        more=_PARTS,
    ),
    Twins(
        "the entropy of written places",
        _entropy(_WRITTEN_SHARES.format(before="zeros")),
        _entropy(_WRITTEN_SHARES.format(before="halves")),
        more=_PARTS,
    ),
]


_GUARDED = (
    "p = Relu(x) s = ReduceSum(p, last) o = ReduceMax<axes = [1]>(x) b = Cast<to = 9>({tested}) n = {negated}(b) "
    "f = Cast<to = 1>(n) u = Add({part}, f) m = Mul(f, {factor}) r = Add(s, m) y = Div(u, r)"
)


def _guarded(*, tested: str = "s", negated: str = "Not", part: str = "p", factor: str = "two") -> str:
    return _GUARDED.format(tested=tested, negated=negated, part=part, factor=factor)


GUARDED = [
    Twins("shares of a sum that may be 0", _guarded(), _guarded(tested="o")),
    Twins("shares of a sum, but for those that are 0", _guarded(), _guarded(negated="Identity")),
    Twins("shares of a sum of others", _guarded(), _guarded(part="one")),
    Twins("shares of a sum and nothing", _guarded(), _guarded(factor="zero")),
]

LOGARITHMS = [
    Twins(
        "x - log(sum(exp(x)))",
        "l = ReduceLogSumExp<axes = [1]>(x) d = Sub(x, l) y = Exp(d)",
        "l = ReduceLogSumExp<axes = [0]>(x) k = ReduceMin<axes = [1]>(l) d = Sub(x, k) y = Exp(d)",
        low=-300,
        high=300,
    ),
    Twins(
        "log(sum(exp(x))) of another tensor",
        "l = ReduceLogSumExp<axes = [1]>(x) d = Sub(x, l) y = Exp(d)",
        "n = Neg(x) l = ReduceLogSumExp<axes = [1]>(n) d = Sub(x, l) y = Exp(d)",
        low=-300,
        high=300,
    ),
]

RELATED = [*ORDERED, *GUARDED, *LENGTHS, *ENTROPIES, *LOGARITHMS]
