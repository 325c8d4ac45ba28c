"""The reduction: all of DNNP, and one line for a property that does not fit its networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranum_falsify.errors import PropertyError, RanumFalsifyError
from ranum_falsify.network import read
from ranum_falsify.properties.problem.reduce import reduce
from tests.properties.properties_kit import NETWORKS, dnnp, evaluate, network, problem, run

TWO_INPUTS = "(float[2] a, float[3] b) => (float[2] y, float[3] z) { y = Neg(a) z = Neg(b) }"


def layered() -> Any:
    return network("(float[1,4] x) => (float[1,4] y) { a = Neg(x) b = Exp(a) c = Relu(b) y = Add(c, c) }")


def test_slices_of_networks_are_applied() -> None:
    reduced = problem("Forall(x, Implies(0 <= x <= 1, N[2:](x) >= 0))", networks={"N": layered()})
    assert reduced.calls[0].network == "N[2:]"
    point = np.linspace(0, 1, 4, dtype=np.float32)[None, None]
    whole, tail = layered(), reduced.calls[0].graph
    assert len(tail.nodes) < len(whole.nodes)
    assert not evaluate(reduced, x=point).violated.any()


def test_equal_slices_are_one_network() -> None:
    formula = "Forall(x, Implies(0 <= x <= 1, And(N[1:3, 0](x)[0, 0] <= 5, N[1:3, 0](x)[0, 1] <= 5, N(x) <= 9)))"
    reduced = problem(formula, networks={"N": layered()})
    assert sorted(call.network for call in reduced.calls) == ["N", "N[1:3, 0]"]


def test_networks_are_composed() -> None:
    reduced = problem(
        "Forall(x, Implies(0 <= x <= 1, N.compose(M)(x) == x))", networks={"N": network(), "M": network()}
    )
    assert [call.network for call in reduced.calls] == ["N.compose(M)"]
    assert not evaluate(reduced, x=np.random.default_rng(0).random((3, 2, 3))).violated.any()


def test_weights_become_inputs() -> None:
    graph = read(NETWORKS / "vae.onnx")
    formula = 'no_invalid_input(free(N, "logvar_W")(x, e, w), only=["Exp"])'
    box = "And(0 <= x <= 1, -3 <= e <= 3, -50 <= w <= 50)"
    reduced = problem(f"Forall(x, Forall(e, Forall(w, Implies({box}, {formula}))))", networks={"N": graph})
    assert reduced.calls[0].network == "free(N, 'logvar_W')"
    assert reduced.calls[0].graph.input_names[-1] == "logvar_W"
    assert [v.name for v in reduced.inputs] == ["x", "e", "w"]
    assert reduced.inputs[2].shape == tuple(reduced.calls[0].graph.input_details[2].shape)


def test_one_variable_stands_for_all_inputs() -> None:
    graph = network(TWO_INPUTS)
    reduced = problem("Forall(x, Implies(And(-1 <= x <= 2, x[1] <= 1), N(x)[0] >= -9))", networks={"N": graph})
    assert [(v.name, v.upper.tolist()) for v in reduced.inputs] == [("a", [2, 2]), ("b", [1, 1, 1])]
    assert reduced.calls[0].variables == ("a", "b")


def test_outputs_and_concrete_inference_and_shapes() -> None:
    graph = network(TWO_INPUTS)
    head = "centre = np.array([0.25, 0.5])"
    fixed = "N(centre, np.zeros(3))[0]"
    formula = (
        f"And(N(a, b)[0] - {fixed} <= 0.5, N(a, b)[1][N.input_shape[1][0] - 1] >= -1, np.prod(N.output_shape[1]) == 3)"
    )
    reduced = problem(f"Forall(a, Forall(b, Implies(And(0 <= a <= 1, 0 <= b <= 1), {formula})))", head, {"N": graph})
    assert len(reduced.calls) == 1 and len(reduced.clauses) == 2
    margins = evaluate(reduced, a=[[0, 0]], b=[[0, 0, 0]])
    assert margins.clauses.tolist() == [[0.0, 1.0]]
    assert reduced.holds({"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)}, run)


def test_an_argument_may_be_an_expression() -> None:
    box = "And(0 <= x <= 1, -0.1 <= d <= 0.1, 0 <= x + d <= 1)"
    reduced = problem(f"Forall(x, Forall(d, Implies({box}, np.argmax(N(x + d)) == np.argmax(N(x)))))")
    assert [v.name for v in reduced.inputs] == ["x", "d"] and len(reduced.calls) == 2 and len(reduced.penalties) == 2
    x = np.zeros((2, 2, 3))
    x[:, 0, 0] = -1, -0.05
    d = np.zeros((2, 2, 3))
    d[:, 0, 1] = -0.1
    assert evaluate(reduced, x=x, d=d).clauses[:, 0].ge(0).tolist() == [True, False]


def test_a_constant_argument_is_one() -> None:
    graph = network(TWO_INPUTS)
    reduced = problem("Forall(a, Implies(0 <= a <= 1, no_invalid_input(N(a, np.ones(3)))))", networks={"N": graph})
    assert reduced.calls[0].variables == ("a", None)
    assert evaluate(reduced, a=np.zeros((4, 2))).clauses.shape == (4, 1)


def test_images_and_functions(tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", np.full((2, 3), 0.5, np.float32))
    head = f"""image = Image("{tmp_path / "image.npy"}")
close = lambda a, b: And(a - b <= 0.5, b - a <= 0.5)
eps = Parameter("eps", float)"""
    reduced = problem("Forall(x, Implies(image - eps <= x <= image + eps, close(N(x), N(image))))", head, eps="0.25")
    assert reduced.inputs[0].lower.tolist() == [[0.25] * 3] * 2
    assert len(reduced.clauses) == 2


def test_negated_exists_is_forall() -> None:
    reduced = problem("~Exists(x, And(0 <= x <= 1, N(x)[0, 0] > 0.5))")
    assert reduced.clause_names == ("not (N(x)[(0, 0)] > 0.5)",)
    assert reduced.inputs[0].upper[0, 0] == 1


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("Exists(x, N(x) <= 1)", "no input can falsify Exists(x, ...)"),
        ("Forall(x, Implies(0 <= x <= 1, Exists(z, N(x) <= 1)))", "quantifiers stand at the beginning only"),
        ("Forall(x, Forall(x, N(x) <= 1))", "'x' is quantified twice"),
        ("N(x) <= 1", "it quantifies no input"),
        ("Forall(x, Implies(0 <= x <= upper, N(x) <= 1))", "'upper' is neither quantified (Forall), nor a Parameter"),
        ("Forall(image, Implies(0 <= imgae <= 1, N(image) <= 1))", "did you mean 'image'?"),
        ("Forall(x, Implies(0 <= x <= 1, N(x, x) <= 1))", "network 'N' takes 1 (x [2, 3]), got 2 arguments"),
        ("Forall(x, Implies(0 <= x <= 1, N(x, k=1) <= 1))", "got the keyword 'k'"),
        (
            "Forall(x, Implies(0 <= x <= 1, IfThenElse(x <= 0, N(x), N(x)[:, :2]) <= 1))",
            "branches of IfThenElse have shapes",
        ),
        ("Forall(x, Implies(0 <= x <= 1, N(x)[0, 5] <= 1))", "index 5 is out of bounds"),
        ("Forall(x, Implies(0 <= x <= 1, N(x) <= np.ones((4, 4))))", "shapes (2, 3) and (4, 4) cannot be compared"),
        ("Forall(x, Implies(0 <= x <= 1, N(x) + np.ones((4, 4)) <= 1))", "do not fit together"),
        ("Forall(x, Implies(0 <= x <= 1, N(x[0]) <= 1))", "input 'x' of network 'N' has shape (2, 3), got (3,)"),
        ("Forall(x, Forall(z, Implies(0 <= x <= 1, N(x) <= z)))", "'z' is quantified but no network is applied to it"),
        ("Forall(x, Implies(0 <= x <= 1, N(x)))", "a formula is needed, got N(x)"),
        ("Forall(x, Implies(0 <= x <= 1, np.sort(N(x)) <= 1))", "this function is not supported; these are: "),
        ("Forall(x, Implies(0 <= x <= 1, N(x).std() <= 1))", "'std' is not supported; these are: "),
        ("Forall(x, Implies(0 <= x <= 1, N(x) <= np.zeros(2)[5]))", "IndexError"),
        ("Forall(x, Implies(0 <= x <= 1, N(x)[np.argmax(N(x))] <= 1))", "an index must not depend on the inputs"),
        (
            "Forall(x, Implies(0 <= x <= 1, And(no_invalid_input(x), N(x) <= 1)))",
            "write no_invalid_input(N(x), only=[...]",
        ),
        ("Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(x)[0])))", "write no_invalid_input(N(x), only=[...]"),
        ("Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(x), ony=['Log'])))", "write no_invalid_input(N(x), "),
        ("Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(x), only=['Lgo'])))", "did you mean 'Log'?"),
        ("Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(x), only='Log')))", "only takes a list of names"),
        ("Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(x), nodes=[])))", "nodes is empty"),
        ("Forall(x, Implies(0 <= x <= 1, no_invalid_input(free(N)(x))))", 'write free(N, "W", "b")'),
        ("Forall(x, Implies(0 <= x <= 1, no_invalid_input(free(N, 'W')(x, x))))", "W"),
        ("Forall(x, Implies(0 <= x <= 1, N.compose(3)(x) <= 1))", "compose takes one network"),
        ("Forall(x, Implies(0 <= x <= 1, N[9:12](x) <= 1))", "N["),
        ("Forall(x, Implies(0 <= x <= 1, Or(N(x) <= 1, 1 < 2)))", "it is always true, whatever the inputs"),
        ("Forall(x, Implies(0 <= x <= 1, And(x <= 2, N.input_shape[0][0] == 2)))", "no network is applied to it"),
    ],
)
def test_what_does_not_fit_is_explained(formula: str, message: str) -> None:
    with pytest.raises(RanumFalsifyError) as caught:
        problem(formula)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_conclusion_may_be_false_in_itself() -> None:
    assert problem("Forall(x, Implies(And(0 <= x <= 1, N(x) == N(x)[0, 0]), 2 < 1))").clauses


def test_networks_must_be_those_of_the_property() -> None:
    phi = dnnp("Forall(x, Implies(0 <= x <= 1, N(x) <= M(x)))", names=["N", "M"])
    with pytest.raises(PropertyError, match=r"network 'M' was not given \(given: N\); add --network M MODEL.onnx"):
        reduce(phi, {"N": network()})
    with pytest.raises(
        PropertyError, match="network 'K' was given, but the property does not mention it; it mentions: M, N"
    ):
        reduce(phi, {"N": network(), "M": network(), "K": network()})
    other = network("(float[3,2] x) => (float[3,2] y) { y = Neg(x) }")
    with pytest.raises(PropertyError, match=r"'x' is float32 \[2, 3\] in .*, but float32 \[3, 2\] in"):
        reduce(phi, {"N": network(), "M": other})


def test_nothing_cannot_be_compared() -> None:
    with pytest.raises(PropertyError, match=r"nothing is compared, because one side has no elements: \(N\(x\)"):
        problem("Forall(x, Implies(0 <= x <= 1, N(x)[0, 0] >= []))")


def test_an_output_must_be_chosen() -> None:
    with pytest.raises(PropertyError, match="a network with 2 outputs; select one, as in N"):
        problem("Forall(x, Implies(0 <= x <= 1, N(x) <= 1))", networks={"N": network(TWO_INPUTS)})


def test_deep_nesting_is_an_error_of_one_line() -> None:
    from dnnv.properties import Symbol
    from dnnv.properties.expressions import Forall, Negation, Network

    deep = Network("N")(Symbol("x"))
    for _ in range(5000):
        deep = Negation(deep)
    with pytest.raises(PropertyError, match="nested too deeply"):
        reduce(Forall(Symbol("x"), deep <= 1), {"N": network()})
