"""The record of a run: written as JSON, read again, and described by the published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ranum_falsify as rf
from ranum_falsify.results.plain import as_json
from ranum_falsify.results.run_report import RunReport, schema
from tests.results.records import make_operator, make_report

QUESTIONS = [("log_mel", "violated"), ("log_mel_safe", "holds")]


@pytest.fixture(params=QUESTIONS, ids=[name for name, _ in QUESTIONS])
def report(request: pytest.FixtureRequest, repository: Path) -> dict[str, Any]:
    """The report of a network."""
    name, verdict = request.param
    found = rf.check(repository / "networks" / f"{name}.onnx", box=(-1, 1), n_starts=5, self_check=False).to_json()
    assert found["verdict"] == verdict
    return found


def test_reports_are_as_the_schema_says(report: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(schema()).validate(report)
    one = report["operators"][0]
    for broken in (report | {"verdict": "perhaps"}, report | {"operators": [one | {"reach": "far"}]}):
        assert not jsonschema.Draft202012Validator(schema()).is_valid(broken)


def test_what_is_read_is_what_was_written(report: dict[str, Any]) -> None:
    text = json.dumps(report, allow_nan=False)
    assert as_json(msgspec.convert(json.loads(text), RunReport, strict=False)) == report


def test_numbers_that_are_not_finite_survive() -> None:
    written = make_report(make_operator(operands={"x": ["-inf", "nan"]}))
    read = msgspec.convert(written, RunReport, strict=False)
    assert str(read.operators[0].operands["x"]) == "(-inf, nan)"
    assert as_json(read)["operators"][0]["operands"] == {"x": ["-inf", "nan"]}


def test_the_published_schema_is_of_this_version(repository: Path) -> None:
    assert json.loads((repository / "docs" / "report.schema.json").read_text()) == json.loads(json.dumps(schema()))
