"""`--junit` and `--sarif`: the same run in other forms."""

import json
from xml.etree import ElementTree

import pytest

from tests.cli.workshop import QUOTIENT, Workshop


def test_both_are_written_beside_the_counterexample(workshop: Workshop) -> None:
    (workshop.folder / "ci").mkdir()
    junit, sarif = workshop.folder / "ci" / "junit.xml", workshop.folder / "ci" / "log.sarif"
    cex = workshop.folder / "cex.npy"
    run = workshop.falsify("--junit", junit, "--sarif", sarif, "--save-violation", cex)
    assert (run.status, run.err) == (1, "")
    (failure,) = ElementTree.parse(junit).getroot().iter("failure")
    assert "input x: ../cex.npy" in (failure.text or "")
    (result,) = json.loads(sarif.read_text())["runs"][0]["results"]
    assert result["ruleId"] == "Log: x > 0"
    assert result["attachments"][0]["artifactLocation"]["uri"] == "../cex.npy"


def test_check_has_them_too(workshop: Workshop) -> None:
    junit = workshop.folder / "junit.xml"
    run = workshop.run("check", workshop.model(QUOTIENT), "--box", "1", "2", "--junit", junit)
    assert run.status == 0
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("1", "0", "0")


def test_a_run_that_had_no_time_is_skipped(workshop: Workshop) -> None:
    junit = workshop.folder / "junit.xml"
    run = workshop.falsify("--junit", junit, "--timeout", "1e-9")
    assert run.status == 3
    (skipped,) = ElementTree.parse(junit).getroot().iter("skipped")
    assert skipped.get("type") == "timeout"


@pytest.mark.parametrize("option", ["--junit", "--sarif"])
def test_each_has_a_file_of_its_own_in_a_folder_that_exists(workshop: Workshop, option: str) -> None:
    missing = workshop.folder / "none" / "file"
    assert f"{option} {missing}: there is no folder" in workshop.falsify(option, missing).error
    same = workshop.folder / "same.json"
    assert f"{option} {same}: --json writes this file too" in workshop.falsify(option, same, "--json", same).error
