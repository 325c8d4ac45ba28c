"""Results as JUnit XML, which CI systems show as tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from ranum_falsify.escaping import escape
from ranum_falsify.results.run_report import ReportedOperator, RunReport, report_of
from ranum_falsify.results.text import reported_lines
from ranum_falsify.suite.record import InstanceRecord

_Element = ElementTree.Element

_OPEN = "neither proved nor violated"
_WHY_SKIPPED = {"unknown": _OPEN, "timeout": "out of time"}


def run_as_junit(record: InstanceRecord) -> bytes:
    """Return one run as a test suite: a test for each operator in question, or for the property if it is about none.

    What is proved passes, what is violated fails, and what is open is skipped.
    """
    report = report_of(record)
    if report is None or not report.operators:
        cases = [_instance_case(record, report)]
    else:
        cases = [_operator_case(operator, record) for operator in report.operators]
    properties = [] if report is None else [(f"version {name}", of) for name, of in sorted(report.versions.items())]
    return _document([_test_suite(record.instance.id, cases, record.seconds, properties)])


def suite_as_junit(records: Iterable[InstanceRecord]) -> bytes:
    """Return the results of a suite: a test suite for each category, and a test for each instance.

    Proved ones pass, violated ones fail, unknown ones and those out of time are skipped, errors are errors.
    """
    suites: dict[str, list[_Element]] = {}
    seconds: dict[str, float] = {}
    for record in records:
        category = record.instance.category
        suites.setdefault(category, []).append(_instance_case(record, report_of(record)))
        seconds[category] = seconds.get(category, 0.0) + record.seconds
    return _document([_test_suite(name or "suite", cases, seconds[name]) for name, cases in suites.items()])


def _operator_case(operator: ReportedOperator, record: InstanceRecord) -> _Element:
    case = _make("testcase", name=operator.title, classname=record.instance.id)
    if operator.verdict == "violated":
        _add(case, "failure", operator.op_type, operator.full_condition or operator.reason, _lines(operator))
    elif operator.verdict == "open":
        _add(case, "skipped", "open", _OPEN, reported_lines(operator))
    return case


def _instance_case(record: InstanceRecord, report: RunReport | None) -> _Element:
    name = record.instance.id if not record.instance.category else f"{record.instance.model} {record.instance.property}"
    case = _make("testcase", name=name, classname=record.instance.category, time=f"{record.seconds:.3f}")
    if record.status == "sat":
        violated = [] if report is None else report.violated
        titles = ", ".join(operator.title for operator in violated)
        found = [line for operator in violated for line in _lines(operator)]
        files = None if report is None or violated else report.counterexample
        found += [f"input {name}: {file}" for name, file in (files or {}).items()]
        _add(case, "failure", "violated", titles or "the property is false on an input", found)
    elif record.status == "error":
        _add(case, "error", "error", record.error, ())
    elif record.status in _WHY_SKIPPED:
        _add(case, "skipped", record.status, _WHY_SKIPPED[record.status], () if report is None else report.notices)
    return case


def _lines(operator: ReportedOperator) -> Sequence[str]:
    files = operator.counterexample or {}
    return [*reported_lines(operator), *(f"    input {name}: {file}" for name, file in files.items())]


def _test_suite(
    name: str, cases: Sequence[_Element], seconds: float, properties: Iterable[tuple[str, str]] = ()
) -> _Element:
    suite = _make("testsuite", name=name, time=f"{seconds:.3f}", **_counts(cases))
    listed = [_make("property", name=name, value=value) for name, value in properties]
    if listed:
        ElementTree.SubElement(suite, "properties").extend(listed)
    suite.extend(cases)
    return suite


def _counts(cases: Sequence[_Element]) -> dict[str, str]:
    counts = {"tests": len(cases)}
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[name] = sum(case.find(tag) is not None for case in cases)
    return {name: str(count) for name, count in counts.items()}


def _document(suites: Sequence[_Element]) -> bytes:
    totals = {name: sum(int(suite.attrib[name]) for suite in suites) for name in ("tests", "failures", "errors")}
    root = _make("testsuites", name="ranum-falsify", **{name: str(count) for name, count in totals.items()})
    root.extend(suites)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _add(case: _Element, tag: str, kind: str, message: str, lines: Iterable[str]) -> None:
    child = _make(tag, type=kind, message=message)
    child.text = "\n".join(map(escape, lines))
    case.append(child)


def _make(tag: str, **attributes: str) -> _Element:
    """Return an element; XML cannot hold control characters."""
    return ElementTree.Element(tag, {name: escape(value) for name, value in attributes.items()})
