"""The command `replay`, with and without a description beside the arrays."""

import json

import numpy as np
import pytest

from ranum_falsify.validity import Finite
from tests.cli.workshop import PRODUCT, QUOTIENT, SAFE, Workshop

MASKED = """g (float[1, 2] x) => (float[1, 2] y) {
    zero = Constant<value = float[1] {0}>()
    p = Greater(x, zero)
    [logarithm] l = Log(x)
    y = Where(p, l, zero)
}"""
MERGED = """g (float[1, 2] x) => (float[1, 2] y) <float[2, 2] w = {0, 1, 1, 0}, float c = {1e25}> {
    l = Mul(x, c)
    p = MatMul(l, w)
    [scaled] y = Mul(p, c)
}"""
RESIDUE = """g (float[1, 2] x) => (float[1, 2] y) <float[1, 2] w = {1, 1}> {
    s = Mul(x, w)
    [logarithm] y = Log(s)
}"""


@pytest.fixture
def zeros(workshop: Workshop) -> str:
    path = workshop.folder / "zeros.npy"
    np.save(path, np.zeros((1, 2), np.float32))
    return str(path)


def test_an_array_alone(workshop: Workshop, zeros: str) -> None:
    run = workshop.run("replay", zeros, "--network", "N", workshop.model())
    assert (run.status, run.err) == (1, "")
    assert run.out.splitlines()[:-2] == [
        "violated",
        "  logarithm (Log) gives infinity",
        "    valid where x > 0 (else: logarithm of a non-positive number)",
        "    operands: x = 0",
        "    at the first offending element: x = 0",
        "    reach: output (an output turns non-finite)",
        "    confirmed by ONNX Runtime, and by PyTorch",
    ]


def test_quiet_is_one_line(workshop: Workshop, zeros: str) -> None:
    run = workshop.run("replay", zeros, "--network", "N", workshop.model(), "-q")
    assert (run.status, run.out) == (1, "violated\n")


def test_what_shows_with_the_default_optimisations_alone(workshop: Workshop, zeros: str) -> None:
    run = workshop.run("replay", zeros, "--network", "N", workshop.model(MERGED))
    assert run.status == 1
    assert run.out.splitlines()[1:-2] == [
        "  scaled (Mul) gives NaN",
        f"    valid where |output| is finite (else: {Finite.reason})",
        "    operands of FusedMatMul: x = 0, w in [0, 1]",
        "    reach: output (an output turns non-finite)",
        "    only with ONNX Runtime's default graph optimisations (FusedMatMul)",
        "    confirmed by ONNX Runtime only, not by PyTorch",
    ]


def test_nothing_fails(workshop: Workshop, zeros: str) -> None:
    run = workshop.run("replay", zeros, "--network", "N", workshop.model(SAFE))
    assert (run.status, run.err) == (0, "")
    assert run.out.startswith("not violated")


def test_inputs_by_name(workshop: Workshop) -> None:
    paths = {name: workshop.folder / f"{name}.npy" for name in "ab"}
    for path in paths.values():
        np.save(path, np.zeros(2, np.float32))
    given = [argument for name, path in paths.items() for argument in ("--input", f"{name}={path}")]
    run = workshop.run("replay", *given, "-N", "N", workshop.model(QUOTIENT))
    assert run.status == 1 and "quotient (Div) gives NaN" in run.out


def test_reach(workshop: Workshop, zeros: str) -> None:
    model = workshop.model(MASKED)
    assert "reach: masked (no output shows it)" in workshop.run("replay", zeros, "-N", "N", model).out
    run = workshop.run("replay", zeros, "-N", "N", model, "--fail-on", "output")
    assert run.status == 0 and "1 that no output shows left out" in run.out


class TestDescription:
    def test_either_file_names_the_counterexample(self, workshop: Workshop) -> None:
        cex = workshop.folder / "cex.npy"
        workshop.falsify("--save-violation", cex)
        for path in (cex, cex.with_suffix(".json")):
            assert workshop.run("replay", path, "-N", "N", workshop.folder / "model.onnx").status == 1

    def test_the_model_has_changed(self, workshop: Workshop) -> None:
        cex = workshop.folder / "cex.npy"
        workshop.falsify("--save-violation", cex)
        other = workshop.model(SAFE, "other.onnx")
        run = workshop.run("replay", cex, "-N", "N", other)
        assert run.status == 0
        assert "not seen again: logarithm (Log)" in run.out
        assert "is not the file that was searched (SHA-256 differs)" in run.out

    def test_several_inputs(self, workshop: Workshop) -> None:
        cex = workshop.folder / "cex.npy"
        model = workshop.model(QUOTIENT)
        workshop.run(workshop.pair(), "-N", "N", model, "--save-violation", cex)
        assert not cex.exists()
        for path in (cex, workshop.folder / "cex.b.npy", workshop.folder / "cex.json"):
            assert workshop.run("replay", path, "-N", "N", model).status == 1, path

    def test_several_counterexamples(self, workshop: Workshop) -> None:
        cex = workshop.folder / "cex.npy"
        model = PRODUCT.replace("[1, 2]", "[1]")
        assert workshop.falsify("--save-violation", cex, model=model).status == 1
        network = ("-N", "N", workshop.folder / "model.onnx")
        everything = workshop.run("replay", cex.with_suffix(".json"), *network).out
        assert "root (Sqrt)" in everything and "logarithm (Log)" in everything
        assert everything.splitlines()[1] == f"{cex}:"
        (other,) = workshop.folder.glob("cex.*.npy")
        node = "root" if "root" in other.name else "logarithm"
        alone = workshop.run("replay", other, *network)
        assert alone.status == 1 and f"{node} (" in alone.out
        assert ("root (Sqrt)" in alone.out) != ("logarithm (Log)" in alone.out)

    def test_another_json_file_beside_the_array_does_not_matter(self, workshop: Workshop, zeros: str) -> None:
        (workshop.folder / "zeros.json").write_text('{"something": "else"}')
        assert workshop.run("replay", zeros, "-N", "N", workshop.model()).status == 1

    def test_a_property_over_outputs_is_evaluated_again(self, workshop: Workshop) -> None:
        cex = workshop.folder / "cex.npy"
        formula = "Forall(x, Implies(lb <= x <= ub, N(x)[0, 0] <= 0.5))"
        run = workshop.falsify("--save-violation", cex, "--prop.ub=3", model=SAFE, formula=formula)
        assert run.status == 1 and "the property is false on these inputs" in run.out
        assert np.load(cex)[0, 0] > 0.5
        files = ("-N", "N", workshop.folder / "model.onnx", "--property", workshop.folder / "prop.py")
        replay = workshop.run("replay", cex, *files)
        assert replay.status == 1 and "the property is false on these inputs" in replay.out
        np.save(cex, np.array([[0.25, 0]], np.float32))
        replay = workshop.run("replay", cex, *files)
        assert replay.status == 0 and "N: y = 0.25, 0" in replay.out

    def test_two_networks(self, workshop: Workshop) -> None:
        cex = workshop.folder / "cex.npy"
        prop = workshop.property('M = Network("M")\nForall(x, Implies(0 <= x <= 1, N(x)[0, 0] - M(x)[0, 0] <= 0.5))')
        other = workshop.model("g (float[1, 2] x) => (float[1, 2] y) { y = Neg(x) }", "neg.onnx")
        models = ("-N", "N", workshop.model(SAFE), "-N", "M", other)
        assert workshop.run(prop, *models, "--save-violation", cex).status == 1
        assert workshop.run("replay", cex, *models, "--property", prop).status == 1

    @pytest.mark.parametrize("network", ["N[2:]", "N[1:, 0]", "N[:3]", "N[2:].compose(N[:2])"])
    def test_a_part_of_a_network(self, workshop: Workshop, network: str) -> None:
        cex = workshop.folder / "cex.npy"
        formula = f"Forall(x, Implies(-1 <= x <= 1, no_invalid_input({network}(x))))"
        model = "g (float[1, 2] x) => (float[1, 2] y) { a = Relu(x) [logarithm] y = Log(a) }"
        run = workshop.falsify("--save-violation", cex, model=model, formula=formula)
        assert run.status == 1, run
        assert network in json.loads(cex.with_suffix(".json").read_text())["counterexamples"][0]["network"]
        (workshop.folder / "prop.py").unlink()
        replay = workshop.run("replay", cex, "-N", "N", workshop.folder / "model.onnx")
        assert replay.status == 1 and "(Log)" in replay.out, replay

    def test_free_weights(self, workshop: Workshop) -> None:
        cex = workshop.folder / "cex.npy"
        formula = (
            "Forall(x, Forall(w, Implies(And(1 <= x <= 2, -1 <= w <= 1), "
            'no_invalid_input(free(N, "w")(x, w), only=["Log"]))))'
        )
        run = workshop.falsify("--save-violation", cex, model=RESIDUE, formula=formula)
        assert run.status == 1, run
        described = json.loads(cex.with_suffix(".json").read_text())
        assert described["counterexamples"][0]["inputs"] == {"x": "cex.x.npy", "w": "cex.w.npy"}
        (workshop.folder / "prop.py").unlink()
        assert workshop.run("replay", cex, "-N", "N", workshop.folder / "model.onnx").status == 1
        given = [argument for name in "xw" for argument in ("--input", f"{name}={workshop.folder}/cex.{name}.npy")]
        assert workshop.run("replay", *given, "-N", "N", workshop.folder / "model.onnx").status == 1
