"""Names from files: no control character and no order to a CI system leaves the command, whatever a file holds."""

import ast
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import onnx
import pytest

from ranum_falsify.cli.output import complain, say, say_safely, show_progress
from ranum_falsify.witness.pytest_file import pytest_file
from tests.cli.test_writers import Step, Terminal
from tests.cli.workshop import HEAD, LOG, Workshop

CLI = Path(__file__).resolve().parent.parent.parent / "ranum_falsify" / "cli"
NAME = '::error file=a,line=1::owned\n##[error]\x1b[2J\r\x9b31m\u202e\x7f"""\\N{'
SHOWN = r'\x3a:error file=a,line=1::owned\n\x23#[error]\x1b[2J\r\x9b31m\u202e\x7f"""\N{'


def assert_clean(text: str) -> None:
    """Check that text is lines of printable characters, none of which is an order."""
    for line in text.removesuffix("\n").split("\n"):
        assert line.isprintable(), line
        assert not line.lstrip().startswith("::") and not re.search(r"##\w*\[", line), line


def hostile(workshop: Workshop) -> Path:
    """Write a model whose node, tensors and graph have hostile names."""
    path = workshop.model(LOG)
    model = onnx.load(path)
    graph, node = model.graph, model.graph.node[0]
    node.name, graph.name, node.doc_string = NAME, NAME, NAME
    node.input[0] = graph.input[0].name = f"{NAME}x"
    node.output[0] = graph.output[0].name = f"{NAME}y"
    onnx.save(model, path)
    return path


class TestReports:
    def test_a_search_its_files_and_their_replay(self, workshop: Workshop) -> None:
        files = (workshop.property(), "-N", "N", hostile(workshop))
        cex, report = workshop.folder / "cex.npy", workshop.folder / "report.json"
        found = workshop.run(*files, "--n_starts", "20", "--save-violation", cex, "--json", report)
        assert found.status == 1 and f"  {SHOWN} (Log) gives" in found.out
        assert_clean(found.out)
        for path in (report, workshop.folder / "cex.json"):
            assert_clean(path.read_text())
        assert json.loads(report.read_text())["operators"][0]["node"] == NAME
        again = workshop.run("replay", cex, "-N", "N", files[-1])
        assert again.status == 1 and SHOWN in again.out
        assert_clean(again.out)

    @pytest.mark.parametrize("arguments", [["--list-operators"], ["--explain", NAME], ["--json", "-"], ["-v"]])
    def test_what_standard_output_shows(self, workshop: Workshop, arguments: list[str]) -> None:
        files = (workshop.property(), "-N", "N", hostile(workshop))
        shown = workshop.run(*files, "--n_starts", "20", *arguments)
        assert shown.status in (0, 1) and shown.out
        assert_clean(shown.out)
        assert_clean(shown.err)

    def test_an_error_is_one_line(self, workshop: Workshop) -> None:
        path = hostile(workshop)
        model = onnx.load(path)
        model.graph.node[0].op_type = NAME
        onnx.save(model, path)
        refused = workshop.run(workshop.property(), "-N", "N", path)
        assert "\\x1b[2J" in refused.error
        assert_clean(refused.err)

    def test_a_traceback(self, workshop: Workshop) -> None:
        refused = workshop.run(workshop.folder / NAME.replace("/", ""), "-N", "N", workshop.model(), "--debug")
        assert refused.status == 2 and "Traceback" in refused.err
        assert_clean(refused.err)

    def test_a_file_name_that_is_no_text(self, workshop: Workshop) -> None:
        assert r"\udcff.py: no such file" in workshop.run("\udcff.py", "-N", "N", workshop.model()).error


class TestUnitTests:
    def test_hostile_names(self, workshop: Workshop) -> None:
        property_path = workshop.folder / f"{NAME}.py".replace("/", "")
        property_path.write_text(HEAD + "Forall(x, Implies(lb <= x <= ub, no_invalid_input(N(x))))\n")
        out = workshop.folder / "out"
        made = workshop.run("confirm", property_path, "-N", "N", hostile(workshop), "--runs", "1", "--out", out)
        assert made.status == 1 and made.out.startswith(SHOWN)
        assert_clean(made.out)
        (tests,) = out.glob("test_*.py")
        assert_clean(tests.read_text())
        assert_clean((out / "confirm.json").read_text())
        for path in out.iterdir():
            assert_clean(path.name)
        home = workshop.folder / "home"
        kept = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
        alone = {**kept, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
        command = (sys.executable, "-m", "pytest", "-q", tests)
        done = subprocess.run(command, capture_output=True, text=True, cwd=out, env=alone)
        assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout
        assert not home.exists(), "ONNX Runtime keeps a database for its makers"

    @pytest.mark.parametrize("name", ['a"""\nimport os\n"""', "\\", "\\N{", 'a"', "{title}", NAME])
    def test_a_property_name_stays_within_the_docstring(self, name: str) -> None:
        text = pytest_file(name, [], [])
        assert_clean(text)
        plain = [type(node) for node in ast.parse(pytest_file("p.py", [], [])).body]
        assert [type(node) for node in ast.parse(text).body] == plain


class TestStandardError:
    def test_progress_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with show_progress() as display:
            display(Step(text="\x1b]0;owned\x07\x9b"))
        assert "\\x1b]0;owned\\x07\\x9b" in terminal.getvalue()
        assert "\x07" not in terminal.getvalue() and "\x9b" not in terminal.getvalue()

    def test_progress_in_a_pipe(self, capsys: pytest.CaptureFixture[str]) -> None:
        with show_progress(1) as display:
            display(Step("::error::owned\n::error::twice"))
        assert capsys.readouterr().err == "\\x3a:error::owned\\n::error::twice: round 1 (50%)\n"

    def test_what_libraries_warn_about_and_log(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = "\x1b[2J\n::error::owned"
        with say_safely():
            warnings.simplefilter("always")
            warnings.warn(text, stacklevel=1)
            logging.getLogger("somebody").warning(text)
        written = capsys.readouterr().err
        assert written.count("\\x1b[2J") == 2 and written.count("\\x3a:error::owned") == 2
        assert_clean(written)


def test_lines_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say(["a\nb", "c"])
    complain(["d\ne"])
    assert tuple(capsys.readouterr()) == ("a\\nb\nc\n", "d\\ne\n")


def test_text_leaves_in_one_place() -> None:
    writes = re.compile(r"\bprint\(|\bstd(?:out|err)\.write|\bprint_exc|\bjson\.dumps?\(")
    left = {path.name for path in CLI.rglob("*.py") if writes.search(path.read_text(encoding="utf-8"))}
    assert left == {"output.py"}
