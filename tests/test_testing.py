"""The pytest plugin, by runs of pytest as users have them."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import chdir
from pathlib import Path

import onnx
import onnx.parser
import pytest

from ranum_falsify.cli import main
from ranum_falsify.testing import assert_no_invalid_input

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "tests" / "example_project"

MODELS = """
import onnx.parser
import pytest
from ranum_falsify.testing import assert_no_invalid_input

def model(body):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {body}')

LOG, RELU = model("{ [logarithm] y = Log(x) }"), model("{ [rectifier] y = Relu(x) }")
SUM = model("{ [total] y = Add(x, x) }")
QUICK = {"box": (0, 1), "prove": False, "n_starts": 1, "n_steps": 1}
"""


def model(body: str) -> onnx.ModelProto:
    """A model from x, two numbers, to y."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {body}'
    return onnx.parser.parse_model(text)


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, with the package installed as setup.cfg says."""
    site = folder / "site"
    information = site / "ranum_falsify_under_test-0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ranum-falsify-under-test\nVersion: 0\n")
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    plugins = metadata["options.entry_points"]["pytest11"].strip()
    (information / "entry_points.txt").write_text(f"[pytest11]\n{plugins}\n")
    # In CI pytest prints a failure's whole message a second time, in its summary.
    hidden = {name for name in os.environ if name.startswith("PYTEST")} | {"CI", "BUILD_NUMBER"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    path = os.pathsep.join(map(str, (ROOT, site)))
    environment = kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def replay_of(message: str) -> list[str]:
    """The arguments of the command that a message ends with."""
    (line,) = re.findall(r"replay: (ranum-falsify replay .*)", message)
    return shlex.split(line)[1:]


def test_importing_it_costs_nothing() -> None:
    code = "import sys, ranum_falsify.testing; print(sorted({'numpy', 'onnx', 'torch', 'dnnv'} & set(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.stdout == "[]\n", run.stderr


class TestAssertion:
    def test_a_violation_is_told_with_what_replays_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = tmp_path / "a folder"
        folder.mkdir()
        with pytest.raises(AssertionError) as failure:
            assert_no_invalid_input(model("{ [logarithm] y = Log(x) }"), box=(0, 1), folder=folder)
        message = str(failure.value)
        assert message.startswith("invalid input can reach logarithm (Log)\n")
        assert "valid where x > 0" in message and f"input: {folder / 'cex.npy'}" in message
        assert main(replay_of(message)) == 1
        assert "logarithm (Log) gives infinity" in capsys.readouterr().out

    def test_a_result_that_holds_is_returned(self, tmp_path: Path) -> None:
        result = assert_no_invalid_input(model("{ y = Log(x) }"), box=(1, 2), holds=True, folder=tmp_path)
        assert result.verdict == "holds"
        assert list(tmp_path.iterdir()) == []

    def test_no_proof_is_a_failure_where_one_is_wanted(self) -> None:
        total = model("{ [total] y = Add(x, x) }")
        with pytest.raises(AssertionError, match=r"(?s)^not proved.*open: 1 operator \(Add 1\)"):
            assert_no_invalid_input(total, box=(0, 1), prove=False, n_starts=1, holds=True)


@pytest.mark.slow
def test_a_project_is_red_and_once_repaired_green(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    red = run_pytest(project, "--ranum-falsify-results", "found.jsonl")
    assert red.returncode == 1 and "1 failed, 1 passed" in red.stdout, red.stdout + red.stderr
    (line,) = [n for n, code in enumerate((project / "losses.py").read_text().splitlines(), 1) if "return 1 -" in code]
    failure = red.stdout.partition("FAILURES")[2]
    assert re.search(rf"invalid input can reach \w+ \(Div\) at {project / 'losses.py'}:{line}\n", failure)
    assert "return 1 - (2 * overlap + self.smooth) / (sizes + self.smooth)" in failure
    found = project / "counterexamples" / "test_losses.py.test_the_loss_is_finite"
    assert f"prediction = {found / 'cex.prediction.npy'}, target = {found / 'cex.target.npy'}" in failure
    assert "Captured log" not in red.stdout
    assert main(replay_of(failure)) == 1
    assert "(Div) gives NaN" in capsys.readouterr().out
    with chdir(project):
        assert main(["report", "found.jsonl", "--output-format", "github"]) == 0
    assert re.match(rf"::error file=losses.py,line={line},title=\w+ \(Div\) gives NaN::", capsys.readouterr().out)

    losses = project / "losses.py"
    losses.write_text(losses.read_text().replace("smooth: float = 0.0", "smooth: float = 1.0"))
    green = run_pytest(project, "-k", "the_loss")  # the other one has passed
    assert green.returncode == 0 and "1 passed" in green.stdout, green.stdout + green.stderr


MARKED = """
def test_open():
    assert_no_invalid_input(SUM, **QUICK)

@pytest.mark.ranum_falsify(holds=True)
class TestHolds:
    def test_proved(self):
        assert_no_invalid_input(RELU, box=(0, 1))

    def test_open(self):
        assert_no_invalid_input(SUM, **QUICK)

    @pytest.mark.ranum_falsify(holds=False)
    def test_nearer(self):
        assert_no_invalid_input(SUM, **QUICK)

@pytest.mark.parametrize("_", [
    pytest.param(0, marks=pytest.mark.ranum_falsify(hold=True)),
    pytest.param(0, marks=pytest.mark.ranum_falsify(True)),
    pytest.param(0, marks=pytest.mark.ranum_falsify(holds="no")),
    pytest.param(0, marks=pytest.mark.ranum_falsify()),
])
def test_wrong_marker(_):
    pass

@pytest.mark.parametrize("name", ["a b", "a/b"])
def test_twice(name):
    for _ in range(2):
        with pytest.raises(AssertionError, match="logarithm"):
            assert_no_invalid_input(LOG, box=(0, 1))
"""


class TestPlugin:
    @pytest.mark.slow
    def test_markers_folders_and_the_summary(self, tmp_path: Path) -> None:
        (tmp_path / "test_it.py").write_text(MODELS + MARKED)
        run = run_pytest(
            tmp_path, "--strict-markers", "--ranum-falsify-dir", "kept", "-n", "1", "--ranum-falsify-results", "all"
        )
        assert "1 failed, 5 passed, 4 errors" in run.stdout, run.stdout + run.stderr
        for given in ("hold=True", "True", "holds='no'", ""):
            assert f"the marker ranum_falsify takes holds=True or holds=False, not ({given})\n" in run.stdout
        assert "TestHolds::test_open - AssertionError: not proved" in run.stdout
        summary = run.stdout.partition("neither violated nor proved")[2]
        assert "test_it.py::test_open: open: total (Add)" in summary
        assert "test_it.py::TestHolds::test_nearer: open: total (Add)" in summary
        kept = sorted(path.relative_to(tmp_path / "kept") for path in (tmp_path / "kept").rglob("cex.json"))
        assert len({path.parts[0] for path in kept}) == 2 and len(kept) == 4, kept
        records = [json.loads(line) for line in (tmp_path / "all").read_text().splitlines()]
        assert sorted(Counter(record["status"] for record in records).items()) == [
            ("sat", 4),
            ("unknown", 3),
            ("unsat", 1),
        ]

    @pytest.mark.slow
    def test_counterexamples_lie_where_pytest_keeps_files(self, tmp_path: Path) -> None:
        (tmp_path / "test_it.py").write_text(
            MODELS
            + """
def test_own():
    assert_no_invalid_input(LOG, box=(0, 1))

def test_given(tmp_path):
    with pytest.raises(AssertionError):
        assert_no_invalid_input(LOG, box=(0, 1))
    assert (tmp_path / "cex.onnx").is_file()
"""
        )
        run = run_pytest(tmp_path, "--basetemp", str(tmp_path / "base"))
        assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
        assert replay_of(run.stdout)[1:] == [
            *(str(tmp_path / "base" / "test_own0" / "cex.json"), "--network", "N"),
            str(tmp_path / "base" / "test_own0" / "cex.onnx"),
        ]
