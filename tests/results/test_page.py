"""The page about a suite or a run, looked at in Chromium."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import ranum_falsify as rf
from ranum_falsify.api.result import illustrate
from ranum_falsify.results.page import make_page
from ranum_falsify.suite.record import InstanceRecord
from tests.results.browser import CHROMIUM, Browser, Tab
from tests.results.records import HOSTILE, make_operator, make_record, make_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, which shows the page")

WIDTHS = (400, 1400)
QUOTIENT = """<ir_version: 10, opset_import: ["" : 17]>
g (float[1, 3, 12, 12] image, float[1, 300] signal, float[2] vector) => (float[1, 1] y) {
    [brightness] b = ReduceMean<axes = [1, 2, 3], keepdims = 0>(image)
    [loudness] l = ReduceMean<axes = [1], keepdims = 0>(signal)
    [both] s = Mul(b, l)
    [least] m = ReduceMin<axes = [0], keepdims = 1>(vector)
    [quotient] q = Div(s, m)
    [shaped] y = Unsqueeze(q, axes)
}"""
OUTSIDE = """[...document.querySelectorAll("body *")].filter((element) => {
    const box = element.getBoundingClientRect();
    return box.width && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map((element) => element.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def show(browser: Browser, folder: Path, *records: InstanceRecord, width: int = 1400) -> Tab:
    path = folder / "report.html"
    path.write_bytes(make_page(records))
    return browser.open(path.as_uri(), width=width)


def check_calm(tab: Tab) -> None:
    """Nothing threw, nothing was forbidden, and nothing but the file was asked for."""
    assert tab.problems == []
    assert [url for url in tab.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def check_width(tab: Tab) -> None:
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    assert tab.run(OUTSIDE) == []


def list_shown(tab: Tab) -> list[str]:
    found = tab.run("[...document.querySelectorAll('#instances .opener')].map((element) => element.textContent)")
    assert isinstance(found, list)
    return found


def type_in(tab: Tab, text: str) -> None:
    """Type into the filter, in place of what is in it."""
    tab.run("document.getElementById('filter').select()")
    if text:
        tab.call("Input.insertText", text=text)
    else:
        for kind in ("keyDown", "keyUp"):
            tab.call("Input.dispatchKeyEvent", type=kind, key="Delete", code="Delete", windowsVirtualKeyCode=46)


def click(tab: Tab, element: str) -> None:
    """Click the middle of an element, as a mouse does."""
    tab.run(f"({element}).scrollIntoView({{block: 'center'}})")
    box = tab.run(f"(({element}).getBoundingClientRect()).toJSON()")
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    for kind in ("mousePressed", "mouseReleased"):
        tab.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)


@pytest.fixture(scope="module")
def pictured() -> InstanceRecord:
    """A run whose counterexample has an image, a signal and a vector, and whose vector may be 0."""
    model = onnx.parser.parse_model(QUOTIENT.replace("axes)", "axes)").replace("{", "<int64[1] axes = {0}> {", 1))
    result = rf.check(model, box={"vector": (-1, 1), ...: (0.5, 1)}, n_starts=20, self_check=False)
    report = result.to_json() | {"illustration": illustrate(result.answer, result.loaded, result.config)}
    return make_record("pictured", json.loads(json.dumps(report)))


@pytest.fixture(scope="module")
def suite(pictured: InstanceRecord) -> list[InstanceRecord]:
    return [
        pictured,
        make_record("safe", make_report(make_operator("s", "proved", op_type="Exp"))),
        make_record("doubtful", make_report(make_operator("d", "open"))),
        make_record("slow", status="timeout"),
        make_record("broken"),
        make_record("wide_" + "w" * 180, make_report(make_operator("o" * 180))),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_suite_is_shown_within_the_page(
    browser: Browser, tmp_path: Path, suite: list[InstanceRecord], width: int
) -> None:
    tab = show(browser, tmp_path, *suite, width=width)
    assert len(list_shown(tab)) == len(suite)
    check_width(tab)
    for position in range(len(suite)):
        tab.run(f"document.querySelector('[data-position=\"{position}\"] .opener').click()")
    tab.wait_for(f"document.querySelectorAll('.card').length === {len(suite)}")
    tab.run("document.querySelectorAll('details').forEach((element) => { element.open = true; })")
    check_width(tab)
    check_calm(tab)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_run_shows_graph_bounds_counterexample_and_commands(
    browser: Browser, tmp_path: Path, pictured: InstanceRecord, width: int
) -> None:
    tab = show(browser, tmp_path, pictured, width=width)
    check_width(tab)
    text = tab.run("document.body.innerText")
    for said in ("violated", "valid where b != 0 (else: division by zero)", "ranum-falsify check", "[0.5, 1]"):
        assert said in text
    drawn = tab.run("[...document.querySelectorAll('svg[aria-label^=Graph] text')].map((one) => one.textContent)")
    assert {"Div", "quotient", "least", "[-1, 1]"} <= set(drawn)
    assert tab.run("document.querySelectorAll('svg[aria-label^=Graph] .box.focus.violated').length") == 1
    assert "Origin of the bounds of b: [-1, 1]" in text
    image = "document.querySelector('img')"
    tab.wait_for(f"{image}.complete")
    assert tab.run(f"[{image}.naturalWidth, {image}.naturalHeight]") == [12, 12]
    assert tab.run("document.querySelectorAll('figure polygon').length") == 1  # the signal
    assert tab.run("document.querySelectorAll('figure rect').length") == 2  # the vector
    check_calm(tab)


class TestTable:
    def test_the_filter_finds_words_anywhere(
        self, browser: Browser, tmp_path: Path, suite: list[InstanceRecord]
    ) -> None:
        tab = show(browser, tmp_path, *suite)
        for typed, found in (("div PICT", ["pictured.onnx"]), ("timeout", ["slow.onnx"]), ("none", [])):
            type_in(tab, typed)
            assert list_shown(tab) == found
            assert tab.run("document.querySelector('[role=status]').textContent") == f"{len(found)} of 6 instances"
        type_in(tab, "")
        assert len(list_shown(tab)) == len(suite)
        check_calm(tab)

    def test_a_verdict_is_chosen_by_its_total(
        self, browser: Browser, tmp_path: Path, suite: list[InstanceRecord]
    ) -> None:
        tab = show(browser, tmp_path, *suite)
        total = "[...document.querySelectorAll('.totals button')].find((one) => one.textContent.includes('error'))"
        click(tab, total)
        assert list_shown(tab) == ["broken.onnx"]
        assert tab.run(f"{total}.getAttribute('aria-pressed')") == "true"
        click(tab, total)
        assert len(list_shown(tab)) == len(suite)

    def test_columns_sort(self, browser: Browser, tmp_path: Path) -> None:
        safe = make_report(make_operator("s", "proved"))
        tab = show(browser, tmp_path, *(make_record(name, safe, seconds=of) for name, of in (("b", 1.0), ("a", 2.0))))
        assert list_shown(tab) == ["b.onnx", "a.onnx"]
        click(tab, "document.querySelector('#instances thead button')")
        assert list_shown(tab) == ["a.onnx", "b.onnx"]
        assert tab.run("document.querySelector('#instances th').getAttribute('aria-sort')") == "ascending"
        click(tab, "document.querySelector('#instances thead button')")
        assert list_shown(tab) == ["b.onnx", "a.onnx"]

    def test_a_click_opens_an_instance_and_another_closes_it(
        self, browser: Browser, tmp_path: Path, suite: list[InstanceRecord]
    ) -> None:
        tab = show(browser, tmp_path, *suite)
        opener = "document.querySelector('[data-position=\"4\"] .opener')"
        click(tab, opener)
        tab.wait_for("document.querySelectorAll('.card').length === 1")
        assert "it broke" in tab.run("document.querySelector('.card').innerText")
        click(tab, opener)
        assert tab.run("document.querySelectorAll('.card').length") == 0


def test_names_are_text_whatever_they_say(browser: Browser, tmp_path: Path) -> None:
    operator = make_operator(HOSTILE, constraint=HOSTILE, op_type=HOSTILE)
    report = make_report(operator, model=HOSTILE, notices=[HOSTILE])
    tab = show(browser, tmp_path, make_record(HOSTILE, report), make_record("other", report))
    tab.run("document.querySelector('.opener').click()")
    tab.wait_for("document.querySelectorAll('.card').length === 1")
    text = tab.run("document.body.innerText")
    assert "</script><script>alert('x')</script>" in text and "\\u{1b}[31m" in text and "\\u{d800}" in text
    assert not set(text) & {"\x1b", "\u202e"}
    scripts = tab.run("[...document.scripts].filter((one) => !one.type).length")
    assert scripts == 1
    check_calm(tab)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "broken", [{}, {"operators": 3}, {"operators": [{"graph": 5}]}, {"counterexamples": [{"inputs": {"x": {}}}]}]
)
def test_a_picture_that_is_none_leaves_the_rest(browser: Browser, tmp_path: Path, broken: Any) -> None:
    tab = show(browser, tmp_path, make_record(report=make_report(make_operator(), illustration=broken)))
    assert "Repeat it" in tab.run("document.body.innerText")
    assert tab.problems == []


@pytest.mark.slow
def test_thousands_of_instances_open_at_once(browser: Browser, tmp_path: Path, pictured: InstanceRecord) -> None:
    report = make_report(make_operator(), *(make_operator(f"o{i}", "proved") for i in range(4)))
    path = tmp_path / "report.html"
    path.write_bytes(make_page(make_record(f"net_{i:05}", report, seconds=0.001 * i) for i in range(2000)))
    assert path.stat().st_size < 2_000_000
    began = time.monotonic()
    tab = browser.open(path.as_uri())
    assert time.monotonic() - began < 20
    assert len(list_shown(tab)) == 100
    type_in(tab, "net_01999")
    assert list_shown(tab) == ["net_01999.onnx"]
    tab.run("document.querySelector('.opener').click()")
    tab.wait_for("document.querySelectorAll('.card').length === 1")
    assert "2 s" in tab.run("document.querySelector('.card').innerText")
    check_calm(tab)


def test_the_same_records_make_the_same_page(suite: list[InstanceRecord]) -> None:
    assert make_page(suite) == make_page(suite)
    assert np.isfinite(len(make_page(suite)))
