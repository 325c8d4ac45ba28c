"""Chains of passes for other tools."""

from __future__ import annotations

import pytest

from ranum_falsify.rewrite.catalogue import find_pass
from ranum_falsify.rewrite.passes.chains import CHAINS
from tests.rewrite.transform_kit import operators, transformed


@pytest.mark.parametrize("tools", CHAINS)
def test_no_pass_gives_what_an_earlier_one_takes_away(tools: str) -> None:
    taken: dict[str, str] = {}
    for name in CHAINS[tools].passes:
        spec = find_pass(name).spec
        back = {
            operator: taken[operator] for operator in spec.gives if operator in taken and operator not in spec.takes
        }
        assert not back, name
        taken |= dict.fromkeys(spec.takes, name)


@pytest.mark.parametrize("tools", CHAINS)
def test_what_may_be_left_is_not_taken(tools: str) -> None:
    chain = CHAINS[tools]
    taken = {operator for name in chain.passes for operator in find_pass(name).spec.takes}
    assert not taken & set(chain.operators) - {"Constant"}


@pytest.mark.slow
def test_a_network_of_many_operators_is_left_with_few() -> None:
    text = """g (float[2, 1, 4] x) => (float[2, 3] y)
        <float[1, 8, 4] w = {0.1, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3, 0.4,
                             0.4, 0.3, 0.2, 0.1, 0.4, 0.3, 0.2, 0.1, 0.4, 0.3, 0.2, 0.1, 0.4, 0.3, 0.2, 0.1},
         float[1, 8, 2] r = {0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 0.5, 0.6},
         int64[1] one = {1}, int64[2] both = {1, 0}, float[2, 3] v = {1, -1, 2, -2, 3, 0.5}> {
        s, h, c = LSTM<hidden_size = 2>(x, w, r)
        l = Squeeze(s, one) q = Gather<axis = 0>(l, both)
        a = Abs(q) m = Max(a, q) e = LeakyRelu(m) f = Flatten(e) n = Neg(f) y = MatMul(n, v) }"""
    done = transformed(text, CHAINS["vnncomp"].passes, samples=8)
    assert set(operators(done.model)) <= set(CHAINS["vnncomp"].operators)
