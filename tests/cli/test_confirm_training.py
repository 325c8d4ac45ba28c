"""`confirm --training` and `zoo train`: files that train by themselves, reports, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.workshop import Workshop

REGRESSION = """g (float[1,40] x, float[1,4] y) => (float cost, float[1,4] t)
    <float[40,4] w = {ZEROS}> {
    m = MatMul(x, w) p = Softmax(m) [hit] l = Log(p) t = Mul(y, l) s = ReduceSum<keepdims=0>(t) cost = Neg(s) }"""
TEXT = REGRESSION.replace("ZEROS", ", ".join(["0"] * 160))
FORMULA = (
    "Forall(x, Forall(y, Forall(w, Implies(And(0 <= x <= 4, 0 <= y <= 1, -10 <= w <= 10), "
    'no_invalid_input(free(N, "w"LOSS)(x, y, w))))))'
)
LOSS = ', loss=loss("cost", one_hot=["y"])'


def train(workshop: Workshop, loss: str = LOSS, *arguments: str | Path) -> Any:
    file = workshop.property(FORMULA.replace("LOSS", loss))
    fixed = ("--no-self-check", "-p", "1", "--timeout", "60")
    return workshop.run("confirm", file, "--network", "N", workshop.model(TEXT), "--training", *fixed, *arguments)


def test_files_and_report(workshop: Workshop) -> None:
    out, plot = workshop.folder / "out", workshop.folder / "run.svg"
    done = train(workshop, LOSS, "--out", out, "--plot", plot, "--learning-rate", "0.9")
    assert done.status == 1
    assert "hit (Log): infinity after training (sgd, learning rate 0.9, 1 step; by unrolling)" in done.out
    assert "training leads into 1 of 1 operator" in done.out
    report = json.loads((out / "training.json").read_text())
    (operator,) = report["operators"]
    assert operator["outcome"] == "trained" and operator["steps"] == 1 and report["learning_rate"] == 0.9
    names = {path.name for path in (out / "hit").iterdir()}
    assert {f"hit/{name}" for name in names} == set(operator["files"])
    assert {"training.npz", "trained.npz", "model.onnx", "model.tensors"} < names
    with np.load(out / "hit" / "training.npz") as arrays:
        assert sorted(arrays["data:y"].flatten()) == [0, 0, 0, 1]
        assert (arrays["initial:w"] == 0).all()
    assert plot.read_text().startswith("<svg")


def test_many_steps_train_in_full_on_a_batch_of_the_size_that_is_given(workshop: Workshop) -> None:
    text, out = TEXT.replace("[1,", "[rows,"), workshop.folder / "out"
    file = workshop.property(FORMULA.replace("LOSS", LOSS).replace("x <= 4", "x <= 1"))
    command: list[str | Path] = ["confirm", file, "--network", "N", workshop.model(text), "--training", "-p", "1"]
    done = workshop.run(
        *command, "--timeout", "60", "--dim", "rows=3", "--learning-rate", "9", "--training-steps", "40", "--out", out
    )
    assert done.status == 1 and "by training in full" in done.out and "notice" not in done.out
    with np.load(out / "hit" / "training.npz") as arrays:
        assert arrays["data:x"].shape == (1, 3, 40) and len(arrays["order"]) > 1
    taken = workshop.run(*command, "--learning-rate", "0.001")
    assert taken.status == 3 and "is taken as 1; set it with --dim rows=VALUE" in taken.out


@pytest.mark.slow
def test_files_of_the_zoo_train_as_their_program(workshop: Workshop) -> None:
    out = workshop.folder / "zoo"
    assert workshop.run("zoo", "build", "32", "--documented", "--out", out).status == 0
    rule = ("--optimizer", "sgd", "--learning-rate", "0.1", "--training-steps", "1000", "--timeout", "300")
    files = (out / "32.py", "--network", "N", out / "32.onnx", "--training", "--out", out / "found")
    done = workshop.run("confirm", *files, *rule)
    assert done.status == 1 and "log (Log): infinity after training" in done.out
    with np.load(out / "found" / "log" / "training.npz") as arrays:
        rows = arrays["data:oh"][0]
    assert sorted(set(rows.flatten())) == [0.0, 1.0] and (rows.sum(1) == 1).all()


def test_equal_seeds_write_equal_files(workshop: Workshop) -> None:
    folders = [workshop.folder / name for name in ("first", "second")]
    for folder in folders:
        train(workshop, LOSS, "--out", folder, "--seed", "5")
    for path in (folders[0] / "hit").iterdir():
        assert path.read_bytes() == (folders[1] / "hit" / path.name).read_bytes(), path.name


def test_a_loss_of_several_elements_has_a_notice(workshop: Workshop) -> None:
    assert "notice: the loss 't' has the shape [1, 4]; the sum" in train(workshop, ', loss=loss("t")').out


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("", r"does not say what trains .*write free\(N"),
        (', loss=loss("price")', r"no node or output 'price'.*outputs: 'cost', 't'"),
        (", loss=loss(3)", r"loss is written as loss\(\"cost\"\)"),
        (', loss="cost"', r"write free\(N, \"W\", \"b\"\).*loss=loss\(\"cost\"\)"),
        (', cost=loss("cost")', r"write free\(N, \"W\", \"b\"\)"),
        (', loss=loss("cost", one_hot=3)', "one_hot and parts are lists of names"),
        (', loss=loss("cost", one_hot=["z"])', "one_hot names 'z', which is no input.*inputs: 'x', 'y'"),
        (', loss=loss("cost", parts=["w", "v"])', "2 parts for 1 losses; for each, say how the names of its weights"),
        (', loss=loss("cost", parts=["v"])', "no freed weight .* begins with 'v'.*weights: 'w'"),
    ],
)
def test_what_trains_must_be_said(workshop: Workshop, loss: str, message: str) -> None:
    assert re.search(message, train(workshop, loss).error)


def test_bad_options_are_refused(workshop: Workshop) -> None:
    assert "--optimizer" in train(workshop, LOSS, "--optimizer", "lion").error
    assert "--learning-rate" in train(workshop, LOSS, "--learning-rate", "-1").error
    model, file = workshop.model(TEXT), workshop.property(FORMULA.replace("LOSS", LOSS))
    plotted = workshop.run("confirm", file, "--network", "N", model, "--plot", workshop.folder / "run.svg")
    assert "there is nothing to draw; add --training" in plotted.error


def test_other_commands_take_no_notice_of_the_loss(workshop: Workshop) -> None:
    file = workshop.property(FORMULA.replace("LOSS", LOSS))
    done = workshop.run(file, "--network", "N", workshop.model(TEXT), "--no-self-check", "-p", "1")
    assert done.status == 1 and "hit (Log)" in done.out


def test_zoo_train_counts_apart_what_needs_no_training(workshop: Workshop) -> None:
    path = workshop.folder / "runs.json"
    done = workshop.run(
        "zoo", "train", "3", "13", "--level", "initial", "--runs", "1", "--timeout", "60", "--json", path
    )
    assert done.status == 0
    assert "initial: 2 of 2 runs: 1 by training, 1 need none" in done.out
    first, second = json.loads(path.read_text())["defects"]
    assert (first["id"], first["trained"], first["untrained"]) == ("3", 1, 0)
    assert (second["id"], second["trained"], second["untrained"]) == ("13", 0, 1)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("level", "defect"),
    [("ranum", "3"), ("drawn", "15"), ("strict", "12"), ("initial", "3"), ("real", "26")],
    ids=lambda x: x,
)
def test_zoo_train_writes_equal_files_for_equal_seeds(workshop: Workshop, level: str, defect: str) -> None:
    contents = []
    for name in ("first", "second"):
        out = workshop.folder / name
        options: list[str | Path] = ["--level", level, "--runs", "1", "--timeout", "300", "--out", out]
        assert workshop.run("zoo", "train", defect, *options).status == 0
        (folder,) = out.iterdir()
        assert folder.name == f"{defect}_{level}_188"
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1]
    names = [f"test_training_{folder.name}.py", "trained.npz", "training.npz"]
    assert sorted(contents[0]) == ["model.onnx", "model.tensors", *names]
    with np.load(folder / "training.npz") as stored:
        assert len(stored["order"]) >= 1  # nothing of this fails untrained
