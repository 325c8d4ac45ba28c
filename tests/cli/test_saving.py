"""Reports that cannot be written: the verdict stands, one line says what is missing, and no file is half there."""

import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest

from ranum_falsify.cli import main
from tests.cli.workshop import LOG, QUOTIENT, Workshop

ROOT = Path(__file__).resolve().parent.parent.parent
LARGE = LOG.replace("[1, 2]", "[1, 20000]")
VALID = ("--prop.lb=1", "--prop.ub=2")
FEW = ("--n_starts", "2", "--n_steps", "2")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """As on a full disk: no file can grow beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class TestFalsify:
    def test_a_counterexample_that_does_not_fit(self, workshop: Workshop) -> None:
        (workshop.folder / "cex.json").write_text("older")
        with largest_file(50_000):
            run = workshop.falsify("--save-violation", workshop.folder / "cex.npy", model=LARGE)
        assert run.status == 1 and run.out.startswith("violated\n") and "cex" not in run.out
        assert run.err.count("\n") == 1 and "cannot be written (file too large)" in run.err
        assert "cex.npy" in run.err and "cex.json" in run.err and "what is there now is older" in run.err
        assert names(workshop.folder) == {"prop.py", "model.onnx", "cex.json"}
        assert (workshop.folder / "cex.json").read_text() == "older"

    def test_a_report_on_a_full_device(self, workshop: Workshop) -> None:
        report = workshop.folder / "report"
        report.symlink_to("/dev/full")
        run = workshop.falsify("--json", report)
        assert run.status == 1 and run.out.startswith("violated\n")
        assert run.err == f"ranum-falsify: {report}: cannot be written (no space left on device); choose another path\n"
        assert names(workshop.folder) == {"prop.py", "model.onnx", "report"}

    @pytest.mark.parametrize("report", [(), ("--json", "-")], ids=["text", "json"])
    @pytest.mark.parametrize("to", ["full", "unread", "none"])
    def test_an_output_that_takes_nothing(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, to: str, report: tuple[str, ...]
    ) -> None:
        files = (workshop.property(), "--network", "N", workshop.model(), *FEW, *report)
        stream: io.TextIOWrapper | None = None
        if to == "full":
            stream = open("/dev/full", "w", encoding="utf-8")
        elif to == "unread":
            reading, writing = os.pipe()
            os.close(reading)
            stream = os.fdopen(writing, "w", encoding="utf-8")
        error = io.StringIO()
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", error)
        assert main([str(word) for word in files]) == 1
        if stream is not None:
            stream.close()  # as the process does at its end
        said = "standard output: cannot be written (no space left on device); see the exit status\n"
        assert error.getvalue() == (f"ranum-falsify: {said}" if to == "full" else "")

    def test_an_error_that_nobody_reads_is_no_verdict(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            monkeypatch.setattr(sys, "stderr", full)
            assert main(["none.py"]) == 2

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
    def test_a_terminal_that_does_not_know_the_characters(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, encoding: str
    ) -> None:
        model = workshop.model()
        named = onnx.load(str(model))
        named.graph.node[0].name = "größe_大きさ"
        onnx.save(named, str(model))
        bytes_out = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(bytes_out, encoding=encoding))
        assert main([str(workshop.property()), "--network", "N", str(model), *FEW]) == 1
        start = "gr\\xf6\\xdfe_" if encoding == "ascii" else "größe_"
        assert f"  {start}\\u5927\\u304d\\u3055 (Log) gives " in bytes_out.getvalue().decode(encoding)


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [">/dev/full", "<&- >&- 2>&-"])
def test_the_exit_status_of_the_process_is_the_verdicts(workshop: Workshop, redirection: str) -> None:
    words = [sys.executable, "-m", "ranum_falsify", workshop.property(), "--network", "N", workshop.model(), *FEW, "-q"]
    before = names(workshop.folder)
    run = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 1 and run.stderr.count("\n") == (1 if redirection == ">/dev/full" else 0), run
    assert names(workshop.folder) == before


class TestOlderFiles:
    def test_a_counterexample_of_an_earlier_run(self, workshop: Workshop) -> None:
        cex = workshop.folder / "cex.npy"
        assert workshop.falsify("--save-violation", cex).err == ""
        run = workshop.falsify("--save-violation", cex, *VALID)
        assert run.status == 0 and run.out.startswith("holds")
        older = f"{cex}, {cex.with_suffix('.json')}: left by an earlier run, not of this result"
        assert run.err == f"ranum-falsify: {older}; delete what you do not need\n"
        assert {"cex.npy", "cex.json"} < names(workshop.folder)

    def test_arrays_of_an_earlier_run_beside_those_of_this_one(self, workshop: Workshop) -> None:
        cex = workshop.folder / "cex.npy"
        pair = workshop.run(workshop.pair(), "-N", "N", workshop.model(QUOTIENT), "--save-violation", cex, *FEW)
        assert pair.status == 1
        run = workshop.falsify("--save-violation", cex)
        assert run.status == 1 and run.err.count("\n") == 1
        assert "cex.a.npy" in run.err and "cex.b.npy" in run.err and "cex.npy" not in run.err
        assert workshop.falsify("--save-violation", cex).err == ""

    def test_those_beside_a_report(self, workshop: Workshop) -> None:
        report = workshop.folder / "report.json"
        assert workshop.falsify("--json", report).err == ""
        run = workshop.falsify("--json", report, *VALID)
        assert json.loads(report.read_text())["verdict"] == "holds"
        assert "report.cex.npy" in run.err and "report.cex.json" in run.err and run.err.count("\n") == 1

    def test_another_json_file_of_that_name_is_none(self, workshop: Workshop) -> None:
        (workshop.folder / "cex.json").write_text('{"format": 1}')
        assert workshop.falsify("--save-violation", workshop.folder / "cex.npy", *VALID).err == ""


class TestConfirm:
    def confirm(self, workshop: Workshop, *arguments: str | Path, model: str = LOG) -> tuple[int, str, str]:
        words = (workshop.property(), "--network", "N", workshop.model(model), "--runs", "2", *arguments)
        run = workshop.run("confirm", *words)
        return run.status, run.out, run.err

    def test_tests_that_do_not_fit(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        with largest_file(50_000):
            status, said, error = self.confirm(workshop, "--out", out, model=LARGE)
        assert status == 1 and "logarithm (Log): 2 of 2 runs trigger" in said and "run them" not in said
        assert error.count("\n") == 1 and "logarithm.0.npz: cannot be written (file too large)" in error
        assert names(out) == {"confirm.json"}
        assert json.loads((out / "confirm.json").read_text())["test_file"] is None

    def test_tests_of_an_earlier_run(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        assert self.confirm(workshop, "--out", out)[2] == ""
        made = names(out)
        status, _, error = self.confirm(workshop, "--out", out, *VALID)
        assert status == 0 and error.count("\n") == 1 and names(out) == made
        assert all(str(out / name) in error for name in made - {"confirm.json"}) and "confirm.json" not in error
