"""Constants that are invalid where a stored condition chooses others keep nothing from being proved."""

from __future__ import annotations

import numpy as np
import pytest

import ranum_falsify as rf
from tests.network.building import parse, session

NUMBERS = "float[4] k = {0, 1, 2, 3}, float[4] one = {1, 1, 1, 1}"
POSITIVE = "bool[4] some = {0, 1, 1, 1}"

HOLD = {
    "the invalid element is not chosen": (
        f"<{NUMBERS}, {POSITIVE}> {{ l = Log(k) d = Where(some, l, one) y = Add(x, d) }}"
    ),
    "nothing of it is chosen": f"""<{NUMBERS}, bool none = {{0}}>
        {{ l = Log(k) s = ReduceSum(l) d = Where(none, s, one) y = Add(x, d) }}""",
    "0 / 0 is not chosen": f"""<{NUMBERS}, {POSITIVE}>
        {{ s = Sin(k) q = Div(s, k) d = Where(some, q, one) y = Add(x, d) }}""",
    "an integer that stands for -inf is not chosen": f"""
        <{NUMBERS}, {POSITIVE}, float four = {{4}}, int64[4] low = {{0, 1, 2, 3}}, int64 most = {{3}}>
        {{ l = Log(k) m = Mul(l, four) c = Cast<to = 7>(m) n = Min(c, most) b = Where(some, n, low)
           d = Gather(one, b) y = Add(x, d) }}""",
}
FAIL = {
    "the invalid element is chosen": (
        f"<{NUMBERS}, bool[4] other = {{1, 0, 0, 0}}> {{ l = Log(k) d = Where(other, l, one) y = Add(x, d) }}"
    ),
    "an operator that is no choice hides it": f"""<{NUMBERS}, {POSITIVE}>
        {{ l = Log(k) m = Max(l, one) d = Where(some, l, one) e = Add(m, d) y = Add(x, e) }}""",
    "all elements are computed from it": f"""<{NUMBERS}, {POSITIVE}>
        {{ l = Log(k) s = ReduceSum(l) d = Where(some, s, one) y = Add(x, d) }}""",
    "it is read beside what chooses": f"""<{NUMBERS}, {POSITIVE}>
        {{ l = Log(k) d = Where(some, l, one) e = Add(x, l) y = Add(e, d) }}""",
    "the condition is computed from it": f"""<{NUMBERS}>
        {{ l = Log(k) c = Less(l, one) d = Where(c, one, k) y = Add(x, d) }}""",
    "another element is invalid": f"""<{NUMBERS}, {POSITIVE}, float[4] high = {{0, 1, 2, 89}}>
        {{ l = Log(k) e = Exp(high) p = Add(l, e) d = Where(some, p, one) y = Add(x, d) }}""",
    "a branch reads it": f"""<{NUMBERS}, {POSITIVE}>
        {{ l = Log(k) d = Where(some, l, one) z = ReduceMax<keepdims = 0>(x) zero = Constant<value_float = 0.0>()
           c = Greater(z, zero)
           e = If (c) <then_branch = first () => (float[4] a) {{ a = Identity(l) }},
                       else_branch = second () => (float[4] b) {{ b = Identity(d) }}>
           y = Add(x, e) }}""",
}


def verdict(body: str) -> tuple[str, bool]:
    """The verdict over [-5, 5], and whether ONNX Runtime gives finite outputs at 0."""
    model = parse(f"g (float[4] x) => (float[4] y) {body}")
    (y,) = session(model, optimised=True).run(None, {"x": np.zeros(4, np.float32)})
    result = rf.check(model, box=(-5, 5), n_starts=1, timeout=5)
    return str(result.verdict), bool(np.isfinite(y).all())


@pytest.mark.parametrize("body", HOLD.values(), ids=HOLD)
def test_what_is_discarded_matters_to_nothing(body: str) -> None:
    assert verdict(body) == ("holds", True)


@pytest.mark.parametrize("body", FAIL.values(), ids=FAIL)
def test_what_is_read_keeps_the_model_open(body: str) -> None:
    assert verdict(body)[0] != "holds"
