"""Annotations of GitHub Actions, and code quality reports of GitLab."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ranum_falsify.results.findings import as_github, as_gitlab
from tests.results.records import HOSTILE, make_operator, make_record, make_report

COMMAND = re.compile(r"::(?P<level>error|warning) (?P<place>[^\n]*?)::(?P<said>[^\n]*)\n")


def code(file: str) -> dict[str, object]:
    return {"file": file, "line": 7, "code": "x.log()", "module_path": "", "backward": False}


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Level, place and message of each line, all of which must be commands."""
    found = list(COMMAND.finditer(text))
    assert "".join(one[0] for one in found) == text
    places = [dict(part.split("=", 1) for part in one["place"].split(",")) for one in found]
    return [(one["level"], place, one["said"]) for one, place in zip(found, places, strict=True)]


def test_a_violation_is_an_error_at_its_line_and_what_is_open_a_warning() -> None:
    violated = make_operator("l, a: b", source=code("loss.py"))
    report = make_report(violated, make_operator("o", "open"), make_operator("p", "open", after=["o"]))
    first, second = commands(as_github([make_record(report=report)]))
    assert first[0] == "error" and first[1]["file"] == "loss.py" and first[1]["line"] == "7"
    assert first[1]["title"] == "l%2C a%3A b (Log) gives NaN" and "%0Avalid where x > 0" in first[2]
    assert second[:2] == ("warning", {"file": "a/model.onnx", "title": "o (Log) is neither proved nor violated"})


def test_what_is_proved_is_no_finding_and_what_cannot_be_read_is_one() -> None:
    assert as_github([make_record(report=make_report(make_operator("s", "proved")))]) == ""
    assert as_gitlab([make_record(report=make_report(make_operator("s", "proved")))]) == []
    ((level, place, said),) = commands(as_github([make_record("b")]))
    assert (level, place["file"], said) == ("error", "b.onnx", "it broke")


def test_a_property_of_outputs_has_a_finding_of_its_own() -> None:
    (violated,) = as_gitlab([make_record(report=make_report(verdict="violated"), status="sat")])
    assert violated["check_name"] == "property" and "false on an input" in violated["description"]
    (late,) = as_gitlab([make_record(report=make_report(verdict="unknown", ended_early="timeout"))])
    assert late["severity"] == "minor" and "ended early: timeout" in late["description"]


def test_gitlab_has_a_path_a_line_and_a_fingerprint_for_each() -> None:
    operators = [make_operator(name, source=code("loss.py")) for name in ("a", "b")]
    issues = as_gitlab([make_record(report=make_report(*operators)), make_record("c")])
    assert [one["severity"] for one in issues] == ["critical", "critical", "blocker"]
    assert issues[0]["location"] == {"path": "loss.py", "lines": {"begin": 7}}
    assert len({one["fingerprint"] for one in issues}) == 3


@pytest.mark.parametrize(("file", "shown"), [("{here}/net/loss.py", "net/loss.py"), ("/else/loss.py", "a/model.onnx")])
def test_a_line_outside_of_the_working_folder_is_shown_at_the_model(
    file: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = make_report(make_operator(source=code(file.format(here=os.getcwd()))))
    (issue,) = as_gitlab([make_record(report=report)])
    assert issue["location"]["path"] == shown


def test_names_give_no_orders() -> None:
    report = make_report(make_operator(f"\n::error::{HOSTILE}\n##[add-mask]"), model=f"m/{HOSTILE}\n::stop.onnx")
    text = as_github([make_record(report=report)])
    assert len(commands(text)) == 1 and "##[" not in text and "\x1b" not in text
