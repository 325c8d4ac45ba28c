"""`--proof`, and the command `check-proof`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.workshop import Workshop

ROOT = "g (float[1, 2] x) => (float[1, 2] y) { [root] y = Sqrt(x) }"
QUOTIENT = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { [quotient] y = Div(x, w) }"


def prove(workshop: Workshop, model: Path, *options: str) -> Path:
    file = workshop.folder / "p.npz"
    assert workshop.run("check", model, *options, "--proof", file).status == 0
    return file


def test_a_proof_is_written_and_accepted(workshop: Workshop) -> None:
    model = workshop.model(ROOT)
    file = prove(workshop, model, "--box", "1", "2")
    run = workshop.run("check-proof", file, "--network", "N", model, "--box", "1", "2")
    assert (run.status, run.err) == (0, "")
    lines = run.out.splitlines()
    assert lines[0] == "accepted for onnxruntime: no operator makes NaN or infinity"
    assert lines[1].startswith(f"model: {model} (sha256 ")
    assert lines[2:4] == [
        "box: x: float32 [1, 2] in [1, 2]",
        "the model: 1 of 1 operators that can fail are shown not to; operators: 1",
    ]
    assert lines[4].startswith("what ONNX Runtime ") and lines[5].startswith("not covered: ")


def test_the_question_is_asked_and_not_read(workshop: Workshop) -> None:
    model = workshop.model(ROOT)
    file = prove(workshop, model, "--box", "1", "2")
    ask = ("check-proof", file, "--network", "N")
    run = workshop.run(*ask, model, "--box", "0", "2")
    assert (run.status, run.out) == (1, "rejected: its box of x is not that of the question, nor around it\n")
    run = workshop.run(*ask, model, "--box", "1.25", "2")
    assert run.status == 0 and "note: the file is about a larger box of x\n" in run.out
    run = workshop.run(*ask, model, "--box", "1", "2", "--runtime", "torch")
    assert (run.status, run.out) == (1, "rejected: it is not about runtime torch\n")
    other = workshop.model(ROOT.replace("Sqrt", "Log"), "other.onnx")
    run = workshop.run(*ask, other, "--box", "1", "2")
    assert (run.status, run.out) == (1, "rejected: it is of another model\n")
    assert "nothing says what the inputs range over" in workshop.run(*ask, model).error
    assert "it has x" in workshop.run(*ask, model, "--box", "z=1,2").error


def test_what_is_not_shown_is_not_accepted(workshop: Workshop) -> None:
    model = workshop.model("g (float[2] x) => (float[2] y) { [tangent] y = Tan(x) }")
    file = prove(workshop, model, "--box", "0", "1")
    run = workshop.run("check-proof", file, "-N", "N", model, "--box", "0", "1")
    assert run.status == 3
    assert run.out.startswith("not checked for onnxruntime: operators that can fail are not all shown not to\n")
    assert "  not shown: tangent (Tan): bounds of its operands do not show it, or it has no rule\n" in run.out


def test_a_false_claim_is_not_accepted_whatever_the_file_says(workshop: Workshop) -> None:
    model = workshop.model(ROOT)
    file = prove(workshop, model, "--box", "1", "2")
    with np.load(file) as arrays:
        changed: dict[str, Any] = dict(arrays)
    changed["lower0"] = np.full((1, 2), -1, np.float32)
    meta = json.loads(changed["meta"].tobytes()) | {"trusted": {"y": "measured"}}
    changed["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(file, **changed)
    run = workshop.run("check-proof", file, "-N", "N", model, "--box", "-1", "2")
    assert run.status == 3 and "accepted" not in run.out


def test_weights_range_where_they_are_freed(workshop: Workshop) -> None:
    model = workshop.model(QUOTIENT)
    file = prove(workshop, model, "--box", "x=0,1", "--free", "w", "--weights", "0.5,3")
    ask = ("check-proof", file, "-N", "N", model, "--box", "x=0,1", "--box", "w=0.5,3")
    run = workshop.run(*ask, "--free", "w")
    assert run.status == 0 and "box: weight w: float32 [2] in [0.5, 3]\n" in run.out
    assert "'w' is a weight of the model, not an input" in workshop.run(*ask).error


def test_sizes_that_are_assumed_are_told(workshop: Workshop) -> None:
    model = workshop.model("g (float[n, 2] x) => (float[n, 2] y) { [soft] y = Softplus(x) }")
    file = prove(workshop, model, "--box", "-1", "1")
    ask = ("check-proof", file, "-N", "N", model, "--box", "-1", "1")
    run = workshop.run(*ask)
    assert run.status == 0 and "size: n = 1, assumed; --dim n=SIZE asks about another\n" in run.out
    run = workshop.run(*ask, "--dim", "n=2")
    assert (run.status, run.out) == (1, "rejected: its box of x has shape [1, 2], what is asked has [2, 2]\n")
    assert "a proof is about one size; give --dim n=SIZE" in workshop.run(*ask, "--dim", "n=1..2").error


def test_a_property_asks_too(workshop: Workshop) -> None:
    model, prop = workshop.model(ROOT), workshop.property("Forall(x, Implies(1 <= x <= 2, no_invalid_input(N(x))))")
    file = workshop.folder / "p.npz"
    assert workshop.run(prop, "--network", "N", model, "--proof", file).status == 0
    run = workshop.run("check-proof", file, prop, "--network", "N", model)
    assert run.status == 0 and "box: x: float32 [1, 2] in [1, 2]\n" in run.out
    assert "leave out --box" in workshop.run("check-proof", file, prop, "-N", "N", model, "--box", "1", "2").error
    more = workshop.property("Forall(x, Implies(1 <= x <= 2, N(x) > 0))", "more.py")
    assert "asks for more than valid operators" in workshop.run("check-proof", file, more, "-N", "N", model).error


def test_no_other_verdict_has_one(workshop: Workshop) -> None:
    file = workshop.folder / "p.npz"
    run = workshop.falsify("--proof", file)
    assert run.status == 1 and "no proof file is written: the verdict is violated" in run.err
    assert not file.exists()


def test_wrong_files_are_told(workshop: Workshop) -> None:
    missing = workshop.folder / "none.npz"
    box = ("--box", "1", "2")
    assert "none.npz: no such file" in workshop.run("check-proof", missing, "-N", "N", workshop.model(), *box).error
    assert "a proof is about one model" in workshop.run("check-proof", missing, *box).error
    run = workshop.run("check-proof", workshop.property(), "-N", "N", workshop.model(), *box)
    assert (run.status, run.out) == (1, "rejected: it is no proof file, or not whole\n")


def test_derivatives_are_not_checked(workshop: Workshop) -> None:
    model = workshop.model(ROOT)
    file = prove(workshop, model, "--box", "1", "2", "--gradient")
    run = workshop.run("check-proof", file, "-N", "N", model, "--box", "1", "2")
    assert run.status == 0 and "note: the file is about derivatives too, which are not checked\n" in run.out


@pytest.mark.parametrize("runtime", ["torch", "torch,exact"])
def test_without_onnx_runtime_its_rewriting_is_not_asked_about(workshop: Workshop, runtime: str) -> None:
    model = workshop.model(ROOT)
    file = prove(workshop, model, "--box", "1", "2", "--runtime", runtime)
    run = workshop.run("check-proof", file, "-N", "N", model, "--box", "1", "2", "--runtime", runtime)
    assert run.status == 0 and "makes of it here" not in run.out
