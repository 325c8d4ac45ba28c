"""Inputs of strings: they may be any string, and models are asked about as all others are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ranum_falsify as rf
from ranum_falsify.cli.app import main
from ranum_falsify.errors import UnsupportedOperatorError, UsageError
from ranum_falsify.network import Graph, read
from ranum_falsify.network.string_inputs import number_strings, string_inputs

ML = "ai.onnx.ml"
WORDS = ("red", "green", "blue")


def model_of(
    nodes: list[onnx.NodeProto], *, outputs: dict[str, int], shape: tuple[int, ...] = (1, 2)
) -> onnx.ModelProto:
    """Return a model of two inputs of strings, and one of floating numbers."""
    given = {"kind": TensorProto.STRING, "other": TensorProto.STRING, "x": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, kind in given.items()]
    infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    word = numpy_helper.from_array(np.array(["red"], object), "red")
    graph = helper.make_graph(nodes, "g", inputs, infos, [word])
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(ML, 2)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model


def encoder(source: str, target: str, default: float, values: tuple[float, ...] = (1.0, 2.0, 4.0)) -> onnx.NodeProto:
    return helper.make_node(
        "LabelEncoder",
        [source],
        [target],
        f"encode_{source}",
        domain=ML,
        keys_strings=list(WORDS),
        values_floats=list(values),
        default_float=default,
    )


def weighing(default: float) -> onnx.ModelProto:
    """Return a model with the logarithm of a string's weight, and a string that is handed on."""
    nodes = [
        encoder("kind", "weight", default),
        helper.make_node("Log", ["weight"], ["l"], "log"),
        helper.make_node("Add", ["l", "x"], ["y"], "add"),
        helper.make_node("Equal", ["other", "red"], ["same"], "same"),
        helper.make_node("OneHotEncoder", ["other"], ["z"], "spread", domain=ML, cats_strings=list(WORDS), zeros=1),
    ]
    return model_of(nodes, outputs={"y": TensorProto.FLOAT, "same": TensorProto.BOOL, "z": TensorProto.FLOAT})


@pytest.mark.parametrize(("default", "verdict"), [(0.5, "holds"), (0.0, "violated"), (-1.0, "violated")])
def test_strings_may_be_any(default: float, verdict: str) -> None:
    result = rf.check(weighing(default), box=(-1, 1), timeout=60, self_check=False)
    assert result.verdict == verdict
    (notice,) = [notice for notice in result.notices if "strings are taken" in notice]
    assert "(of 'kind', 'other')" in notice and "'green'" in notice and notice.endswith("for each other string")
    assert any("(any string)" in notice for notice in result.notices)
    if verdict == "violated":
        assert [op.node for op in result.operators if op.verdict == "violated"] == ["log"]
        assert rf.replay(None, result).violated


def test_a_box_of_one_string_is_about_that_alone() -> None:
    model = weighing(-1.0)
    strings = string_inputs(number_strings(model))["kind"]
    box = {"x": (-1, 1), "kind": strings.index("blue")}
    assert rf.check(model, box=box, timeout=60, self_check=False).verdict == "holds"


def test_the_numbers_stand_for_the_strings() -> None:
    model = weighing(0.5)
    graph, strings = read(model), string_inputs(number_strings(model))["kind"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.zeros((1, 2), np.float32)
    for first in range(len(strings)):
        for second in range(len(strings)):
            codes = [np.array([[first, second]]), np.array([[second, first]])]
            texts = [np.array(strings, object)[code] for code in codes]
            theirs = session.run(None, {"kind": texts[0], "other": texts[1], "x": x})
            for mine, other in zip(graph(*codes, x), theirs, strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_the_last_string_is_none_of_the_model() -> None:
    model = weighing(0.5)
    (keys,) = [attribute for attribute in model.graph.node[0].attribute if attribute.name == "keys_strings"]
    keys.strings[0] = b"another string"
    strings = string_inputs(number_strings(model))["kind"]
    assert len(set(strings)) == len(strings)
    assert strings[-1] not in {"another string", *WORDS}


CLASSIFIERS = (
    "l, s = ai.onnx.ml.LinearClassifier<classlabels_strings = ['no', 'yes'], coefficients = [1.0, -2.0],"
    " intercepts = [0.0, 0.0]>(x) ",
    "s = ai.onnx.ml.TreeEnsembleRegressor<n_targets = 1, nodes_modes = ['BRANCH_LEQ', 'LEAF', 'LEAF'],"
    " nodes_featureids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_treeids = [0, 0, 0],"
    " nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0], nodes_values = [0.0, 0.0, 0.0],"
    " target_ids = [0, 0], target_nodeids = [1, 2],"
    " target_treeids = [0, 0], target_weights = [1.0, 2.0]>(x) ",
)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
@pytest.mark.parametrize(
    ("body", "tables", "expected"),
    [
        ("e = ai.onnx.ml.OneHotEncoder<cats_strings = ['b', 'a']>(t)", {}, ["b", "a"]),
        ("e = Equal(t, w)", {"w": ["yes"]}, ["yes"]),
        ("e = ai.onnx.ml.LabelEncoder<keys_strings = ['a'], values_strings = ['b']>(t)", {}, ["a", "b"]),
    ],
)
def test_labels_and_settings_are_no_strings_of_inputs(
    classifier: str, body: str, tables: dict[str, list[str]], expected: list[str]
) -> None:
    text = f"g (string[2] t, float[2,1] x) => (float[2,1] s, e) {{ {classifier}{body} }}".replace("'", '"')
    source = read_text(text, **tables).source
    assert source is not None and string_inputs(source)["t"][:-1] == expected


def test_labels_that_are_compared_are_strings_of_inputs() -> None:
    body = f"{CLASSIFIERS[0]} k = Where(b, t, l) n = ai.onnx.ml.LabelEncoder<keys_strings = ['no', 'q'], {{}}>(k)"
    body = body.format("values_floats = [0.0, 1.0], default_float = 2.0") + " y = Log(n)"
    text = f"g (string[2] t, bool[2] b, float[2,1] x) => (float[2] y) {{ {body} }}".replace("'", '"')
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20, "ai.onnx.ml" : 3]> {text}')
    assert string_inputs(number_strings(model))["t"][:-1] == ["no", "q"]
    assert rf.check(model, box={"x": (1, 1), "b": 1}, timeout=60, self_check=False).verdict == "violated"


def test_other_models_stay_as_they_are() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 19]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    )
    assert number_strings(model) is model and not string_inputs(model)
    for text in ("{", "[]", '{"inputs": 3}', '{"inputs": [[]]}', "[" * 100_000):
        del model.metadata_props[:]
        model.metadata_props.add(key="ranum_falsify.strings", value=text)
        assert not string_inputs(model)
        assert rf.check(model, box=(0, 1), n_starts=0, self_check=False).verdict == "holds"


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("CategoryMapper", {"cats_strings": [*WORDS, "red"], "cats_int64s": [4, 5, 6, 7], "default_int64": 9}),
        ("LabelEncoder", {"classes_strings": [*WORDS, "red"], "default_int64": 9}),
    ],
)
def test_older_tables_of_strings(op_type: str, attributes: dict[str, Any]) -> None:
    back = attributes | {"default_string": "none"}
    if op_type == "CategoryMapper":
        back["cats_int64s"] = [4, 5, 6, 6]
    nodes = [
        helper.make_node(op_type, ["kind"], ["code"], "there", domain=ML, **attributes),
        helper.make_node(op_type, ["code"], ["word"], "back", domain=ML, **back),
        helper.make_node("OneHotEncoder", ["word"], ["z"], "spread", domain=ML, cats_strings=[*WORDS, "none"]),
    ]
    model = model_of(nodes, outputs={"code": TensorProto.INT64, "z": TensorProto.FLOAT})
    model.opset_import[1].version = 1
    graph, strings = read(model), string_inputs(number_strings(model))["kind"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.zeros((1, 2), np.float32)
    for code in range(len(strings)):
        codes = np.array([[code, 0]])
        texts = np.array(strings, object)[codes]
        theirs = session.run(None, {"kind": texts, "other": texts, "x": x})
        for mine, other in zip(graph(codes, codes, x), theirs, strict=True):
            np.testing.assert_array_equal(mine, other)


def read_text(text: str, **tables: list[str]) -> Graph:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20, "ai.onnx.ml" : 3]> {text}')
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(table, dtype=object), name) for name, table in tables.items()
    )
    return read(model)


@pytest.mark.parametrize(
    "body",
    [
        "s = SplitToSequence<keepdims = 0>(t) a = SequenceAt(s, i) b = SequenceAt(s, j) e = Equal(a, b)",
        "s = SequenceConstruct(t, t) c = ConcatFromSequence(s) a = Gather(c, i) b = Gather(c, j) e = Equal(a, b)",
        "e0 = Unique(t) e = Shape(e0)",
        "k = Gather(w, n) e0 = Unique(k) e = Shape(e0)",
    ],
)
def test_strings_of_inputs_are_not_told_from_each_other(body: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"compares strings|tells those of inputs"):
        read_text(
            "g (string[2] t, int64[2] n) => (float[a] y) <int64 i = {0}, int64 j = {1}>"
            f"{{ {body} y = Cast<to = 1>(e) }}",
            w=["b", "a"],
        )


def test_strings_of_the_model_are_not_sorted_by_their_codes() -> None:
    table = 'ai.onnx.ml.LabelEncoder<keys_strings = ["a"], values_floats = [1.0]>'
    body = f"k = Gather(w, n) u = Unique<sorted = {{}}>(k) y = {table}(u)"
    with pytest.raises(UnsupportedOperatorError, match="sorts strings"):
        read_text(f"g (int64[2] n) => (float[a] y) {{ {body.format(1)} }}", w=["b", "a"])
    graph = read_text(f"g (int64[2] n) => (float[a] y) {{ {body.format(0)} }}", w=["b", "a"])
    assert np.asarray(graph(np.array([0, 1]))).reshape(-1).tolist() == [0, 1]


def test_unknown_keys_of_a_table_of_strings_give_a_string() -> None:
    graph = read_text(
        "g (int64[3] x) => (float[3] y) {"
        'a = ai.onnx.ml.LabelEncoder<keys_int64s = [1], values_strings = ["b"]>(x)'
        'y = ai.onnx.ml.LabelEncoder<keys_strings = ["b", "_Unused"], values_floats = [1.0, 3.0]>(a)'
        "}"
    )
    assert np.asarray(graph(np.array([0, 1, 2]))).reshape(-1).tolist() == [3, 1, 3]


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Equal", ["kind", "other"], ["y"], "n"),
        helper.make_node("Unique", ["kind"], ["u", "", "", "y"], "n"),
        helper.make_node("StringConcat", ["kind", "other"], ["y"], "n"),
        helper.make_node("StringNormalizer", ["kind"], ["y"], "n"),
        helper.make_node("Cast", ["kind"], ["y"], "n", to=TensorProto.FLOAT),
        helper.make_node("RegexFullMatch", ["kind"], ["y"], "n", pattern="a+"),
        helper.make_node(
            "TfIdfVectorizer",
            ["kind"],
            ["y"],
            "n",
            max_gram_length=1,
            min_gram_length=1,
            max_skip_count=0,
            mode="TF",
            ngram_counts=[0],
            ngram_indexes=[0],
            pool_strings=["a"],
        ),
    ],
    ids=lambda node: str(node.op_type),
)
def test_what_is_computed_of_strings_otherwise_is_refused(node: onnx.NodeProto) -> None:
    model = model_of([node, helper.make_node("Neg", ["x"], ["z"])], outputs={"z": TensorProto.FLOAT, "y": 0})
    model.opset_import[0].version = 20
    with pytest.raises(UnsupportedOperatorError) as error:
        read(model)
    assert node.op_type in str(error.value) and "\n" not in str(error.value)


def test_strings_in_branches_are_refused() -> None:
    same = helper.make_node("Equal", ["kind", "other"], ["s"])
    branch = helper.make_graph([same], "b", [], [helper.make_tensor_value_info("s", TensorProto.BOOL, None)])
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch, else_branch=branch),
    ]
    with pytest.raises(UnsupportedOperatorError, match="its subgraph reads strings"):
        read(model_of(nodes, outputs={"y": TensorProto.BOOL}))


def test_a_category_that_is_not_known_ends_the_run() -> None:
    nodes = [helper.make_node("OneHotEncoder", ["kind"], ["y"], "spread", domain=ML, cats_strings=list(WORDS), zeros=0)]
    model = model_of(nodes, outputs={"y": TensorProto.FLOAT})
    result = rf.check(model, box=(0, 1), timeout=60, self_check=False)
    (spread,) = [op for op in result.operators if op.verdict == "violated"]
    assert (spread.node, spread.kind) == ("spread", "error")
    code = string_inputs(number_strings(model))["kind"].index("green")
    assert rf.check(model, box={"kind": code}, timeout=60, self_check=False).verdict == "holds"


def test_the_command_line_asks_replays_and_refuses_repairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(weighing(-1.0), path)
    found = ["--save-violation", str(tmp_path / "found.npy")]
    assert main(["check", str(path), "--box", "-1", "1", "--no-self-check", *found]) == 1
    assert main(["replay", str(tmp_path / "found.json"), "--network", "N", str(path)]) == 1
    assert "log (Log)" in capsys.readouterr().out
    with pytest.raises(UsageError, match="'kind' holds strings"):
        prop = "from dnnv.properties import *\nfrom ranum_falsify.properties import *\nN = Network('N')\n" + (
            "Forall(k, Forall(o, Forall(x, Implies(And(0 <= k <= 3, 0 <= o <= 3, 0 <= x <= 1), "
            "no_invalid_input(N(k, o, x))))))\n"
        )
        list(rf.fix(weighing(-1.0), prop))
