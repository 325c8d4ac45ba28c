"""Operators of a loop that fail the same way in several iterations."""

import pytest

from ranum_falsify.results.text import describe_iterations, group_iterations


def test_only_alike_iterations_of_one_operator_are_one_group() -> None:
    entries = [
        ("loop/body/log[3]", "NaN", 0),
        ("loop/body/log[5]", "NaN", 1),
        ("loop/body/exp[5]", "NaN", 2),
        ("loop/body/log[6]", "infinity", 3),
        ("conv[1]", "NaN", 4),
        ("conv[2]", "NaN", 5),
        ("loop/body/log[6]", "NaN", 6),
    ]
    assert group_iterations(entries) == [(0, ["5", "6"]), (2, []), (3, []), (4, []), (5, [])]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (["4"], "1 more iteration: 4"),
        (["4", "5", "6", "9"], "4 more iterations: 4 to 6, 9"),
        (["1", "3", "5", "7", "9"], "5 more iterations: 1, 3, 5 and others"),
        (["0,1", "0,2"], "2 more iterations: 0,1, 0,2"),
    ],
)
def test_further_iterations_are_said_in_few_words(numbers: list[str], text: str) -> None:
    assert describe_iterations(numbers) == f"likewise in {text}"
