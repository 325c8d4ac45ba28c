"""Counterexamples in the format of VNN-COMP: written exactly, read with an eye on what may be wrong."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from ranum_falsify.api.assignments import read_assignment, split_inputs, write_assignment
from ranum_falsify.errors import UsageError

F32 = np.dtype("float32")


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.1, -0.0], [1e-45, 3.4e38]], np.float32),
        np.array([1 / 3, 5e-324, -1.7e308]),
        np.array([65504, 6e-8], np.float16),
        np.array([2**53 + 1, -(2**63)], np.int64),
        np.array([True, False]),
        np.array([np.inf, -np.inf, np.nan], np.float32),
    ],
    ids=lambda array: str(array.dtype),
)
def test_numbers_are_exact(tmp_path: Path, array: np.ndarray) -> None:
    path = tmp_path / "cex.vnnlib.txt"
    path.write_bytes(write_assignment([array], [np.zeros(2, np.float32)]))
    read = split_inputs(path, [("x", array.shape, array.dtype)])["x"]
    assert read.dtype == array.dtype and read.shape == array.shape
    assert np.array_equal(read.view(np.uint8), array.view(np.uint8)) or np.array_equal(read, array, equal_nan=True)


def test_the_checker_of_the_competition_reads_it(tmp_path: Path) -> None:
    text = write_assignment([np.array([0.5, -1.0])], [np.array([2.25])]).decode()
    assert text == "((X_0 0.5)\n(X_1 -1.0)\n(Y_0 2.25))\n"


def test_several_inputs_are_numbered_on(tmp_path: Path) -> None:
    path = tmp_path / "cex.counterexample.gz"
    path.write_bytes(gzip.compress(b"sat\n((Y_0 1)\n (X_2  3e0)\n (X_0 1) (X_1 2))"))
    found = split_inputs(path, [("a", (3,), F32)])
    assert found["a"].tolist() == [1, 2, 3]
    both = split_inputs(path, [("a", (1, 1), F32), ("b", (2,), F32)])
    assert both["a"].tolist() == [[1]] and both["b"].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no counterexample of VNN-COMP; write"),
        ("unsat", "is no counterexample of VNN-COMP; write"),
        ("((X_0 1) (X_1 2)", "is no counterexample"),
        ("((X_0 1) (Z_1 2))", "is no counterexample"),
        ("((X_0 1) (X_2 2))", "X_1 is missing; give every number from X_0 to X_2"),
        ("((X_0 1) (X_1 1) (X_1 2))", "X_1 has two values; give it one"),
        ("((X_0 1))", "has 1 inputs X_i, the model takes 2"),
        ("((X_0 1) (X_1 one))", "X_1: 'one' is no value of float32; correct it"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cex.vnnlib.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        split_inputs(path, [("x", (2,), F32)])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read \(no such file or directory\)"):
        read_assignment(tmp_path / "none.vnnlib.txt")
