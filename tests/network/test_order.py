"""Topological order: by identity, without recursion, in the order of the fields."""

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import Add, Concat, Input, OutputSelect, Relu
from hypothesis import given
from hypothesis import strategies as st

from ranum_falsify.network.order import operands_in, topological_order


def source(name: str = "x") -> Operation:
    return Input(np.array([1, 2]), np.dtype(np.float32), name=name)


def names(outputs: list[Operation]) -> list[str]:
    return [op.name for op in topological_order(outputs)]


def test_operands_come_first_and_in_field_order() -> None:
    a, b = source("a"), source("b")
    assert names([Add(b, a, name="sum")]) == ["b", "a", "sum"]


def test_operands_within_tuples_and_lists_count() -> None:
    a, b = source("a"), source("b")
    for operands in ([a, np.ones(2), b], (a, np.ones(2), b)):
        joined = Concat(operands, axis=0, name="joined")
        assert list(map(id, operands_in(joined))) == [id(a), id(b)]
        assert names([joined]) == ["a", "b", "joined"]


def test_an_operand_that_is_read_twice_is_listed_once() -> None:
    a = source("a")
    both = Add(a, a, name="sum")
    assert list(map(id, operands_in(both))) == [id(a), id(a)]
    assert names([both, a]) == ["a", "sum"]


def test_equal_twins_are_two() -> None:
    a = source("a")
    left, right = Relu(a, name="same"), Relu(a, name="same")
    assert left == right and left is not right
    assert names([Add(left, right, name="sum")]) == ["a", "same", "same", "sum"]


def test_the_outputs_order_decides_what_is_not_decided_by_operands() -> None:
    a, b = source("a"), source("b")
    assert names([b, a]) == ["b", "a"]
    assert names([OutputSelect(b, 0, name="s"), a]) == ["b", "s", "a"]
    assert names([]) == []


def test_depth_does_not_matter() -> None:
    op = source()
    for _ in range(50_000):
        op = Relu(op, name="r")
    order = topological_order([op])
    assert len(order) == 50_001
    assert order[-1] is op


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30))
def test_every_operand_comes_before_its_users(edges: list[tuple[int, int]]) -> None:
    made = [source()]
    for left, right in edges:
        made.append(Add(made[left % len(made)], made[right % len(made)], name="sum"))
    order = topological_order(made[-3:])
    place = {id(op): i for i, op in enumerate(order)}
    assert len(place) == len(order)
    for op in order:
        assert all(place[id(operand)] < place[id(op)] for operand in operands_in(op))
