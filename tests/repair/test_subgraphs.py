"""Operators in branches, loop bodies and local functions are repaired where they stand."""

from collections.abc import Iterator

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import ranum_falsify as rf
from ranum_falsify.network.nesting import nested_nodes
from ranum_falsify.repair.differences import OutputDifferences

BOX = """
from dnnv.properties import *
from ranum_falsify.properties import *

N = Network("N")
Forall(x, Implies(And(-{size} <= x, x <= {size}), no_invalid_input(N(x))))
"""
HEAD = "float[3] x) => (float[3] y) <bool yes = {1}, int64 n = {3}, float zero = {0}, float[3] ones = {1, 1, 1}>"
LOG = "r = Relu({0}) [log] {1} = Log(r)"
THEN, ELSE = "then_branch = t () => (float[3] a) {{ {2} }}", "else_branch = e () => (float[3] b) {{ {3} }}"
CHOICE = f"[choice] {{0}} = If ({{1}}) <{THEN}, {ELSE}>"
BODY = "body = b (int64 i, bool c, float[3] h) => (bool d, float[3] k) {{ d = Identity(c) {} }}"
POSITIVE = "s = ReduceSum <keepdims = 0> ({}) p = Greater(s, zero)"


def model_of(text: str) -> onnx.ModelProto:
    """Return a model in ONNX's text syntax."""
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "local": 1]> g ({HEAD} {{ {text} }}')
    onnx.checker.check_model(made, full_check=True)
    return made


def log(read: str, written: str) -> str:
    """Return a logarithm that needs a guard."""
    return LOG.format(read, written)


def choice(condition: str, then: str, otherwise: str, written: str = "y") -> str:
    """Return a branch."""
    return CHOICE.format(written, condition, then, otherwise)


MODELS = {
    "branch": (
        POSITIVE.format("x") + choice("p", log("x", "a"), "[neg] b = Neg(x)"),
        ["choice/then_branch/log"],
    ),
    "both branches, nodes and tensors of one name": (
        POSITIVE.format("x") + choice("p", log("x", "a"), log("x", "b")),
        ["choice/else_branch/log", "choice/then_branch/log"],
    ),
    "branch that is always taken, nodes of one name": (
        choice("yes", log("x", "a"), log("x", "b")),
        ["log"],
    ),
    "branch in a branch": (
        POSITIVE.format("x")
        + "[outer] y = If (p) <then_branch = o () => (float[3] m) "
        + "{ q = ReduceMax <keepdims = 0> (x) j = Greater(q, zero) "
        + choice("j", log("x", "a"), "b = Neg(x)", "m")
        + "}, else_branch = f () => (float[3] l) { l = Neg(x) }>",
        ["outer/then_branch/choice/then_branch/log"],
    ),
    "loop": (
        f"[loop] y = Loop (n, yes, x) <{BODY.format(log('h', 'k'))}>",
        ["loop/body/log"],
    ),
    "loop that an input gives its length": (
        "m = ReduceMax <keepdims = 0> (x) z = Cast <to = 7> (m) [loop] y = Loop (z, yes, x) "
        f"<{BODY.format(log('h', 'k'))}>",
        ["loop/body/log"],
    ),
    "loop that an input starts, in a branch": (
        POSITIVE.format("x")
        + "[choice] y = If (p) <then_branch = t () => (float[3] a) { [loop] a = Loop (n, p, x) "
        + f"<{BODY.format(log('h', 'k'))}> }}, else_branch = e () => (float[3] q) {{ q = Neg(x) }}>",
        ["choice/then_branch/loop/body/log"],
    ),
    "loop whose iterations range differently": (
        f"[loop] y = Loop (n, yes, x) <{BODY.format('u = Mul(h, h) v = Add(u, h) [root] k = Sqrt(v)')}>",
        ["loop/body/root"],
    ),
    "branch in a loop": (
        "[loop] y = Loop (n, yes, x) <"
        + BODY.format(POSITIVE.format("h") + choice("p", log("h", "a"), "b = Neg(h)", "k"))
        + ">",
        ["loop/body/choice/then_branch/log"],
    ),
    "scan": (
        "[scan] y, rows = Scan <num_scan_inputs = 1, body = b (float[3] h, float e) => (float[3] k, float[3] row) "
        "{ w = Add(h, e) [div] row = Div(e, w) k = Add(h, row) }> (x, ones)",
        ["scan/body/div"],
    ),
}


def run_all(model: onnx.ModelProto, inputs: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the outputs of ONNX Runtime with and without optimisations."""
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for x in inputs:
            yield session.run(["y"], {"x": x})[0]


INPUTS = np.random.default_rng(0).uniform(-2, 2, (40, 3)).astype(np.float32)
INPUTS[:9] = np.array(
    [[0, 0, 0], [1, 0, -1], [-1, 0, 0], [1, 1, 1], [0, 1, 0], [2, -1, 0], [0, 0, 2], [-1, -1, -1], [-2, 1, 0]]
)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODELS)
def test_guards_stand_in_subgraphs(name: str) -> None:
    text, places = MODELS[name]
    model, prop = model_of(text), BOX.format(size=2)
    assert any(not np.isfinite(y).all() for y in run_all(model, INPUTS))
    repairs = rf.fix(model, prop, by="guard", samples=0, n_starts=1, self_check=False)
    assert repairs
    for repair in repairs:
        assert repair.standing == "proved" and not repair.left
        assert [change.node for change in repair.changes] == places
        assert len(list(nested_nodes(repair.model.graph))) > len(list(nested_nodes(model.graph)))
        assert rf.prove(repair.model, prop, self_check=False).verdict == "holds"
        assert all(np.isfinite(y).all() for y in run_all(repair.model, INPUTS))


@pytest.mark.slow
def test_a_valid_input_gives_the_same_outputs() -> None:
    model = model_of(MODELS["branch in a loop"][0])
    repairs = rf.fix(model, BOX.format(size=2), by="guard", samples=0, n_starts=4, self_check=False)
    inputs = np.array([[-1, -2, -0.5], [0.5, 0.25, 0.75], [1, 2, 1.5]], np.float32)
    limiting = next(repair for repair in repairs if not repair.keeps_gradient)
    before = list(run_all(model, inputs))
    assert all(
        np.array_equal(old[np.isfinite(old)], new[np.isfinite(old)])
        for old, new in zip(before, run_all(limiting.model, inputs), strict=True)
    )


@pytest.mark.slow
def test_all_operators_of_a_node_in_question_are_named() -> None:
    repairs = rf.fix(
        model_of(MODELS["loop"][0]), BOX.format(size=2), nodes=["loop/body/log"], samples=0, self_check=False
    )
    assert repairs[0].repaired == tuple(f"loop/body/log[{i}]" for i in range(3))
    with pytest.raises(rf.UsageError, match="--node loop/body/lag: the model has no such node"):
        rf.fix(model_of(MODELS["loop"][0]), BOX.format(size=2), nodes=["loop/body/lag"], self_check=False)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["branch", "loop"])
def test_rewrites_are_made_in_subgraphs(part: str) -> None:
    inner = "q = Softmax({0}) [log] {1} = Log(q)"
    text = {
        "branch": POSITIVE.format("x") + choice("p", inner.format("x", "a"), "b = Neg(x)"),
        "loop": f"[loop] y = Loop (n, yes, x) <{BODY.format(inner.format('h', 'k'))}>",
    }[part]
    prop = BOX.format(size=500)
    best = rf.fix(model_of(text), prop, samples=0, n_starts=1, self_check=False)[0]
    assert (best.kinds, best.standing) == (("rewrite",), "proved")
    assert best.changes[0].node == "Softmax_q, log"
    assert rf.prove(best.model, prop, self_check=False).verdict == "holds"


@pytest.mark.parametrize("counts", [(3, 0), (0, 3), (2, 3)])
def test_other_numbers_of_rows_are_infinitely_apart(counts: tuple[int, int]) -> None:
    before, after = ({"rows": np.ones((count, 2), np.float32)} for count in counts)
    found = OutputDifferences()
    found.add(before, after, before)
    assert (found.result().equal, found.result().largest, found.result().away) == (0, np.inf, np.inf)


def test_both_calls_of_a_local_function_are_repaired() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[3] x) => (float[3] y) { a = local.f(x) w = Neg(x) b = local.f(w) y = Add(a, b) }
        <domain: "local", opset_import: ["": 17]> f (a) => (b) { r = Relu(a) [log] b = Log(r) }"""
    )
    prop = BOX.format(size=2)
    best = rf.fix(model, prop, by="guard", samples=0, n_starts=4, self_check=False)[0]
    assert best.standing == "proved" and len(best.changes) == 2
    assert all(np.isfinite(y).all() for y in run_all(best.model, INPUTS))
