"""Reading: what is refused, and what the errors say."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

from ranum_falsify.errors import ModelError, UnsupportedOperatorError, UnsupportedTypeError
from ranum_falsify.network import read
from tests.network.building import branching, chain, unchecked

FLOAT = onnx.TensorProto.FLOAT


def test_all_unsupported_operators_are_listed_at_once() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "com.own" : 1]>
        g (float[2] x, bool c) => (float[2] y) {
            a = com.own.Wavelet(x)
            b = com.own.Wavelet(a)
            d = NoSuchOperator(b)
            y = If(c) <
                then_branch = yes () => (float[2] e) { e = Hidden(d) },
                else_branch = no () => (float[2] f) { f = Relu(d) }
            >
        }"""
    )
    with pytest.raises(UnsupportedOperatorError) as caught:
        read(model)
    message = str(caught.value)
    assert "3 unsupported operators at opset 17" in message
    assert all(part in message for part in ("com.own::Wavelet (2)", "NoSuchOperator (1)", "Hidden (1)"))
    assert "\n" not in message


@pytest.mark.parametrize("opset", [1, 6, onnx.defs.onnx_opset_version() + 1])
def test_an_opset_out_of_reach_is_refused(opset: int) -> None:
    model = unchecked("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset)
    with pytest.raises(ModelError, match=f"opset {opset}, but 7 to"):
        read(model)


def test_an_operator_younger_than_the_opset_is_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"opset 13.*Trilu \(1\)"):
        read(unchecked("g (float[2,2] x) => (float[2,2] y) { y = Trilu(x) }", 13))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (float[2] x) => (float[2] y) { a = Add(x, b)\n b = Relu(a)\n y = Relu(b) }", "part of a cycle"),
        ("g (float[2] x) => (float[2] y) { y = Neg(b)\n a = Add(x, b)\n b = Relu(a) }", "'Add' is part of a cycle"),
        ("g (float[2] x) => (float[2] y) { y = Add(x, lost) }", "reads 'lost', which nothing writes"),
        ("g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) }", "output reads 'z', which nothing writes"),
        ("g (float[2] x) => (float[2] y) { y = Relu(x)\n y = Neg(x) }", "'y' is written more than once"),
        ("g (float[2] x) => (float[2] y) { x = Relu(x)\n y = Neg(x) }", "'x' is written more than once"),
        ("g (float[2] x) => (float[2] y) { y = Relu<slope = 2.0>(x) }", "no attribute 'slope'"),
        ("g (float[2] x) => (float[2] y) { y = Concat(x) }", "needs attribute 'axis'"),
        ("g (float[2] x) => (float[2] y) { y = Mul(x) }", "needs input"),
        ("g (float[2] x) => (float[2] y) { y = Relu(x, x) }", "at most 1"),
        ("g (float[2] x, float[3] z) => (float[2] y) { y = Add(x, z) }", r"\(Add\) cannot run on operands of shapes"),
        ("g (float x) => (float y) { y = Cast<to = 99>(x) }", "element type 99"),
        *(
            (
                f"g (float[2] x{read}) => (float[2] y) <{stored}> {{ y = If(c) <then_branch = a () => (float[2] r) "
                "{ r = Neg(x) }, else_branch = b () => (float[2] r) { r = Abs(x) }> }",
                rf"steered by has shape \[{size}\], not one element",
            )
            for read, stored, size in (("", "bool[0] c = {}", 0), ("", "bool[2] c = {1, 0}", 2), (", bool[0] c", "", 0))
        ),
    ],
)
def test_broken_models_are_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        read(unchecked(text))
    assert "\n" not in str(caught.value)


def test_inputs_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match="input 'x' has element type COMPLEX64"):
        read(unchecked("g (complex64[2] x) => (complex64[2] y) { y = Identity(x) }"))


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    whole = chain(["Relu", "Neg"]).SerializeToString()
    cases = {
        "truncated.onnx": whole[: len(whole) // 2],
        "text.onnx": b"this is no model\n" * 10,
        "empty.onnx": b"",
    }
    for name, content in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ModelError, match=name) as caught:
            read(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match=r"missing\.onnx: no such file"):
        read(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="is a directory"):
        read(tmp_path)


def test_no_part_of_a_file_passes_for_the_whole(tmp_path: Path) -> None:
    whole = branching("c = Constant<value = bool[1] {1}>()").SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError) as caught:
            read(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["name", "op_type", "domain", "input", "output", "attribute", "body"])
def test_a_name_that_is_no_text_is_refused(place: str, tmp_path: Path) -> None:
    model = unchecked("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    graph, node = model.graph, model.graph.node[0]
    if place == "body":
        node.op_type = "If"
        node.attribute.append(onnx.helper.make_attribute("then_branch", onnx.GraphProto(node=[{"name": "QQQQ"}])))
    elif place == "attribute":
        node.attribute.append(onnx.helper.make_attribute("QQQQ", 1))
    elif place in ("input", "output"):
        getattr(node, place)[0] = getattr(graph, place)[0].name = "QQQQ"
    else:
        setattr(node, place, "QQQQ")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString().replace(b"QQQQ", b"\xff\xfe\xfd\x9b"))
    with pytest.raises(ModelError, match=r"the name b'\\xff\\xfe\\xfd\\x9b' is not UTF-8 text"):
        read(path)


def test_a_branch_that_is_missing_is_named() -> None:
    model = branching("c = Constant<value = bool[1] {1}>()")
    chosen = next(node for node in model.graph.node if node.op_type == "If")
    del chosen.attribute[[a.name for a in chosen.attribute].index("then_branch")]
    with pytest.raises(ModelError, match=r"\(If\) needs attribute 'then_branch'"):
        read(model)
