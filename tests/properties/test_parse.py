"""Property files: what is accepted, and one line with file and line number for what is not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.language.parse import parse
from ranum_falsify.properties.problem.reduce import reduce
from tests.properties.properties_kit import HEAD, failure, mutate, network

GOOD = (
    HEAD
    + """N = Network("N")
low = Parameter("low", float, default=-1.0)
high = Parameter("high", float)

Forall(x, Implies(low <= x <= high, N(x) <= 2))
"""
)


def test_parameters_are_converted_by_their_type(write: Any) -> None:
    phi = parse(write(GOOD), {"high": "3"})
    reduced = reduce(phi, {"N": network()})
    assert reduced.inputs[0].lower[0, 0] == -1 and reduced.inputs[0].upper[0, 0] == 3


def test_a_file_can_be_parsed_again_with_other_parameters(write: Any) -> None:
    path = write(GOOD)
    uppers = [reduce(parse(path, {"high": high}), {"N": network()}).inputs[0].upper[0, 0] for high in ("1", "5")]
    assert uppers == [1, 5]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, ": parameter 'high' has no value; give --prop.high=VALUE"),
        ({"high": "much"}, ": parameter 'high' takes float, got 'much'"),
        ({"high": "1", "hihg": "1"}, ": the property has no parameter 'hihg'; did you mean 'high'?"),
        ({"high": "1", "zzz": "1"}, ": the property has no parameter 'zzz'; its parameters: high, low"),
    ],
)
def test_bad_parameters(write: Any, parameters: dict[str, str], message: str) -> None:
    assert failure(write(GOOD), parameters) == message


@pytest.mark.parametrize(("text", "value"), [("True", True), ("false", False), ("0", False), ("yes", True)])
def test_booleans_are_read_by_name(write: Any, text: str, value: bool) -> None:
    source = HEAD + 'N = Network("N")\nwide = Parameter("wide", bool)\n'
    phi = parse(write(source + "Forall(x, Implies(0 <= x <= IfThenElse(wide, 5, 1), N(x) <= 2))"), {"wide": text})
    assert reduce(phi, {"N": network()}).inputs[0].upper[0, 0] == (5 if value else 1)
    assert "takes bool" in failure(write(source + "Forall(x, N(x) <= 2)"), {"wide": "maybe"})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("Forall(x, Implies(0 <= x <= 1, N(x) <= 2)", ":5: syntax error: '(' was never closed"),
        ("Forall(x,\n  N(x) <= 2))", ":6: syntax error: unmatched ')'"),
        ("for i in range(3):\n    pass\nForall(x, N(x) < 1)", ":5: not DNNP: only imports and assignments"),
        ("def f(x):\n    return x\nForall(x, f(x) < 1)", ":5: not DNNP"),
        ("y = N", ":5: not DNNP: the last statement must be the property"),
        ("1 + 2", ":"),
        ("Forall(x, [N(x) for i in 3])", ":5: not DNNP: "),
        ("a.b = 3\nForall(x, N(x) < 1)", ":5: not DNNP: "),
        ("c = np.load('missing.npy')\nForall(x, N(x) < c)", ":5: FileNotFoundError: "),
        ("import a_module_that_is_not_there\nForall(x, N(x) < 1)", ":5: ModuleNotFoundError: "),
        ("from ranum_falsify.properties import nothing\nForall(x, N(x) < 1)", ":5: ImportError: "),
        ("Forall(x, 0 <= x and N(x) <= 1)", "write And(a, b), Or(a, b), Not(a) instead of `and`, `or`, `not`"),
        ("Forall(x, N(x) ** 2 < 1)", ":5: TypeError: "),
        ("import sys\nq = sys.exit(3)\nForall(x, N(x) < 1)", ":6: SystemExit: 3"),
        ("q = no_invalid_input(3)\nForall(x, N(x) < 1)", ":5: no_invalid_input is written as no_invalid_input(N(x)"),
        ("3", ":"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(write: Any, body: str, message: str) -> None:
    assert message in failure(write(HEAD + 'N = Network("N")\n' + body))


def test_files_that_are_no_text(write: Any, tmp_path: Path) -> None:
    assert "no such property file" in failure(tmp_path / "none.py")
    assert "is a directory" in failure(tmp_path)
    assert failure(write(b"# fine\n# \xff\xfe\n")).startswith(":2: not UTF-8")
    assert "no property" in failure(write(""))
    assert "not a property" in failure(write("x = 1\0")) or "syntax error" in failure(write("x = 1\0"))
    assert "cannot be read" in failure(write(b"\x1f\x8b broken", "p.vnnlib.gz"))


def test_nothing_is_printed_or_left_in_argv(write: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.argv", ["prog", "--prop.high=7", "-h"])
    with pytest.raises(PropertyError):
        parse(write(GOOD))
    parse(write('"\\d"\n' + GOOD), {"high": "1"})
    assert capsys.readouterr() == ("", "")


def test_a_property_knows_its_path(write: Any) -> None:
    folder = write(b"x", "unused").parent
    np.save(folder / "centre.npy", np.full((2, 3), 0.5, np.float32))
    body = (
        'N = Network("N")\nc = np.load(__path__.parent / "centre.npy")\nForall(x, Implies(c <= x <= c + 1, N(x) <= c))'
    )
    reduced = reduce(parse(write(HEAD + body)), {"N": network()})
    assert reduced.inputs[0].lower[1, 2] == 0.5


def test_mutated_files_raise_nothing_else(write: Any) -> None:
    rng = random.Random(0)
    for _ in range(200):
        try:
            reduce(parse(write(mutate(GOOD, rng)), {"high": "1"}), {"N": network()})
        except PropertyError as error:
            assert "\n" not in str(error)
