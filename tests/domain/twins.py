"""Pairs of networks that differ in what makes one of them safe, and those with gated numbers."""

from dataclasses import dataclass

__all__ = ["ADDED", "FLAGGED", "GATED", "KEPT", "VOTES", "Twins"]


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
        "k = Mul(half, x) a = Mul(x, root) e = Erf(a) f = Add(two, e) g = Mul(f, k) t = Add(g, fifth) y = Log(t)",
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

FLAGGED = [
    Twins(
        "a share, where nothing is shared by one",
        "a = Abs(x) s = ReduceSum(a, last) c = Equal(s, zero) r = Where(c, one, s) q = Div(a, r) t = Sub(five, q) "
        "y = Log(t)",
        "a = Abs(x) s = ReduceSum(a, last) c = Equal(s, one) r = Where(c, one, s) q = Div(a, r) t = Sub(five, q) "
        "y = Log(t)",
        more="float five = {5}",
    ),
    Twins(
        "a share, with a flag in place of nothing",
        "a = Abs(x) s = ReduceSum(a, last) b = Cast<to = 9>(s) c = Not(b) f = Cast<to = 1>(c) r = Add(s, f) "
        "q = Div(a, r) t = Sub(five, q) y = Log(t)",
        "a = Abs(x) s = ReduceSum(a, last) c = Cast<to = 9>(s) f = Cast<to = 1>(c) r = Add(s, f) "
        "q = Div(a, r) t = Sub(five, q) y = Log(t)",
        more="float five = {5}",
    ),
    Twins(
        "a flag that keeps a number from 0",
        "a = Abs(x) d = LessOrEqual(a, half) f = Cast<to = 1>(d) r = Add(f, a) y = Log(r)",
        "a = Abs(x) d = GreaterOrEqual(a, half) f = Cast<to = 1>(d) r = Add(f, a) y = Log(r)",
    ),
    Twins(
        "where n == 0, whole numbers, not fractions",
        "i = Cast<to = 7>(x) z = Cast<to = 7>(zero) o = Cast<to = 7>(one) c = Equal(i, z) w = Where(c, "
        "o, i) y = Div(o, w)",
        "c = Equal(x, zero) w = Where(c, one, x) y = Div(one, w)",
    ),
    Twins(
        "where n == 0, a remainder",
        "i = Cast<to = 7>(x) z = Cast<to = 7>(zero) o = Cast<to = 7>(one) c = Equal(i, z) w = Where(c, "
        "o, i) y = Mod(o, w)",
        "i = Cast<to = 7>(x) z = Cast<to = 7>(zero) o = Cast<to = 7>(one) c = Equal(i, o) w = Where(c, "
        "o, i) y = Mod(o, w)",
    ),
]
