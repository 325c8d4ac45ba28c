"""The report for notebooks."""

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest

import ranum_falsify as rf
from tests.results.browser import CHROMIUM, Browser

HOSTILE = "<script>alert('x')</script>"


class Reader(HTMLParser):
    """Notes the tags, and the text of table cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def model_of(op_type: str, size: int, element: int = onnx.TensorProto.FLOAT) -> onnx.ModelProto:
    """A model of one operator with the operands a and b."""
    tensors = [onnx.helper.make_tensor_value_info(name, element, [size]) for name in "aby"]
    nodes = [onnx.helper.make_node(op_type, ["a", "b"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", tensors[:2], tensors[2:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


def test_names_are_text_and_violations_come_first() -> None:
    nodes = [
        onnx.helper.make_node("Add", ["x", "x"], ["n"], name="first"),
        onnx.helper.make_node("Log", ["n"], ["y"], name=HOSTILE),
    ]
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = onnx.helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    result = rf.check(model, box=(-1, 1), self_check=False)
    reader = Reader()
    reader.feed(result._repr_html_())
    assert "script" not in reader.tags and reader.tags.count("tr") == 3
    assert HOSTILE in reader.text
    assert reader.text.startswith("violated") and reader.text.index(f"{HOSTILE} (Log)") < reader.text.index(
        "first (Add)"
    )


def check_quotient() -> rf.Result:
    return rf.check(model_of("Div", 2), box={"a": (0, 1), "b": (0, 3)}, self_check=False, n_starts=10)


def test_operands_have_bounds_and_margins() -> None:
    (operator,) = check_quotient().operators
    assert operator.bounds["b"] == (0, 3) and operator.margin == 0
    safe = rf.check(model_of("Div", 2), box={"a": (0, 1), "b": (0.5, 3)}, self_check=False)
    assert safe.operators[0].margin == 0.5
    reader = Reader()
    reader.feed(safe._repr_html_())
    assert "b in [0.5, 3]" in reader.text and "iframe" not in reader.tags


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, which shows the report")
def test_the_page_draws_the_graph_in_its_frame(tmp_path: Path) -> None:
    path = tmp_path / "cell.html"
    path.write_text(f"<!doctype html><title>cell</title><body>{check_quotient()._repr_html_()}", encoding="utf-8")
    with Browser(tmp_path / "chromium") as browser:
        tab = browser.open(path.as_uri(), ready="document.readyState === 'complete'")
        frame = tab.run("document.querySelector('iframe').srcdoc")
        assert tab.problems == []
        path.write_text(frame, encoding="utf-8")
        tab.go(path.as_uri(), "document.documentElement?.dataset.ready === 'yes'")
        assert "Graph around" in tab.run("document.querySelector('svg[aria-label^=Graph]').getAttribute('aria-label')")


def test_integers_are_exact() -> None:
    model = model_of("Div", 1, onnx.TensorProto.INT64)
    box = {"a": np.array([2**62]), "b": np.array([0])}
    result = rf.check(model, box={name: (value, value) for name, value in box.items()}, self_check=False)
    assert f"a = {2**62}" in result._repr_html_()
