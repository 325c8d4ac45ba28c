"""The benchmark scripts run, and compare like with like; what they measure is not judged here."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime
import pytest
import torch

from ranum_falsify.cli import main
from ranum_falsify.zoo.catalogue import model_of

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
CASES = ("acasxu", "mnist-dense", "mnist-wide", "mnist-conv", "cgan", "vit", "cnn")


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_every_case_is_tested() -> None:
    assert tuple(script("lab.bench").CASES) == CASES


@pytest.mark.parametrize("name", CASES)
def test_the_bare_loop_computes_what_the_model_computes(name: str) -> None:
    case = script("lab.bench").CASES[name]()
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = case.inputs(2)
    with torch.no_grad():
        bare = case.bare(x).numpy()
    for sample, expected in zip(x, bare, strict=True):
        (y,) = session.run(None, {"x": sample.reshape(case.shape).numpy()})
        np.testing.assert_allclose(y[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_table_of_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--rounds", "1", "--starts", "4", "--steps", "3", "--dnnf-starts", "1", "--dnnf-steps", "2"]
    assert script("bench_falsify").main(["--case", "acasxu", "--threads", "1", *small]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ACAS Xu")]
    bare, released, repaired = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)
    assert bare[1:3] == ["along", "3"]
    assert all(float(cell) > 0 for cell in bare[3:6])
    assert (released[1], repaired[1]) == ("as released", "comparison repaired")
    assert all(float(row[4]) > 0 for row in (released, repaired))


def test_steps_that_were_not_made_are_no_measurement() -> None:
    ours, bench = script("lab.bench.ours"), script("lab.bench")
    case = bench.CASES["acasxu"]()
    with ours.OurRun(case, 2) as run, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ranum_falsify.verify.search.search.Budget.expired", True)
        with pytest.raises(AssertionError, match="0 of 3 steps"):
            run.seconds(3)


def test_reading_and_reduction(tmp_path: Path) -> None:
    startup = script("bench_startup")
    assert all(seconds > 0 for seconds in startup.measure_reading(tmp_path, 1, nodes=12))
    assert startup.reduction(tmp_path, 1, size=8) > 0


def test_the_search_that_is_timed_takes_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--n_starts", "5", "--n_steps", "2", "--prove-timeout", "0", "--no-self-check"]
    assert main([*script("bench_startup").prepare_attack(tmp_path), *options]) == 3
    assert "; 5 starts, 2 steps" in capsys.readouterr().out


@pytest.mark.slow
def test_start_of_the_command(tmp_path: Path) -> None:
    attack, torch_alone = script("bench_startup").startup(tmp_path, 1)
    assert attack > 0
    assert torch_alone > 0


def test_starts_are_compared_with_another_checkout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    startup, root = script("bench_startup"), SCRIPTS.parent
    monkeypatch.setattr(startup, "starts", lambda folder: {"missing": (["false"], 1, "0.2")})
    startup.compare_starts(root, tmp_path, 1)
    assert capsys.readouterr().out.splitlines()[-1].startswith("| missing | 0.0")
    monkeypatch.setattr(startup, "starts", lambda folder: {"missing": (["false"], 0, "0.2")})
    with pytest.raises(RuntimeError, match=f"false: exit status 1 in {root}"):
        startup.compare_starts(root, tmp_path, 1)


@pytest.mark.parametrize(
    "number", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_commands_whose_start_is_measured_end_as_they_should(tmp_path: Path, number: int) -> None:
    command, status, _ = list(script("bench_startup").starts(tmp_path).values())[number]
    checkout = importlib.import_module("lab.bench.checkout")
    seconds, ended = checkout.run_in(checkout.ROOT, command)
    assert seconds > 0 and ended == status


def test_a_process_that_fails_is_reported() -> None:
    with pytest.raises(RuntimeError, match="no such thing"):
        script("bench_startup").seconds_until([sys.executable, "-c", "raise SystemExit('no such thing')"])


def test_a_model_of_the_zoo_becomes_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--only", "4", "--runs", "2", "--timeout", "5", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["bench_zoo.py", *options])
    assert script("bench_zoo").main() == 0
    row, changed = [line for line in (tmp_path / "zoo.md").read_text().splitlines() if line.startswith("| 4 |")]
    assert "| Log `log` | yes | yes |" in row and "| proved | 2 (2) |  | 2 (" in row
    assert "unused: " in changed and "| no: `log` | 0 | yes | 0 |" in changed
    page = (tmp_path / "zoo.md").read_text()
    assert "of 1 operators open in the unrepaired models, 1 are confirmed to fail" in page
    assert "| over the programs' data | 1 of 1 | 1 of 1 | 1 of 1 |" in page


@pytest.mark.slow
def test_the_page_says_where_a_defect_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--only", "37", "38", "saf7", "--parts", "detection", "ranges", "twins", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["bench_zoo.py", *options])
    assert script("bench_zoo").main() == 0
    page = (tmp_path / "zoo.md").read_text()
    assert "inputs range more widely: 38." in page and "so that ONNX Runtime alone fails: 37." in page
    assert "| 37 | MachineLearning.lab05 | Log `log_p` | yes | onnxruntime alone |" in page
    assert "\n| proved | 2 of 2 | 2 of 2 | 2 of 2 | 2 of 2 | 2 of 2 |\n" in page
    assert "| 38 | MachineLearning.lab09 | Log `log_p` | yes | no |" in page
    assert "Detected: 1 of 1. Published: 13 of the 15" in page


def test_points_by_hand_fail_at_the_operator() -> None:
    fails_by_hand = script("lab.bench.zoo_hand").fails_by_hand
    assert fails_by_hand(model_of("28a"), "Mul_4")
    assert not fails_by_hand(model_of("28a"), "Mul_1")


@pytest.mark.slow
def test_training_on_files_becomes_a_row(tmp_path: Path) -> None:
    options = ["--only", "2b", "3", "--levels", "real, files", "--folder", str(tmp_path)]
    assert script("bench_training").main(options) == 0
    levels = {d["id"]: d["levels"] for d in json.loads((tmp_path / "training.json").read_text())["defects"]}
    row = levels.pop("2b")["real, files"]
    assert not any(levels.values()), "others are not compared"
    assert (row["outcome"], row["zoo"]["trained"]) == ("trained", 1)
    assert 0 < row["processor_seconds"] and 0 < row["zoo"]["processor_seconds"]


@pytest.mark.slow
def test_clips_of_a_model_become_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--only", "4", "33", "--sets", "all", "inputs", "--folder", str(tmp_path)]
    assert script("bench_fix").main(options) == 0
    table = capsys.readouterr().out
    assert "| inputs and weights | 2 of 2 (79) |" in table and "| inputs | 1 of 2 (37) |" in table
    text = (tmp_path / "clips.md").read_text()
    assert "`x` 6" in text and "fails whatever they are, for some weights: proved" in text


@pytest.mark.slow
def test_repairs_of_a_model_become_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--only", "3", "4", "--seconds", "0.2", "--folder", str(tmp_path)]
    assert script("bench_repairs").main(options) == 0
    printed = capsys.readouterr().out
    assert "| rewrites | 1 | 1 | 1 |" in printed and "| the best | 2 | 2 | 2 |" in printed
    text = (tmp_path / "repairs.md").read_text()
    assert "| 3 | stable_log_softmax |" in text
    assert (
        "| 4 | theirs | log: x clipped to <= 10 (unused) | no: log" in text and "Ours: 1; equal: 0; theirs: 0." in text
    )
    assert "| 3 | not fixed; a similar defect was reported to TensorFlow-Examples |" in text


@pytest.mark.slow
def test_a_hazardous_model_becomes_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--hazardous", "--only", "arc cosine", "--folder", str(tmp_path)]
    assert script("bench_repairs").main(options) == 0
    printed = capsys.readouterr().out
    assert "| all | 1 | 1 | 1 | 1 | 1 |" in printed
    assert "| end of a domain: arc cosine | Clip(x, -1, 1) | - | - | - |" in printed
    assert (tmp_path / "repairs.md").read_text().startswith("## 1 small hazardous models")


def test_clips_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script("write_pages").main(["--folder", str(tmp_path)]) == 2
    assert script("bench_fix").main(["--only", "nowhere", "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 2
