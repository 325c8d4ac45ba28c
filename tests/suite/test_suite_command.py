"""The command `suite`, with workers that answer instances as the main command does."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ranum_falsify.suite.record import InstanceRecord
from ranum_falsify.suite.results import read_records
from tests.cli.workshop import LOG, SAFE, Workshop

SPEC = """(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (>= X_0 -1))
(assert (<= X_0 1))
(assert (>= X_1 -1))
(assert (<= X_1 1))
(assert (>= Y_0 {limit}))
"""


@pytest.fixture
def suite(workshop: Workshop) -> Path:
    """Instances of all kinds: two of VNN-LIB, two of a box, one that has no model."""
    workshop.model(SAFE, "safe.onnx")
    workshop.model(LOG, "log.onnx")
    for name, limit in (("low", 0.25), ("high", 1.5)):
        (workshop.folder / f"{name}.vnnlib").write_text(SPEC.format(limit=limit))
    (workshop.folder / "broken.onnx").write_bytes(b"no model")
    path = workshop.folder / "suite.toml"
    path.write_text(
        "timeout = 30\nn_starts = 20\n"
        "[[group]]\nname = 'specs'\nmodels = ['safe.onnx', 'broken.onnx']\nproperties = '*.vnnlib'\n"
        "[[group]]\nname = 'boxes'\nmodels = ['log.onnx', 'safe.onnx']\nbox = [-1, 1]\n"
    )
    return path


def records(folder: Path) -> dict[str, InstanceRecord]:
    return {record.instance.id.partition("/")[2]: record for record in read_records(folder / "results.jsonl")}


@pytest.mark.slow
def test_a_suite(workshop: Workshop, suite: Path) -> None:
    table = workshop.folder / "results.csv"
    run = workshop.run("suite", suite, "--jobs", "1", "--results", table, "-q")
    assert (run.status, run.err) == (1, "")
    assert run.out == (
        f"6 of 6 instances: sat 2, unsat 2, unknown 0, error 2\nwritten: {table}, {workshop.folder / 'results.jsonl'}\n"
    )
    found = records(workshop.folder)
    assert {name: record.status for name, record in found.items()} == {
        "specs/broken.onnx/high.vnnlib": "error",
        "specs/broken.onnx/low.vnnlib": "error",
        "specs/safe.onnx/high.vnnlib": "unsat",
        "specs/safe.onnx/low.vnnlib": "sat",
        "boxes/log.onnx/box": "sat",
        "boxes/safe.onnx/box": "unsat",
    }
    with table.open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert {(row[1], row[2]): row[4] for row in rows}["log.onnx", "box"] == "sat"
    assert all(len(row) == 6 and float(row[3]) >= 0 and float(row[5]) >= 0 for row in rows)
    check_counterexamples(workshop, found)
    check_evidence(workshop, found)
    check_resuming(workshop, suite, table)


def check_counterexamples(workshop: Workshop, found: dict[str, InstanceRecord]) -> None:
    """Each counterexample replays, from both of its files, and the report names its arrays."""
    folder = workshop.folder
    cases: list[tuple[str, list[str | Path]]] = [
        ("boxes/log.onnx/box", ["--network", "N", folder / "log.onnx"]),
        ("specs/safe.onnx/low.vnnlib", ["--network", "N", folder / "safe.onnx", "--property", folder / "low.vnnlib"]),
    ]
    for name, words in cases:
        record = found[name]
        assert record.report is not None and record.report["verdict"] == "violated"
        for array in record.report["counterexample"].values():
            assert (folder / array).is_file()
        for kind in ("description", "vnnlib"):
            run = workshop.run("replay", folder / record.files[kind], *words)
            assert run.status == 1 and run.err == "" and "not the file" not in run.out


def check_evidence(workshop: Workshop, found: dict[str, InstanceRecord]) -> None:
    """Where another tool says unsat, the counterexample is replayed, and decides."""
    folder, theirs = workshop.folder, workshop.folder / "theirs.csv"
    results, report = folder / "results.jsonl", folder / "compared.json"
    theirs.write_text(f"{folder.name}/boxes,log.onnx,box,0,unsat,1\n{folder.name}/specs,safe.onnx,low,0,unsat,1\n")

    def compared() -> tuple[str, list[bool | None]]:
        run = workshop.run("suite", "compare", results, theirs, "--json", report)
        assert run.status == 1, run
        return run.out, [one["evidence"]["replays"] for one in json.loads(report.read_text())["disagreements"]]

    text, replayed = compared()
    assert text.count("replays), unsat in theirs.csv, which is wrong\n") == 2 and replayed == [True, True]
    for name in ("boxes/log.onnx/box", "specs/safe.onnx/low.vnnlib"):
        (array,) = (found[name].report or {})["counterexample"].values()
        np.save(folder / array, np.full((1, 2), -0.5 if name.startswith("specs") else 0.5, np.float32))
    text, replayed = compared()
    assert text.count("does not replay), unsat in theirs.csv\n") == 2 and replayed == [False, False]
    model = (folder / "log.onnx").read_bytes()
    workshop.model(SAFE, "log.onnx")
    text, replayed = compared()
    assert "cannot be replayed: its files are not here, or not what they were" in text and None in replayed
    (folder / "log.onnx").write_bytes(model)


def check_resuming(workshop: Workshop, suite: Path, table: Path) -> None:
    """What is done stays as it is; what has changed runs again."""
    before = (workshop.folder / "results.jsonl").read_bytes()
    assert "has results of a former run" in workshop.run("suite", suite, "--results", table).error
    run = workshop.run("suite", suite, "--results", table, "--resume")
    assert run.status == 1 and (workshop.folder / "results.jsonl").read_bytes() == before
    workshop.model(SAFE, "broken.onnx")
    run = workshop.run("suite", suite, "--results", table, "--resume", "-q", "--jobs", "1")
    assert "2 results are of other files or options; these instances run again" in run.err
    assert run.out.startswith("6 of 6 instances: sat 3, unsat 3, unknown 0\n")


def test_instances_are_listed(workshop: Workshop, suite: Path) -> None:
    run = workshop.run("suite", suite, "--list", "--filter", "boxes")
    name = workshop.folder.name
    assert run.out == f"{name}/boxes/log.onnx/box\n{name}/boxes/safe.onnx/box\n"
    assert not (workshop.folder / "results.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--results", "r.txt"], "is a table; give it a name that ends in .csv"),
        (["--shard", "3/2"], "there are only 2 parts"),
        (["--shard", "3"], "is not of the form I/N, such as 1/4"),
        (["--max-minutes", "0"], "it must be more than 0 minutes"),
        (["--filter", "nothing"], "matches none of 6 instances"),
        (["--former", "none.csv"], "none.csv: no such file"),
    ],
)
def test_what_is_wrong_is_said(workshop: Workshop, suite: Path, words: list[str], message: str) -> None:
    assert message in workshop.run("suite", suite, *words).error


def test_a_suite_that_is_not_there(workshop: Workshop) -> None:
    assert "no such file or folder" in workshop.run("suite", workshop.folder / "none").error
    assert "SUITE is missing" in workshop.run("suite").error


def test_who_hands_out_instances_stays_small(repository: Path) -> None:
    code = "import sys; import ranum_falsify.cli.suite; print({'torch', 'onnx', 'numpy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
def test_sizes_may_range(workshop: Workshop) -> None:
    workshop.model("g (float[n,2] x) => (float[n,2] y) { y = Log(x) }", "n.onnx")
    path = workshop.folder / "sizes.toml"
    groups = {"all": "box = [1, 2]\ndim = {n = '1..3'}", "some": "box = [-1, 2]\ndim = {n = '2..3'}"}
    path.write_text(
        "timeout = 60\nmodels = 'n.onnx'\n"
        + "".join(f"[[group]]\nname = '{name}'\n{text}\n" for name, text in groups.items())
    )
    run = workshop.run("suite", path, "--jobs", "1", "--results", workshop.folder / "results.csv", "-q")
    assert (run.status, run.err) == (1, "")
    found = records(workshop.folder)
    assert {name: record.status for name, record in found.items()} == {
        "all/n.onnx/box": "unsat",
        "some/n.onnx/box": "sat",
    }
    report = found["all/n.onnx/box"].report
    assert report is not None
    assert [one["dims"] for one in report["sizes"]] == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_scheduler_that_is_not_there_leaves_no_results(workshop: Workshop, suite: Path) -> None:
    table = workshop.folder / "there.csv"
    before = set(workshop.folder.iterdir())
    run = workshop.run("suite", suite, "--scheduler", "kafka://nowhere:1", "--results", table)
    assert run.status == 2 and run.err.startswith("ranum-falsify: --scheduler kafka://nowhere:1: ")
    assert set(workshop.folder.iterdir()) == before
