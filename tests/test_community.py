"""What stands in the repository for those who report, cite and build."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import ranum_falsify
from ranum_falsify.cli.front import parse
from ranum_falsify.cli.options.questions import CheckOptions

WORKFLOWS = sorted((Path(__file__).resolve().parent.parent / ".github" / "workflows").glob("*.yml"))


def test_the_citation_is_of_this_version(repository: Path) -> None:
    citation = yaml.safe_load((repository / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["version"] == ranum_falsify.__version__
    assert all(one["title"] and one["authors"] and one["year"] for one in citation["references"])


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_there_is(workflow: Path, repository: Path) -> None:
    read: dict[Any, Any] = yaml.safe_load(workflow.read_text())
    assert read[True]  # what YAML makes of `on`
    steps = [step for job in read["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step["run"] for step in steps if "run" in step)
    named = set(re.findall(r"(?:\.ci|scripts|networks)/[\w./]+", commands))
    assert named and all((repository / path).exists() for path in named), named
    assert all(job["timeout-minutes"] <= 360 for job in read["jobs"].values())


class TestAction:
    """What the repository offers to others' workflows, run as they would."""

    @pytest.fixture
    def script(self, repository: Path) -> str:
        """The step that checks."""
        action = yaml.safe_load((repository / "action.yml").read_text())
        install, check = action["runs"]["steps"]
        assert "pip install" in install["run"]
        assert set(check["env"]) == {"MODELS", "ARGUMENTS", "SARIF", "ALLOW_UNKNOWN"}
        assert {value.strip("${} ").removeprefix("inputs.") for value in check["env"].values()} == {*action["inputs"]}
        script: str = check["run"]
        return script

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("models", "arguments", "status"),
        [
            ("log_mel_safe.onnx", "--box -1 1", 0),
            ("log_mel_safe.onnx log_mel.onnx", "--box -1 1", 1),
            ("log_mel.onnx", "--box -1 1 --n_starts 0", 3),
        ],
    )
    def test_it_ends_as_the_command_does(
        self, script: str, models: str, arguments: str, status: int, repository: Path, tmp_path: Path
    ) -> None:
        paths = " ".join(str(repository / "networks" / name) for name in models.split())
        given = {"MODELS": paths, "ARGUMENTS": arguments, "SARIF": str(tmp_path / "s.sarif"), "ALLOW_UNKNOWN": "false"}
        search_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        run = subprocess.run(
            ["bash", "-e", "-c", script],
            env={**os.environ, "PATH": search_path, "PYTHONPATH": str(repository), **given},
            check=False,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert run.returncode == status
        level = {0: "", 1: "::error ", 3: "::warning "}[status]
        assert run.stdout.startswith(level) and bool(run.stdout) == bool(level)
        assert (tmp_path / "s.sarif").is_file()

    def test_the_hook_takes_models(self, repository: Path) -> None:
        (hook,) = yaml.safe_load((repository / ".pre-commit-hooks.yaml").read_text())
        words = [*hook["entry"].split()[1:], *hook["args"], "a.onnx", "b.onnx"]
        options = parse(words).options
        assert isinstance(options, CheckOptions) and options.models == (Path("a.onnx"), Path("b.onnx"))
        assert re.search(hook["files"], "models/a.onnx")
