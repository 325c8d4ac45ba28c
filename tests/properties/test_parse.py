"""Property files: what is accepted, and one line with file and line number for what is not."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranum_falsify.errors import PropertyError
from ranum_falsify.properties.language.parse import parse
from ranum_falsify.properties.problem.reduce import reduce
from tests.properties.properties_kit import HEAD, calls_of, network, run

GOOD = (
    HEAD
    + """N = Network("N")
low = Parameter("low", float, default=-1.0)
high = Parameter("high", float)

Forall(x, Implies(low <= x <= high, N(x) <= 2))
"""
)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_file(text: str | bytes, name: str = "p.py") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_file


def failure(path: Path, parameters: dict[str, str] | None = None) -> str:
    with pytest.raises(PropertyError) as caught:
        parse(path, parameters)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(str(path))
    return message.removeprefix(str(path))


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


# ---------------------------------------------------------------------------------------------------------- VNN-LIB

SPEC = """; a comment; (assert (<= X_0 99))
(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (<= X_0 1e-05))
(assert (>= X_0 -1.5E+3))
(assert (<= -2 X_1))
(assert (<= X_1 .5))
(assert (or
  (and (<= Y_0 Y_1) (>= Y_0 1.))
  (and (>= Y_1 (+ (* 2.0 Y_0) 3)))))
; a last comment, with ä and no line end"""


def vnnlib_network(inputs: int = 2, outputs: int = 2) -> Any:
    return network(f"(float[1,{inputs}] x) => (float[1,{outputs}] y) {{ y = Neg(x) }}")


def test_vnnlib_numbers_comments_and_disjunctions(write: Any) -> None:
    for name, data in (("a.vnnlib", SPEC.encode()), ("b.vnnlib.gz", gzip.compress(SPEC.encode()))):
        reduced = reduce(parse(write(data, name)), {"N": vnnlib_network()})
        (x,) = reduced.inputs
        assert x.lower.tolist() == [[-1500, -2]]
        assert x.upper[0, 1] == 0.5 and 0 < 1e-5 - float(x.upper[0, 0]) < 1e-12
        assert reduced.clause_names[1].startswith("not (Y_1 >= ")

        for point, expected in {
            (-1, -1): False,
            (-0.5, -1): True,
            (-2, -2): False,
            (-2, -1): True,
            (9, 9): True,
        }.items():
            assert reduced.holds({"X": np.array([point], np.float32)}, run) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("(assert (<= X_0 1e-05))", "(assert (<= X_7 1))"), ":6: unknown identifier 'X_7'"),
        (("(declare-const X_1 Real)", "(declare-const X_0 Real)"), ":3: identifier 'X_0' is declared twice"),
        (("(<= Y_0 Y_1)", "(<= Y_0 Y_9)"), ":11: unknown identifier 'Y_9'"),
        (("(<= Y_0 Y_1)", "(nonsense Y_0 Y_1)"), ":11: unknown identifier 'nonsense'"),
        (("(<= Y_0 Y_1)", "(let ((a Y_0)) (<= a Y_1))"), "'let' is not currently supported"),
        (("3)))))", "3))))"), "unexpected end of file"),
        (("(assert (or", "(assert [or"), ":10: unexpected character '['"),
    ],
)
def test_what_is_wrong_in_vnnlib_is_said_with_its_line(write: Any, change: tuple[str, str], message: str) -> None:
    assert change[0] in SPEC
    assert message in failure(write(SPEC.replace(*change), "a.vnnlib"))


def test_vnnlib_has_no_parameters(write: Any) -> None:
    assert "has no parameters" in failure(write(SPEC, "a.vnnlib"), {"eps": "1"})


def test_an_index_beyond_the_network_is_an_error(write: Any) -> None:
    with pytest.raises(PropertyError, match="index 1 is out of bounds"):
        reduce(parse(write(SPEC, "a.vnnlib")), {"N": vnnlib_network(1, 1)})


def many_assertions(count: int) -> str:
    lines = [f"(declare-const {name}_{i} Real)" for name in "XY" for i in range(count)]
    for i in range(count):
        lines += [f"(assert (<= X_{i} {0.5 + i * 1e-4}))", f"(assert (>= X_{i} {-i * 1e-4}))"]
    lines.append("(assert (or " + " ".join(f"(and (>= Y_{i} Y_9))" for i in range(9)) + "))")
    return "\n".join(lines)


def test_work_grows_with_the_number_of_assertions_and_no_faster(write: Any) -> None:
    def work(count: int) -> int:
        path, graph = write(many_assertions(count), "big.vnnlib"), vnnlib_network(count, count)
        return calls_of(lambda: reduce(parse(path), {"N": graph}))

    work(64)  # what is imported or cached at the first use
    assert work(1024) < 4.5 * work(256)


def test_thousands_of_assertions(write: Any) -> None:
    reduced = reduce(parse(write(many_assertions(3072), "big.vnnlib")), {"N": vnnlib_network(3072, 3072)})
    assert len(reduced.clauses) == 9 and not reduced.penalties
    np.testing.assert_allclose(reduced.inputs[0].upper[0], 0.5 + np.arange(3072) * 1e-4, rtol=1e-6)


def test_mutated_files_raise_nothing_else(write: Any) -> None:
    rng = random.Random(0)
    for text, name in ((GOOD, "p.py"), (SPEC, "p.vnnlib")):
        for _ in range(200):
            mutated = bytearray(text.encode())
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(mutated))
                choice = rng.randrange(3)
                if choice == 0:
                    mutated[at] = rng.randrange(256)
                elif choice == 1:
                    del mutated[at : at + rng.randint(1, 9)]
                else:
                    mutated[at:at] = rng.choice([b"(", b")", b"1e9", b"x", b"\n", b"-", b",", b"N("])
            try:
                phi = parse(write(bytes(mutated), name), {"high": "1"} if name == "p.py" else None)
                reduce(phi, {"N": network() if name == "p.py" else vnnlib_network()})
            except PropertyError as error:
                assert "\n" not in str(error)
