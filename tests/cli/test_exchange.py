"""Counterexamples for other tools: `--save-violation cex.vnnlib.txt`, and `replay` of such."""

import numpy as np
import pytest

from ranum_falsify.api.assignments import read_assignment
from tests.cli.workshop import QUOTIENT, SAFE, Workshop

SPEC = """(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (>= X_0 -1))
(assert (<= X_0 1))
(assert (>= X_1 -1))
(assert (<= X_1 1))
(assert (>= Y_0 0.25))
"""


def test_a_property_over_outputs(workshop: Workshop) -> None:
    spec = workshop.folder / "spec.vnnlib"
    spec.write_text(SPEC, encoding="utf-8")
    cex = workshop.folder / "cex.vnnlib.txt"
    model = workshop.model(SAFE)
    run = workshop.run(spec, "--network", "N", model, "--save-violation", cex)
    assert run.status == 1 and str(cex) in run.out
    found = read_assignment(cex)
    inputs, outputs = (np.array(values, dtype=np.float32) for values in (found.inputs, found.outputs))
    assert np.array_equal(outputs, np.maximum(inputs, 0)) and outputs[0] >= 0.25
    again = workshop.run("replay", cex, "--network", "N", model, "--property", spec)
    assert (again.status, again.err) == (1, "")
    assert again.out.startswith("violated\n  the property is false on these inputs\n")
    assert sorted(path.name for path in workshop.folder.iterdir()) == [
        "cex.vnnlib.txt",
        "model.onnx",
        "spec.vnnlib",
    ]


def test_operators_of_a_model_with_two_inputs(workshop: Workshop) -> None:
    cex = workshop.folder / "cex.vnnlib.txt"
    model = workshop.model(QUOTIENT)
    run = workshop.run(workshop.pair(), "--network", "N", model, "--save-violation", cex, "--n_starts", "20")
    assert run.status == 1
    assert len(read_assignment(cex).inputs) == 4 and len(read_assignment(cex).outputs) == 2
    again = workshop.run("replay", cex, "--network", "M", model)
    assert again.status == 1 and "quotient (Div) gives" in again.out
    assert "notice" not in again.out


def test_outputs_that_are_not_those_of_the_model(workshop: Workshop) -> None:
    cex = workshop.folder / "cex.vnnlib.txt"
    cex.write_text("((X_0 0.5) (X_1 -1) (Y_0 0.5) (Y_1 0.25))", encoding="utf-8")
    run = workshop.run("replay", cex, "--network", "N", workshop.model(SAFE))
    assert run.status == 0
    assert run.out.splitlines()[-1] == f"notice: {cex}: Y_1 = 0.25, where ONNX Runtime gives 0"


def test_what_the_format_cannot_say(workshop: Workshop) -> None:
    cex = workshop.folder / "cex.vnnlib.txt"
    run = workshop.falsify("--save-violation", cex, "--dtype", "float16")
    assert run.status == 1 and not cex.exists()
    assert "this is about N in float16; give --save-violation cex.npy" in run.err


@pytest.mark.parametrize("networks", [(), ("N", "M")])
def test_it_is_of_one_model(workshop: Workshop, networks: tuple[str, ...]) -> None:
    cex = workshop.folder / "cex.vnnlib.txt"
    cex.write_text("((X_0 1) (X_1 1))", encoding="utf-8")
    words = [word for name in networks for word in ("--network", name, workshop.model())]
    assert workshop.run("replay", cex, *words).error.endswith("is of one model; give it as --network NAME MODEL")
