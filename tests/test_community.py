"""What stands in the repository for those who report, cite and build."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import ranum_falsify

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
