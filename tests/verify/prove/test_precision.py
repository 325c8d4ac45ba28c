"""What must stay in float32: enough, no more than is needed, and honest where time is up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ranum_falsify.config import ProveConfig
from ranum_falsify.network.precision import convert_precision
from ranum_falsify.process.deadline import NEVER, Deadline
from ranum_falsify.verify.prove.precision import Node, float32_nodes
from ranum_falsify.verify.prove.prover import Prover
from tests.verify.search.search_kit import network, valid_in_box

CHAIN = network("(float[2] x) => (float[2] y) { [a] s = Abs(x) [b] t = Neg(s) [c] u = Sin(t) [d] y = Neg(u) }")


def nodes(*names: str) -> frozenset[Node]:
    return frozenset(("N", name) for name in names)


def open_unless(needed: dict[str, set[str]]) -> Callable[[frozenset[Node]], frozenset[Node]]:
    """An analysis that leaves each node open unless all that it needs is kept."""

    def open_nodes(keep: frozenset[Node]) -> frozenset[Node]:
        return frozenset(("N", node) for node, wanted in needed.items() if not nodes(*wanted) <= keep)

    return open_nodes


def test_nothing_is_open() -> None:
    found = float32_nodes({"N": CHAIN}, lambda keep: frozenset(), deadline=NEVER)
    assert (found.nodes, found.minimal, found.left) == ((), True, ())


def test_open_nodes_are_kept_in_topological_order() -> None:
    found = float32_nodes({"N": CHAIN}, open_unless({"c": {"c"}, "a": {"a"}}), deadline=NEVER)
    assert (found.nodes, found.minimal, found.left) == ((("N", "a"), ("N", "c")), True, ())


def test_what_stands_before_an_open_node_is_kept_where_the_node_alone_does_not_help() -> None:
    found = float32_nodes({"N": CHAIN}, open_unless({"c": {"a", "b", "c"}}), deadline=NEVER)
    assert found.nodes == tuple(("N", name) for name in "abc") and found.minimal


def test_a_result_that_overflows_is_kept_by_its_readers() -> None:
    found = float32_nodes({"N": CHAIN}, open_unless({"s_cast_to_fp16_node": {"a", "b", "c"}}), deadline=NEVER)
    assert found.nodes == tuple(("N", name) for name in "abc") and found.minimal


def test_what_turns_out_not_to_be_needed_is_left_out() -> None:
    # The node itself comes first, then what is before it, after which it is not needed any more.
    found = float32_nodes({"N": CHAIN}, open_unless({"c": {"b"}}), deadline=NEVER)
    assert (found.nodes, found.minimal) == ((("N", "b"),), True)


def test_what_no_choice_closes_is_said() -> None:
    def open_nodes(keep: frozenset[Node]) -> frozenset[Node]:
        return nodes("a") | (nodes() if ("N", "d") in keep else nodes("d"))

    found = float32_nodes({"N": CHAIN}, open_nodes, deadline=NEVER)
    assert (found.nodes, found.left) == ((("N", "d"),), (("N", "a"),))


def test_no_time_leaves_out_that_the_list_is_minimal() -> None:
    found = float32_nodes({"N": CHAIN}, open_unless({"c": {"c"}}), deadline=Deadline.after(0))
    assert (found.nodes, found.minimal) == ((("N", "c"),), False)


def test_nodes_of_several_networks_are_told_apart() -> None:
    other = network("(float[2] x) => (float[2] y) { [c] y = Sin(x) }")
    found = float32_nodes({"N": CHAIN, "M": other}, lambda keep: frozenset({("M", "c")}) - keep, deadline=NEVER)
    assert found.nodes == (("M", "c"),)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_analysis_of_a_real_conversion(dtype: str) -> None:
    # The square leaves float16 for inputs above 256; bfloat16 reaches as far as float32.
    graph = network("(float[2] x) => (float[2] y) { [square] q = Mul(x, x) [root] y = Sqrt(q) }")

    def open_nodes(keep: frozenset[Node]) -> frozenset[Node]:
        half = convert_precision(graph, dtype, [name for _, name in keep])  # type: ignore[arg-type]
        proof = Prover(valid_in_box(half, [(0.0, 1000.0)]), ProveConfig()).analyse()
        return frozenset(("N", operator.node) for operator in proof.operators.values() if operator.open)

    found = float32_nodes({"N": graph}, open_nodes, deadline=NEVER)
    expected = ("square", "root") if dtype == "float16" else ()
    assert (tuple(name for _, name in found.nodes), found.minimal, found.left) == (expected, True, ())
