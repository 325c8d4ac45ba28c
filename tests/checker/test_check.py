"""The checker follows whole models, on its own."""

import ast
import sys
from collections.abc import Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ranum_falsify as rf
from ranum_falsify.api.result import proof_of
from ranum_falsify.checker import elementwise as functions
from ranum_falsify.checker import layers
from ranum_falsify.checker.check import Followed, check_model, live_nodes
from ranum_falsify.checker.question import RUNTIMES, ModelQuestion, ProofFile, ask
from ranum_falsify.domain.kernels.records import shipped
from ranum_falsify.network.optimised import optimise_model
from ranum_falsify.network.registry import list_supported
from tests.imports import imported
from tests.network.building import unchecked

PACKAGE = Path(__file__).parents[2] / "ranum_falsify"
NETWORKS = Path(__file__).parents[2] / "networks"
HEADER = '<ir_version: 8, opset_import: ["" : 18]>'
SAFE = ("log_mel_safe", "masked_attention_safe", "mlp_classifier", "l2_normalise_safe", "layer_norm_safe")
PLAIN = ProofFile(model="", runtimes=(), inputs={}, derivatives=False, cuts=[None])


def question_of(text: str, opset: int = 18, **ranges: Any) -> ModelQuestion:
    data = unchecked(text, opset).SerializeToString()
    box: Mapping[str | EllipsisType, Any] = dict(ranges.items()) if ranges else {...: (-1, 1)}
    return ask(data, box, sizes={}, runtimes=("onnxruntime",))


def follow(text: str, opset: int = 18, **ranges: Any) -> Followed:
    return check_model(question_of(text, opset, **ranges), PLAIN)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", SAFE)
def test_proofs_of_networks_are_accepted(name: str, tmp_path: Path) -> None:
    path = NETWORKS / f"{name}.onnx"
    result = rf.check(path, box=(-1, 1), n_starts=0, self_check=False)
    file = tmp_path / "proof.npz"
    file.write_bytes(proof_of(result.answer, result.loaded, result.config))
    proof = ProofFile.read(file)
    question = ask(path.read_bytes(), {...: (-1, 1)}, sizes={}, runtimes=("onnxruntime",))
    assert not proof.compare(question)
    rewritten, reason = optimise_model(question.model)
    assert rewritten is not None and not reason
    for model in (question.model, rewritten):
        found = check_model(question, proof, model)
        assert found.failing and not found.open


def test_a_box_is_cut_as_the_prover_did(tmp_path: Path) -> None:
    path, file = tmp_path / "model.onnx", tmp_path / "proof.npz"
    text = "g (float[1] x) => (float[1] y) <float k = {0.3}> { s = Mul(x, x) d = Sub(s, x) e = Add(d, k) y = Log(e) }"
    onnx.save(unchecked(text, 18), path)
    result = rf.check(path, box=(-1, 2), n_starts=0, self_check=False)
    assert result.verdict == "holds"
    file.write_bytes(proof_of(result.answer, result.loaded, result.config))
    question, proof = question_of(text, x=(-1, 2)), ProofFile.read(file)
    assert check_model(question, PLAIN).open
    found = check_model(question, proof)
    assert found.parts > 1 and not found.open


# what is not shown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (float[2] y) <float k = {inf}> { y = Min(x, k) }",
        "g (float[2] x) => (float[2] y) <float[2] k = {nan, 1}> { y = Add(x, k) }",
        "g (float[2] x) => (float[2] y) { k = Constant<value_float = inf>() y = Identity(k) }",
        "g (float[2] x) => (float[2] y) { y = Det(x) }",
        "g (float[2] x) => (float[2] y) { [a] u = Tan(x) y = Relu(u) }",
        "g (float[2] x) => (float[2] y) { y = Relu<alpha = 1.0>(x) }",
        "g (bfloat16[2] k, float[2] x) => (float[2] y) { y = Relu(x) }",
        "g (float[2] x) => (float[1] y) <float[0] k = {}> { y = ReduceMean(k) }",
        "g (float[2] x) => (float[2] y) <int64[1] i = {5}> { l = Gather(x, i) y = Abs(x) }",
        "g (float[2] x) => (int64[2] y) <float k = {1e30}> { s = Mul(x, k) y = Cast<to = 7>(s) }",
        "g (float[2] x) => (float16[2] y) <float k = {1e6}> { s = Mul(x, k) y = Cast<to = 10>(s) }",
        "g (float[2] x) => (float16[2] y) <float k = {100}> { s = Mul(x, k) c = Cast<to = 10>(s) y = Softplus(c) }",
        "g (float[4] x) => (float[4] y) <int64[1] a = {-9}, int64[1] b = {-9}, int64[1] s = {-1}, int64[1] t = {0}>"
        " { y = Slice(x, a, b, t, s) }",
        "g (float[4] x) => (int64[n] y) <int64[2] k = {1, 2}, int64[1] a = {-9}, int64[1] b = {-9}, int64[1] s = {-1},"
        " int64[1] t = {0}> { y = Slice(k, a, b, t, s) }",
    ],
)
def test_what_no_rule_shows_is_open(text: str) -> None:
    if "bfloat16" in text:
        with pytest.raises(Exception, match="a type that the checker does not know"):
            follow(text)
        return
    assert follow(text).open


def test_operators_of_other_domains_are_open() -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"], domain="other")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph([node], "g", [value], [onnx.ValueInfoProto(name="y")])
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("other", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    found = ask(model.SerializeToString(), {...: (-1, 1)}, sizes={}, runtimes=())
    assert check_model(found, PLAIN).open
    function = onnx.helper.make_function(
        "", "Relu", ["a"], ["b"], [onnx.helper.make_node("Log", ["a"], ["b"])], opsets[:1]
    )
    node.domain = ""
    del model.graph.node[:]
    model.graph.node.append(node)
    model.functions.append(function)
    assert check_model(ask(model.SerializeToString(), {...: (-1, 1)}, sizes={}, runtimes=()), PLAIN).open


def test_the_optimised_graph_is_checked_too() -> None:
    """ONNX Runtime's fused product ignores a transpose beside a vector, which the graph as written does not say."""
    question = question_of(
        "g (float[2,2] x, float[2] v) => (float[2] y) { t = Transpose<perm = [1, 0]>(x) y = MatMul(t, v) }"
    )
    assert not check_model(question, PLAIN).open
    rewritten, _ = optimise_model(question.model)
    assert rewritten is not None
    found = check_model(question, PLAIN, rewritten)
    fused = [node.op_type for node in rewritten.graph.node if node.op_type == "FusedMatMul"]
    assert bool(found.open) == bool(fused)


def test_relations_hold() -> None:
    softmax = """g (float[3,4] x) => (float[3,4] y) {
        m = ReduceMax<axes = [1], keepdims = 1>(x) d = Sub(x, m) e = Exp(d)
        s = ReduceSum(e, a) y = Div(e, s) }""".replace("{\n", "<int64[1] a = {1}> {\n", 1)
    assert not follow(softmax, 17, x=(-1e4, 1e4)).open
    turned = softmax.replace("y = Div(e, s)", "y = Div(t, s)").replace(
        "s = ReduceSum(e, a)", "t = Transpose<perm = [1, 0]>(e) s = ReduceSum(t, a)"
    )
    assert not follow(turned.replace("a = {1}", "a = {0}"), 17, x=(-1e4, 1e4)).open
    assert follow(turned, 17, x=(-1e4, 1e4)).open, "sums over the other axis may vanish"
    guarded = """g (float[3] x) => (float[3] y) <float k = {0.01}, float one = {1}> {
        a = Abs(x) l = Less(a, k) w = Where(l, one, x) y = Div(x, w) }"""
    assert not follow(guarded).open
    assert not follow(guarded, x=(0, 1)).open and not follow(guarded, x=(-1, 0)).open
    greatest = guarded.replace("y = Div(x, w)", "g = ReduceMax(w) y = Div(x, g)")
    assert not follow(greatest).open
    assert follow(greatest.replace("ReduceMax", "ReduceSum")).open
    moved = guarded.replace("y = Div(x, w)", "t = Mul(w, w) u = Identity(t) v = Div(u, w) y = Div(x, v)")
    assert not follow(moved).open
    assert follow(moved.replace("Mul(w, w)", "Mul(w, x)")).open
    assert follow(guarded.replace("Where(l, one, x)", "Where(l, x, one)")).open
    assert follow(guarded.replace("Abs(x)", "Relu(x)")).open


def test_products_that_float16_rounds_to_0_are_not_away_from_it() -> None:
    text = """g (float16[3] x) => (float16[3] y) <float k = {0.01}, float one = {1}, float c = {10000}> {
        n = Cast<to = 10>(k) i = Cast<to = 10>(one) d = Cast<to = 10>(c) a = Abs(x) l = Less(a, n) w = Where(l, i, x)
        t = Mul(w, w) y = Div(i, t) }"""
    assert not follow(text).open
    assert list(follow(text.replace("y = Div(i, t)", "u = Mul(t, t) v = Mul(u, d) y = Div(i, v)")).open) == ["y (Div)"]


@pytest.mark.parametrize(("start", "is_open"), [(-1, False), (-3, False), (5, False), (-4, True)])
def test_slices_that_go_back_from_the_tensor_are_followed(start: int, is_open: bool) -> None:
    text = f"""g (float[3] x) => (float[n] y) <
        int64[1] start = {{{start}}}, int64[1] step = {{-1}}, int64[1] by = {{0}},
        int64[1] end = {{-9223372036854775808}}
    > {{ y = Slice(x, start, end, by, step) }}"""
    assert bool(follow(text).open) == is_open


@pytest.mark.parametrize("seed", range(3))
def test_models_stay_in_bounds(seed: int) -> None:
    text = """g (float[2,3,6,6] x) => (float[2,4] y) <float[4,3,3,3] w = {W}, float[4] b = {1, 2, 3, 4}> {
        c = Conv<pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        g = GlobalAveragePool(p) f = Flatten(g) y = Softmax(f) }"""
    rng = np.random.default_rng(seed)
    filled = text.replace("W", ", ".join(f"{one:.4f}" for one in rng.normal(size=4 * 27)))
    question = question_of(filled, x=(-2, 3))
    assert not check_model(question, PLAIN).open
    session = onnxruntime.InferenceSession(question.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": rng.uniform(-2, 3, (2, 3, 6, 6)).astype(np.float32)})
    assert np.isfinite(y).all()


# which nodes count ----------------------------------------------------------------------------------------------------


def test_what_nothing_reads_is_checked_where_it_may_end_a_run() -> None:
    text = "g (float[2] x) => (float[2] y) <int64[1] i = {{{index}}}> {{ l = Gather(x, i) m = Neg(x) y = Abs(x) }}"
    assert follow(text.format(index=1)).total == 2
    assert list(follow(text.format(index=5)).open) == ["l (Gather)"]


def test_the_checker_knows_all_operators_that_may_end_a_run() -> None:
    refusing = {spec.op_type for spec in list_supported() if any(condition.refuses for condition in spec.valid)}
    for op_type in {"Div", "Mod", "If", "Loop", "Scan", *refusing}:
        node = onnx.helper.make_node(op_type, ["x"] * 7, ["unread"])
        value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [1])
        graph = onnx.helper.make_graph([node], "g", [value], [])
        assert [one.op_type for one in live_nodes(graph)] == [op_type]


@pytest.mark.parametrize("steps", ["s", "k", "n", "m"])
def test_what_nothing_reads_is_live_where_it_can_fail(steps: str) -> None:
    text = f"""g (float[2] x, int64[1] s) => (float[2] y) <int64[1] k = {{1}}> {{
        y = Neg(x) n = Shape(s) m = Neg(s) t = Slice(x, s, k, k, {steps}) u = Shape(x) }}"""
    graph = onnx.parser.parse_model(HEADER + text).graph
    read = {"n": ["Shape"], "m": ["Neg"]}.get(steps, [])
    assert [node.op_type for node in live_nodes(graph)] == ["Neg", *read, "Slice"]


# on its own -----------------------------------------------------------------------------------------------------------


def test_errors_of_functions_are_wider_than_what_was_measured() -> None:
    names = {name: name for name in functions.FUNCTIONS} | {"Pow": "Pow", "Gelu": "microsoft Gelu"}
    tried = 0
    for record in (one for one in shipped() if one.runtime in RUNTIMES):  # those that the checker's rules are about
        for name, measured in names.items():
            for dtype, (relative, absolute, lowest, highest, _) in record.rows.get(measured, {}).items():
                if dtype not in functions.RELATIVE:
                    continue
                safety = record.safety[dtype]
                function = functions.FUNCTIONS.get(name, functions.Function(np.exp))
                own = function.absolute[("float16", "float32", "float64").index(dtype)]
                assert relative * safety <= functions.RELATIVE[dtype], (name, dtype, record.family)
                assert absolute * safety <= own, (name, dtype, record.family)
                if np.isfinite(lowest):
                    assert function.range[0] <= lowest or name == "Elu", (name, dtype)
                if np.isfinite(highest):
                    assert highest <= function.range[1], (name, dtype)
                tried += 1
        for name, shares in (("Softmax", layers.SOFTMAX), ("LogSoftmax", layers.SOFTMAX)):
            for dtype, (relative, absolute, *_) in record.rows.get(name, {}).items():
                if dtype in shares:
                    assert max(relative, absolute) * record.safety[dtype] <= shares[dtype]
    assert tried > 100


def test_the_checker_imports_nothing_of_the_package() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((PACKAGE / "checker").glob("*.py"))]
    names = {name for text in texts for _, name in imported(ast.parse(text))}
    libraries = {name.split(".")[0] for name in names} - sys.stdlib_module_names
    assert libraries == {"numpy", "onnx", "ranum_falsify"}
    assert all(name.startswith("ranum_falsify.checker") for name in names if name.startswith("ranum_falsify"))


def test_only_the_command_imports_the_checker() -> None:
    importing = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "checker"
        and "ranum_falsify.checker" in path.read_text(encoding="utf-8")
        and any(
            name.startswith("ranum_falsify.checker")
            for _, name in imported(ast.parse(path.read_text(encoding="utf-8")))
        )
    }
    assert importing == {"cli/check_proof.py"}
