"""Pairs of networks that differ in what makes one of them safe, and those with gated numbers."""

from dataclasses import dataclass

__all__ = ["ADDED", "ENTROPIES", "GATED", "KEPT", "LENGTHS", "ORDERED", "VOTES", "Twins"]


@dataclass(frozen=True)
class Twins:
    """Two bodies over `x`, of shape (2, 6), that differ in what makes one of them safe."""

    name: str
    safe: str
    unsafe: str
    low: float = -4.0
    high: float = 4.0
    more: str = ""


GATED = [
    Twins(
        "x * sigmoid(x)",
        "g = Sigmoid(x) w = Mul(x, g) t = Add(w, third) y = Log(t)",
        "g = Sigmoid(x) w = Mul(x, g) t = Add(w, quarter) y = Log(t)",
        low=-9,
        high=9,
        more="float third = {0.3}, float quarter = {0.25}",
    ),
    Twins(
        "x * sigmoid(c x)",
        "c = Mul(x, two) g = Sigmoid(c) w = Mul(g, x) t = Add(w, third) y = Log(t)",
        "c = Mul(x, two) g = Sigmoid(c) w = Mul(g, x) t = Add(w, less) y = Log(t)",
        low=-9,
        high=9,
        more="float third = {0.2}, float less = {0.13}",
    ),
    Twins(
        "HardSwish by parts",
        "a = Add(x, three) c = Clip(a, zero, six) p = Mul(x, c) w = Div(p, six) t = Add(w, more) y = Log(t)",
        "a = Add(x, three) c = Clip(a, zero, six) p = Mul(x, c) w = Div(p, six) t = Add(w, less) y = Log(t)",
        low=-9,
        high=9,
        more="float three = {3}, float six = {6}, float more = {0.376}, float less = {0.375}",
    ),
    Twins(
        "HardSwish by parts, quotient first",
        "a = Add(three, x) c = Clip(a, zero, six) q = Div(c, six) w = Mul(q, x) t = Add(w, more) y = Log(t)",
        "a = Add(three, x) c = Clip(a, zero, six) q = Div(six, c) w = Mul(q, x) t = Add(w, more) y = Log(t)",
        low=-9,
        high=9,
        more="float three = {3}, float six = {6}, float more = {0.376}",
    ),
    Twins(
        "HardSwish by HardSigmoid",
        "g = HardSigmoid<alpha = 0.25, beta = 0.5>(x) w = Mul(x, g) t = Add(w, more) y = Log(t)",
        "g = HardSigmoid<alpha = 0.25, beta = 0.5>(x) w = Mul(x, g) t = Add(w, less) y = Log(t)",
        low=-9,
        high=9,
        more="float more = {0.251}, float less = {0.25}",
    ),
    Twins(
        "a number between limits that do not start at 0, times itself",
        "c = Mul(x, two) a = Add(c, one) g = Clip(a, minus, two) w = Mul(g, x) t = Add(w, more) y = Log(t)",
        "c = Mul(x, two) a = Add(c, one) g = Clip(a, minus, two) w = Mul(g, x) t = Add(w, less) y = Log(t)",
        low=-0.9,
        more="float minus = {-0.75}, float more = {0.126}, float less = {0.124}",
    ),
    Twins(
        "Gelu by erf",
        "a = Div(x, root) e = Erf(a) f = Add(e, one) g = Mul(x, f) h = Mul(g, half) t = Add(h, fifth) y = Log(t)",
        "a = Div(x, root) e = Erf(a) f = Add(e, one) g = Mul(x, f) t = Add(g, fifth) y = Log(t)",
        more="float root = {1.4142135}, float fifth = {0.2}",
    ),
    Twins(
        "Gelu by erf, factors first",
        "k = Mul(half, x) a = Mul(x, root) e = Erf(a) f = Add(one, e) g = Mul(f, k) t = Add(g, fifth) y = Log(t)",
        "k = Mul(half, x) a = Mul(x, root) e = Erf(a) f = Add(half, e) g = Mul(f, k) t = Add(g, fifth) y = Log(t)",
        more="float root = {0.70710677}, float fifth = {0.2}",
    ),
    Twins(
        "Gelu by tanh",
        "q = Pow(x, cube) c = Mul(q, small) s = Add(x, c) a = Mul(s, root) e = Tanh(a) f = Add(e, one) "
        "k = Mul(x, half) g = Mul(k, f) t = Add(g, fifth) y = Log(t)",
        "q = Pow(x, cube) c = Mul(q, small) s = Add(x, c) a = Mul(s, root) e = Tanh(a) f = Add(e, one) "
        "k = Mul(x, half) g = Mul(k, f) t = Add(g, less) y = Log(t)",
        more="float root = {0.7978845608}, float fifth = {0.2}, float cube = {3}, float small = {0.044715}, "
        "float less = {0.16}",
    ),
    Twins(
        "Mish by parts",
        "s = Softplus(x) e = Tanh(s) g = Mul(x, e) t = Add(g, third) y = Log(t)",
        "s = Softplus(x) e = Tanh(s) g = Mul(x, e) t = Add(g, less) y = Log(t)",
        more="float third = {0.32}, float less = {0.3}",
    ),
]
"""Products of a number with a function of itself."""

_LOWEST = "int64[1] count = {2}, int64[1] column = {1}, int64 first = {0}, int64 second = {1}, float low = {-inf}"
_TOP = "values, places = TopK(x, count) "
_EMPTY = "s = Shape(x) e = Expand(low, s) "

KEPT = [
    Twins(
        "the largest of each row, written over -inf",
        _TOP + _EMPTY + "w = ScatterElements<axis = 1>(e, places, values) y = Softmax<axis = 1>(w)",
        _TOP + _EMPTY + "w = ScatterElements<axis = 0>(e, places, values) y = Softmax<axis = 1>(w)",
        more=_LOWEST,
    ),
    Twins(
        "finite numbers written over -inf",
        _TOP + _EMPTY + "w = ScatterElements<axis = 1>(e, places, values) y = Softmax<axis = 1>(w)",
        _TOP + _EMPTY + 'w = ScatterElements<axis = 1, reduction = "add">(e, places, values) y = Softmax<axis = 1>(w)',
        more=_LOWEST,
    ),
    Twins(
        "written to every row",
        _TOP + _EMPTY + "w = ScatterElements<axis = 1>(e, places, values) y = Softmax<axis = 1>(w)",
        _TOP
        + _EMPTY
        + "p = Gather<axis = 0>(places, column) v = Gather<axis = 0>(values, column) "
        + "w = ScatterElements<axis = 1>(e, p, v) y = Softmax<axis = 1>(w)",
        more=_LOWEST,
    ),
    Twins(
        "all but the largest set to -inf",
        _TOP + "t = Gather<axis = 1>(values, column) c = Less(x, t) w = Where(c, low, x) y = Softmax<axis = 1>(w)",
        _TOP + "t = Gather<axis = 1>(values, column) c = Less(t, x) w = Where(c, low, x) y = Softmax<axis = 1>(w)",
        more=_LOWEST,
    ),
    Twins(
        "all but the largest set to -inf, with a threshold that loses a dimension",
        _TOP
        + "t = Gather<axis = 1>(values, second) u = Unsqueeze(t, column) c = GreaterOrEqual(x, u) "
        + "w = Where(c, x, low) y = Softmax<axis = 1>(w)",
        _TOP
        + "t = Gather<axis = 1>(values, first) u = Unsqueeze(t, column) c = Greater(x, u) "
        + "w = Where(c, x, low) y = Softmax<axis = 1>(w)",
        more=_LOWEST,
    ),
    Twins(
        "all but the maximum set to -inf",
        "t = ReduceMax<axes = [1]>(x) c = Less(x, t) n = Not(c) w = Where(n, x, low) y = Softmax<axis = 1>(w)",
        "t = ReduceMax<axes = [0]>(x) c = Less(x, t) n = Not(c) w = Where(n, x, low) y = Softmax<axis = 1>(w)",
        more=_LOWEST,
    ),
    Twins(
        "a threshold of the same tensor",
        _TOP + "t = Gather<axis = 1>(values, column) c = Less(x, t) w = Where(c, low, x) y = Softmax<axis = 1>(w)",
        "z = Add(x, one) values, places = TopK(z, count) t = Gather<axis = 1>(values, column) c = Less(x, t) "
        "w = Where(c, low, x) y = Softmax<axis = 1>(w)",
        more=_LOWEST,
    ),
]

_EDGES = "int64[1] column = {1}, int64[1] front = {0}, int64[2] both = {2, 1}, float[6] empty = {0, 0, 0, 0, 0, 0}"
_WEIGHTS = "v = Gather<axis = 1>(x, column) e = Exp(v) p = ArgMax<axis = 1>(x) o = ArgMin<axis = 1>(x) "
_NODES = "s = Shape(x) z = Expand(zero, s) "
_WRITTEN = _WEIGHTS + _NODES + "t = ScatterElements<axis = 1, reduction = "
_ROWS = (
    "w = Expand(e, wide) r = Squeeze(p, column) u = Unsqueeze(r, column) c = Expand(u, wide) k = Expand(zero, table) "
    't = ScatterElements<axis = 0, reduction = "add">(k, c, w) '
)

ADDED = [
    Twins(
        "read where it was added, by elements",
        _WRITTEN + '"add">(z, p, e) g = GatherElements<axis = 1>(t, p) y = Div(e, g)',
        _WRITTEN + '"add">(z, p, e) g = GatherElements<axis = 1>(t, o) y = Div(e, g)',
        more=_EDGES,
    ),
    Twins(
        "added to what is not negative",
        _WRITTEN + '"add">(z, p, e) g = GatherElements<axis = 1>(t, p) y = Log(g)',
        _WRITTEN.replace("Expand(zero, s)", "Neg(x)") + '"add">(z, p, e) g = GatherElements<axis = 1>(t, p) y = Log(g)',
        more=_EDGES,
    ),
    Twins(
        "read where it was added, by vectors of indices",
        _WEIGHTS + "f = Squeeze(e, column) t = ScatterND<reduction = "
        '"add">(empty, p, f) g = GatherND(t, p) q = Div(f, g) y = Reshape(q, both)',
        _WEIGHTS + "f = Squeeze(e, column) t = ScatterND<reduction = "
        '"add">(empty, p, f) g = GatherND(t, o) q = Div(f, g) y = Reshape(q, both)',
        more=_EDGES,
    ),
    Twins(
        "read where rows were added",
        _WEIGHTS + _ROWS + "g = Gather<axis = 0>(t, r) y = Div(w, g)",
        _WEIGHTS + _ROWS + "j = Squeeze(o, column) g = Gather<axis = 0>(t, j) y = Div(w, g)",
        more=_EDGES + ", int64[2] wide = {2, 3}, int64[2] table = {6, 3}",
    ),
    Twins(
        "read where rows were added, by a column of indices",
        _WEIGHTS + _ROWS + "g = Gather<axis = 0>(t, r) y = Div(w, g)",
        _WEIGHTS + _ROWS.replace("Expand(u, wide)", "Expand(r, wide)") + "g = Gather<axis = 0>(t, r) y = Div(w, g)",
        more=_EDGES + ", int64[2] wide = {2, 2}, int64[2] table = {6, 2}",
    ),
    Twins(
        "added of one sign",
        _WRITTEN + '"add">(z, p, e) g = GatherElements<axis = 1>(t, p) y = Div(e, g)',
        _WRITTEN.replace("e = Exp(v)", "e = Sin(v)")
        + '"add">(z, p, e) g = GatherElements<axis = 1>(t, p) y = Div(e, g)',
        more=_EDGES,
    ),
]

_LABELS = (
    "int64[6] labels = {0, 2, 1, 2, 2, 0}, int64[1] a = {0}, int64[1] b = {1}, int64[1] c = {2}, int64[1] count = {2}, "
    "int64[1] across = {1}, int64[1] down = {0}"
)


def _vote(classes: str, along: str = "across", voters: str = "ttt", weight: str = "") -> str:
    body = "v, i = TopK(x, count) t = Gather(labels, i) z, j = TopK<largest = 0>(x, count) u = Gather(labels, j) "
    body += "e = Exp(v) "
    for number, (name, voter) in enumerate(zip(classes, voters, strict=True)):
        body += f"q{number} = Equal({voter}, {name}) n{number} = Cast<to = 1>(q{number}) "
        body += f"w{number} = Mul(n{number}, {weight}) " if weight else f"w{number} = Identity(n{number}) "
        body += f"s{number} = ReduceSum(w{number}, across) "
    return body + f"g = Concat<axis = 1>(s0, s1, s2) r = ReduceSum(g, {along}) y = Div(g, r)"


def _sign(minus: str) -> str:
    return (
        "v, i = TopK(x, count) u = Gather(signs, i) t = Unsqueeze(u, third) "
        "q0 = Equal(t, a) n0 = Cast<to = 1>(q0) s0 = ReduceSum(n0, third) "
        f"q1 = Equal(t, {minus}) n1 = Cast<to = 1>(q1) s1 = ReduceSum<keepdims = {int(minus == 'b')}>(n1, third) "
        "g = Concat<axis = 2>(s0, s1) n = ReduceSum<keepdims = 0>(g, third) y = Div(one, n)"
    )


VOTES = [
    Twins("a vote for one of all classes", _vote("abc"), _vote("abb"), more=_LABELS),
    Twins("votes for all classes together", _vote("cba"), _vote("cba", along="down"), more=_LABELS),
    Twins("votes of the same voters", _vote("abc"), _vote("abc", voters="tut"), more=_LABELS),
    Twins(
        "votes that are counted once",
        _sign("b"),
        _sign("twice"),
        more=_LABELS + ", int64[6] signs = {0, 1, 0, 1, 1, 0}, int64[1] third = {2}, int64[2, 1, 1, 1] twice = {1, 1}",
    ),
    Twins("votes with weights", _vote("abc", weight="e"), _vote("abc", weight="v"), more=_LABELS),
]

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
