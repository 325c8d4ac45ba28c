"""JUnit XML, held to its published schema."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from ranum_falsify.errors import UsageError
from ranum_falsify.results.junit import run_as_junit, suite_as_junit
from tests.results.records import HOSTILE, make_operator, make_record, make_report

# The schema of Jenkins, which pytest's own output is held to, too.
SCHEMA = Path(__file__).parent / "schemas" / "junit-10.xsd"

MIXED = make_report(make_operator(), make_operator("safe", "proved"), make_operator("doubtful", "open"))


def check_schema(document: bytes) -> ElementTree.Element:
    xmlschema = pytest.importorskip("xmlschema")
    root = ElementTree.fromstring(document)
    xmlschema.XMLSchema(str(SCHEMA)).validate(root)
    return root


def test_operators_of_a_run_pass_fail_or_are_skipped() -> None:
    (suite,) = check_schema(run_as_junit(make_record(report=MIXED)))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    outcomes = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert outcomes == {"logarithm (Log)": ["failure"], "safe (Log)": [], "doubtful (Log)": ["skipped"]}
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "x > 0 (else: logarithm of a non-positive number)"
    assert "operands: x in [-1, inf]" in (failure.text or "")


def test_instances_of_a_suite_are_tests_by_category() -> None:
    records = [
        make_record("bad", MIXED),
        make_record("good", make_report(make_operator("safe", "proved"))),
        make_record("slow", make_report(make_operator("d", "open"), ended_early="timeout"), status="timeout"),
        make_record("broken"),
    ]
    (suite,) = check_schema(suite_as_junit(records))
    outcomes = {case.get("name", "").strip(): [child.tag for child in case] for case in suite.iter("testcase")}
    assert outcomes == {"bad.onnx": ["failure"], "good.onnx": [], "slow.onnx": ["skipped"], "broken.onnx": ["error"]}
    assert suite.get("time") == "2.000"


def test_a_property_of_outputs_is_one_test() -> None:
    classic = make_report(verdict="violated", counterexample={"x": "cex.npy"})
    (suite,) = check_schema(run_as_junit(make_record(report=classic, status="sat")))
    (failure,) = suite.iter("failure")
    assert failure.text == "input x: cex.npy"


def test_names_are_text() -> None:
    document = run_as_junit(make_record(report=make_report(make_operator(HOSTILE, reason=HOSTILE))))
    root = check_schema(document)
    (case,) = root.iter("testcase")
    assert (case.get("name") or "").startswith("</script><script>alert('x')</script> {0} ]]> [a](http://x) \\x1b[31m")
    assert [child.tag for child in case] == ["failure"]


@pytest.mark.parametrize("broken", [{"format": 2}, {"operators": 3}, {"operators": [{"node": 1}]}, {"notices": None}])
def test_what_is_no_report_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="the report of 'tiny a' is not in format 1"):
        run_as_junit(make_record(report={**MIXED, **broken}))
