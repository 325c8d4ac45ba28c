"""The report for notebooks."""

from html.parser import HTMLParser

import numpy as np
import onnx

import ranum_falsify as rf

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


def test_integers_are_exact() -> None:
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1]) for name in "aby"]
    nodes = [onnx.helper.make_node("Div", ["a", "b"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", tensors[:2], tensors[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    box = {"a": np.array([2**62]), "b": np.array([0])}
    result = rf.check(model, box={name: (value, value) for name, value in box.items()}, self_check=False)
    assert f"a = {2**62}" in result._repr_html_()
