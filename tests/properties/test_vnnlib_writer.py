"""Properties written as VNN-LIB mean what they meant."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.properties.language.parse import parse_text
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.properties.problem.vnnlib_writer import Naming, VnnlibText, write_vnnlib
from tests.properties.properties_kit import Batch, evaluate, network, problem

GRAPH = network()
THREE = "Or(N(x)[0, 0] > {k}, N(x)[0, 1] > {k}, N(x)[1, 1] < {k})"
PLAIN = Naming(inputs={"x": 0}, outputs={0: 0}, input_count=6, output_count=6)
_y = st.builds(lambda i, j: f"N(x)[{i}, {j}]", st.integers(0, 1), st.integers(0, 2))
_pair = st.sampled_from([(f"N(x)[{i}, {j}]", f"N(x)[{k}, {m}]") for i, j, k, m in [(0, 0, 0, 1), (0, 2, 1, 0)]])
_number = st.sampled_from(["-1", "0", "0.1", "1", "1.5"])
_scalar = st.one_of(
    _y,
    st.builds(lambda pair: f"({pair[0]} - {pair[1]})", _pair),
    st.builds(lambda pair: f"abs({pair[0]} - {pair[1]})", _pair),
    st.builds(lambda a, c: f"({c} * {a})", _y, _number),
    st.builds(lambda a, b: f"max({a}, {b})", _y, _y),
    st.builds(lambda pair, c: f"({c} * min({pair[0]}, {pair[1]}) - N(x)[1, 1])", _pair, _number),
    st.sampled_from(["np.max(N(x))", "np.min(N(x)[0])", "np.sum(N(x)[1])", "np.mean(N(x)[0, :2])", "x[0, 0]"]),
)
_atom = st.one_of(
    st.builds(
        lambda a, op, b: f"({a} {op} {b})",
        _scalar,
        st.sampled_from(["<=", "<", ">=", ">", "==", "!="]),
        st.one_of(_number, _y),
    ),
    st.sampled_from(["(N(x) <= 1)", "(N(x) > -1)", "np.any(N(x) >= 1)", "(N(x)[0] == N(x)[1])"]),
    st.builds(
        lambda kind, op, k: f"(np.{kind}(N(x)) {op} {k})",
        st.sampled_from(["argmax", "argmin"]),
        st.sampled_from(["==", "!="]),
        st.integers(0, 6),
    ),
)
_formula = st.recursive(
    _atom,
    lambda inner: st.one_of(
        st.builds("And({}, {})".format, inner, inner),
        st.builds("Or({}, {})".format, inner, inner),
        st.builds("Not({})".format, inner),
        st.builds("Implies({}, {})".format, inner, inner),
    ),
    max_leaves=4,
)
_premise = st.sampled_from(
    [
        "-2 <= x <= 2",
        "And(-2 <= x <= 2, x[0, 0] < x[0, 1])",
        "And(-2 <= x <= 2, Or(x[0, 0] <= -1, x[1, 1] > 0.1))",
        "And(-2 <= x <= 2, 2 * x[0, 2] < 1, x[0, 0] != x[0, 1])",
    ]
)


def read_back(written: VnnlibText, graph: Graph = GRAPH) -> Problem:
    return reduce(parse_text(written.text, Path("written.vnnlib"), {}, vnnlib=True), {"N": graph})


def points() -> np.ndarray:
    """Points of the box on a coarse grid, so that many elements are equal, and their neighbours."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(-2, 3, (200, 2, 3)).astype(np.float32)
    fine = rng.choice(np.array([-1.5, -0.1, 0.1, 1.0], np.float32), (100, 2, 3))
    beside = np.nextafter(coarse, rng.choice(np.array([-3, 3], np.float32), coarse.shape))
    return np.asarray(np.clip(np.concatenate([coarse, fine, beside]), -2, 2))


@pytest.mark.slow
@settings(deadline=None)
@given(_premise, _formula)
def test_what_is_written_means_the_same(premise: str, formula: str) -> None:
    try:
        asked = problem(f"Forall(x, Implies({premise}, {formula}))")
    except PropertyError:
        return  # it says nothing about the network, or nothing that DNNV takes
    try:
        written = write_vnnlib(asked, PLAIN)
    except PropertyError as error:
        assert "extreme" in str(error), error
        return
    again = read_back(written)
    batch = points()
    old, new = evaluate(asked, x=batch).violated, evaluate(again, X=batch).violated
    if any("strict" in notice for notice in written.notices):
        assert (new | ~old).all(), "the file is only stricter"
        distinct = np.array(
            [len(np.unique(np.concatenate([sample.ravel(), -sample.ravel()]))) == 12 for sample in batch]
        )
        old, new = old[distinct], new[distinct]
    assert (old == new).all(), written.text


def test_the_file_is_in_the_words_that_tools_read() -> None:
    asked = problem("Forall(x, Implies(0 <= x <= 0.1, np.argmax(N(x)) == 1))")
    written = write_vnnlib(asked, PLAIN)
    lines = written.text.splitlines()
    assert lines[:2] == ["; What a counterexample satisfies.", "(declare-const X_0 Real)"]
    assert "(assert (>= X_0 0.0))" in lines
    largest = next(line for line in lines if line.startswith("(assert (<= X_0 "))
    assert np.float32(re.findall(r"[\d.]+(?=\)\))", largest)[0]) == np.nextafter(np.float32(0.1), np.float32(0))
    assert lines[-7:] == [
        "(assert (or",
        "    (and (<= Y_1 Y_0))",
        *(f"    (and (<= Y_1 Y_{number}))" for number in range(2, 6)),
        "))",
    ]
    assert written.notices[0].startswith("4 strict comparisons are written as <= or >=")


def test_strict_comparisons_with_numbers_are_exact() -> None:
    written = write_vnnlib(problem("Forall(x, Implies(0 <= x <= 1, N(x)[0, 0] <= 0.5))"), PLAIN)
    assert not written.notices
    bound = re.findall(r"\(assert \(>= Y_0 ([\d.]+)\)\)", written.text)
    assert [float(text) for text in bound] == [float(np.nextafter(np.float32(0.5), np.float32(1)))]


@pytest.mark.parametrize("dtype", ["float16", "double", "bfloat16"])
def test_the_next_number_is_that_of_the_element_type(dtype: str) -> None:
    graph = network(f"({dtype}[1] x) => ({dtype}[1] y) {{ y = Neg(x) }}")
    asked = problem("Forall(x, Implies(-1 <= x <= 1, And(N(x) <= 0.5, N(x) > -0.3)))", networks={"N": graph})
    written = write_vnnlib(asked, Naming(inputs={"x": 0}, outputs={0: 0}, input_count=1, output_count=1))
    assert not written.notices
    again = read_back(written, graph)
    x = torch.linspace(-1, 1, 4001).to(to_torch(np.zeros(1, asked.inputs[0].dtype)).dtype)[:, None]
    old, new = (one.margins({one.inputs[0].name: x}, Batch()).violated for one in (asked, again))
    assert (old == new).all()


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("np.sqrt(N(x)[0, 0]) <= 1", "VNN-LIB cannot say 'sqrt'"),
        ("np.argmax(N(x)) <= 2", "VNN-LIB cannot say 'Arg'"),
        ("max(N(x)[0, 0], 0) / 2 <= 2", "quotient of extremes"),
        (f"And(N(x)[1, 0] < 9, Not(And({', '.join(THREE.format(k=k) for k in range(12))})))", "50,000 comparisons"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_an_error(formula: str, said: str) -> None:
    with pytest.raises(PropertyError, match=re.escape(said)):
        write_vnnlib(problem(f"Forall(x, Implies(0 <= x <= 1, {formula}))"), PLAIN)
