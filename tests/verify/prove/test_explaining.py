"""Histories of operands over a problem's box."""

from __future__ import annotations

import numpy as np
import pytest

from ranum_falsify.config import ProveConfig
from ranum_falsify.errors import PropertyError
from ranum_falsify.verify.prove.explaining import histories
from tests.verify.search.search_kit import network, problem, valid_in_box

GRAPH = network("(float[2] x) => (float[2] y) { [square] q = Mul(x, x) [log] y = Log(q) }")


def test_bounds_over_the_box_of_the_property() -> None:
    found = histories(valid_in_box(GRAPH, [(1.0, 3.0)]), "log", ProveConfig())
    assert list(found) == ["N: log (Log)"]
    ((history,),) = found.values()
    assert next(step.node for step in history.chain) == "square"
    low, high = history.bounds
    assert low == pytest.approx(1.0) and high == pytest.approx(9.0)


def test_each_application_and_its_arguments() -> None:
    other = network("(float[2] x) => (float[2] y) { [square] q = Mul(x, x) [log] y = Log(q) }")
    text = "Forall(x, Implies(1 <= x <= 2, And(no_invalid_input(N(x)), no_invalid_input(M(x + 1)))))"
    found = histories(problem(text, networks={"N": GRAPH, "M": other}), "log", ProveConfig())
    assert sorted(found) == ["M: log (Log)", "N: log (Log)"]
    assert found["M: log (Log)"][0].bounds[1] == pytest.approx(9.0)
    assert found["N: log (Log)"][0].bounds[1] == pytest.approx(4.0)


def test_runtimes_have_bounds_of_their_own() -> None:
    graph = network("(float[2] x) => (float[2] y) { [squash] s = Sigmoid(x) [log] y = Log(s) }")
    reduced = valid_in_box(graph, [(-20.0, 0.0)])
    lows = {
        runtime: histories(reduced, "log", ProveConfig(runtime=(runtime,)))["N: log (Log)"][0].bounds[0]
        for runtime in ("onnxruntime", "torch")
    }
    assert lows["onnxruntime"] == 0 < lows["torch"]


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(PropertyError, match="no network of the property has this node; it has square, log") as error:
        histories(valid_in_box(GRAPH, [(1.0, 2.0)]), "exp", ProveConfig())
    assert "\n" not in str(error.value)
    with pytest.raises(PropertyError, match="did you mean square"):
        histories(valid_in_box(GRAPH, [(1.0, 2.0)]), "sqare", ProveConfig())


def test_constants_are_operands() -> None:
    graph = network(
        "(float[2] x) => (float[2] y) <float[2] zero = {1, 0}> { mask = Log(zero) [hide] y = Add(x, mask) }"
    )
    ((x, mask),) = histories(valid_in_box(graph, [(1.0, 3.0)]), "hide", ProveConfig()).values()
    assert (x.name, x.bounds) == ("a", (1.0, 3.0)) and x.chain
    assert (mask.name, mask.bounds, mask.chain) == ("b", (-np.inf, 0.0), ())
