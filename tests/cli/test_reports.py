"""`--report`, `--junit`, `--sarif`, and the command `report`: results in other forms."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.workshop import QUOTIENT, Workshop
from tests.results.records import make_operator, make_record, make_report


def test_both_name_files_as_they_are_seen_from_here(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop.folder)
    (workshop.folder / "ci").mkdir()
    junit, sarif = workshop.folder / "ci" / "junit.xml", workshop.folder / "ci" / "log.sarif"
    cex = workshop.folder / "cex.npy"
    run = workshop.falsify("--junit", junit, "--sarif", sarif, "--save-violation", cex)
    assert (run.status, run.err) == (1, "")
    (failure,) = ElementTree.parse(junit).getroot().iter("failure")
    assert "input x: cex.npy" in (failure.text or "")
    (result,) = json.loads(sarif.read_text())["runs"][0]["results"]
    assert result["ruleId"] == "Log: x > 0"
    assert result["attachments"][0]["artifactLocation"]["uri"] == "cex.npy"


def test_check_has_them_too(workshop: Workshop) -> None:
    junit = workshop.folder / "junit.xml"
    run = workshop.run("check", workshop.model(QUOTIENT), "--box", "1", "2", "--junit", junit)
    assert run.status == 0
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("1", "0", "0")


class TestOutputFormat:
    def test_it_is_printed_in_place_of_the_text(self, workshop: Workshop) -> None:
        run = workshop.falsify("--output-format", "github")
        assert run.status == 1 and run.out.startswith("::error ") and run.out.count("\n") == 1
        assert json.loads(workshop.falsify("--output-format", "json").out)["verdict"] == "violated"
        assert "contradict each other" in workshop.falsify("--json", "-", "--output-format", "sarif").error

    def test_it_is_about_all_models(self, workshop: Workshop) -> None:
        model, broken = workshop.model(QUOTIENT), workshop.folder / "broken.onnx"
        broken.write_bytes(b"none")
        asked = ("check", model, broken, "--box", "-1", "1", "--n_starts", "10", "--output-format")
        run = workshop.run(*asked, "gitlab")
        assert run.status == 2
        assert [one["severity"] for one in json.loads(run.out)] == ["critical", "blocker"]
        lines = [json.loads(line) for line in workshop.run(*asked, "json").out.splitlines()]
        assert [line["status"] for line in lines] == ["sat", "error"]


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
    assert f"{option} {same}: is the file of --json, too" in workshop.falsify(option, same, "--json", same).error


class TestPage:
    def test_a_run_is_a_page_and_json_has_what_it_draws(self, workshop: Workshop) -> None:
        page, report = workshop.folder / "report.html", workshop.folder / "report.json"
        assert workshop.falsify("--report", page, "--json", report).status == 1
        assert page.read_text().startswith("<!doctype html>")
        drawn = json.loads(report.read_text())["illustration"]
        assert [one["node"] for one in drawn["operators"]] == ["logarithm"]
        assert drawn["counterexamples"][0]["inputs"]["x"]["shape"] == [1, 2]

    def test_a_run_that_had_no_time_has_one_too(self, workshop: Workshop) -> None:
        page = workshop.folder / "report.html"
        assert workshop.falsify("--report", page, "--timeout", "1e-9").status == 3
        assert page.exists()

    def test_without_it_nothing_is_drawn(self, workshop: Workshop) -> None:
        report = workshop.folder / "report.json"
        workshop.falsify("--json", report)
        assert json.loads(report.read_text())["illustration"] is None


class TestOfASuite:
    def results(self, workshop: Workshop) -> Path:
        records = [make_record("a", make_report(make_operator())), make_record("b")]
        path = workshop.folder / "results.jsonl"
        path.write_text("".join(record.line() for record in records))
        return path

    def test_all_forms_are_written(self, workshop: Workshop) -> None:
        page, junit, sarif = (workshop.folder / name for name in ("r.html", "j.xml", "s.sarif"))
        run = workshop.run("report", self.results(workshop), "-o", page, "--junit", junit, "--sarif", sarif)
        assert (run.status, run.out) == (0, f"written: {page}, {junit}, {sarif}\n")
        (suite,) = ElementTree.parse(junit).getroot()
        assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "1")
        assert len(json.loads(sarif.read_text())["runs"][0]["results"]) == 1
        assert page.read_text().startswith("<!doctype html>")
        shown = workshop.run("report", self.results(workshop), "--output-format", "github")
        assert shown.status == 0 and shown.out.count("::error ") == 2

    def test_parts_of_a_suite_are_one_report(self, workshop: Workshop) -> None:
        parts = [workshop.folder / f"{name}.jsonl" for name in "ab"]
        for path, name in zip(parts, "ab", strict=True):
            path.write_text(make_record(name).line())
        junit = workshop.folder / "j.xml"
        assert workshop.run("report", *parts, "--junit", junit).status == 0
        (suite,) = ElementTree.parse(junit).getroot()
        assert suite.get("tests") == "2"
        parts[1].write_text(parts[0].read_text())
        run = workshop.run("report", *parts, "--junit", junit)
        assert run.status == 2 and f"{parts[1]}: instance 'tiny a' is in {parts[0]}, too" in run.error

    def test_what_cannot_be_done_is_told(self, workshop: Workshop) -> None:
        results = self.results(workshop)
        assert "no output is named; add -o report.html" in workshop.run("report", results).error
        assert "is the file of RESULTS, too" in workshop.run("report", results, "-o", results).error
        assert "none.jsonl: no such file" in workshop.run("report", "none.jsonl", "-o", workshop.folder / "r").error
        results.write_text("{}\n")
        run = workshop.run("report", results, "-o", workshop.folder / "r.html")
        assert "line 1 is no result of a suite" in run.error
        record = make_record("a", make_report(format=7))
        results.write_text(record.line())
        run = workshop.run("report", results, "-o", workshop.folder / "r.html")
        assert f"{results}: the report of 'tiny a' is not in format 1" in run.error
        assert not (workshop.folder / "r.html").exists()

    def test_files_are_named_as_they_are_seen_from_here(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(workshop.folder)
        report = make_report(make_operator(counterexample={"x": "cex/a.npy"}))
        Path("out").mkdir()
        Path("out/results.jsonl").write_text(make_record("a", report).line())
        assert workshop.run("report", "out/results.jsonl", "--sarif", "log.sarif").status == 0
        (result,) = json.loads(Path("log.sarif").read_text())["runs"][0]["results"]
        assert result["attachments"][0]["artifactLocation"]["uri"] == "out/cex/a.npy"
