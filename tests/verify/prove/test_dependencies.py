"""What depends on what: open operators before an operator, through operands, arguments and conditions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ranum_falsify.network import Graph
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove.applications import find_applications, find_before
from tests.verify.search.search_kit import network, problem, valid_in_box

DIAMOND = network(
    "(float[2] x) => (float[2] y, float[2] z) "
    "{ [top] t = Log(x) [left] l = Sin(t) [right] r = Cos(x) [joined] y = Add(l, r) [beside] z = Exp(r) }"
)


def found(
    reduced: Problem,
    open_: Mapping[str, Collection[str]] = {},
    constants: Mapping[str, Sequence[str]] = {},
) -> dict[str, tuple[str, ...]]:
    """Return by `network/node` what stands before it; both tables by name of the network."""
    graphs = {id(call): call.graph for call in reduced.calls}
    failed = {
        id(call): {id(op) for op in call.graph.nodes if op.name in open_.get(call.network, ())}
        for call in reduced.calls
    }
    folded = {id(call): constants.get(call.network, ()) for call in reduced.calls}
    masks = find_before(reduced, graphs, failed, folded)
    return {f"{call.network}/{op.name}": masks[id(call)][id(op)] for call in reduced.calls for op in call.graph.nodes}


def test_an_operator_depends_on_what_its_operands_come_from() -> None:
    reduced = valid_in_box(DIAMOND, [(1.0, 2.0)])
    assert found(reduced, {"N": ["top"]}) == {
        "N/top": (),
        "N/left": ("top",),
        "N/right": (),
        "N/joined": ("top",),
        "N/beside": (),
    }
    both = found(reduced, {"N": ["top", "right"]})
    assert both["N/joined"] == ("top", "right") and both["N/beside"] == ("right",)
    assert set(found(reduced).values()) == {()}


def test_everything_depends_on_a_constant_that_may_be_invalid() -> None:
    after = found(valid_in_box(DIAMOND, [(1.0, 2.0)]), {"N": ["top"]}, {"N": ["folded"]})
    assert after["N/top"] == ("folded",) and after["N/joined"] == ("folded", "top")


def test_names_are_limited() -> None:
    body = " ".join(f"[n{i}] t{i + 1} = Neg(t{i})" for i in range(20))
    graph = network(f"(float[1] t0) => (float[1] t20) {{ {body} }}")
    after = found(valid_in_box(graph, [(0.0, 1.0)]), {"N": [f"n{i}" for i in range(20)]})
    assert after["N/n19"] == tuple(f"n{i}" for i in range(16))


def _nested(text: str) -> Problem:
    inner = network("(float[2] x) => (float[2] y) { [inside] y = Log(x) }")
    outer = network("(float[2] x) => (float[2] y) { [outside] y = Sin(x) }")
    return problem(f"Forall(x, Implies(-1 <= x <= 1, {text}))", networks={"N": outer, "M": inner})


def test_arguments_carry_what_is_open_inside_them() -> None:
    for argument in ("M(x)", "2 * M(x) + 1", "abs(x - M(x))"):
        after = found(_nested(f"no_invalid_input(N({argument}))"), {"M": ["inside"]})
        assert after["N/outside"] == ("M: inside",), argument
    beside = found(_nested("And(no_invalid_input(N(x)), no_invalid_input(M(x)))"), {"M": ["inside"]})
    assert beside["N/outside"] == ()


def test_the_condition_of_a_choice_counts() -> None:
    text = "no_invalid_input(N(IfThenElse(M(x)[0] > 0, x, -x)))"
    assert found(_nested(text), {"M": ["inside"]})["N/outside"] == ("M: inside",)


def test_applications_that_a_term_reads() -> None:
    reduced = _nested("no_invalid_input(N(M(x) + x))")
    (outer,) = [call for call in reduced.calls if call.network == "N"]
    assert [call.network for call in find_applications(outer.arguments[0])] == ["M"]
    (inner,) = [call for call in reduced.calls if call.network == "M"]
    assert list(find_applications(inner.arguments[0])) == []


def test_graphs_are_what_runs_not_what_is_written() -> None:
    # With one input as a constant the graph has fewer inputs than the application has arguments.
    graph = network("(float[2] x, float[2] w) => (float[2] y) { [sum] s = Add(x, w) [log] y = Log(s) }")
    reduced = valid_in_box(graph, [(1.0, 2.0), (1.0, 1.0)])
    fixed: Graph = graph.fix({graph.input_names[1]: np.ones(2, np.float32)})
    (call,) = reduced.calls
    failed = {id(call): {id(op) for op in fixed.nodes if op.name == "sum"}}
    masks = find_before(reduced, {id(call): fixed}, failed, {})
    (log,) = [op for op in fixed.nodes if op.name == "log"]
    assert masks[id(call)][id(log)] == ("sum",)
