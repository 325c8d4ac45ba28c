"""The command `confirm`, and the files that it writes: run by pytest where ranum_falsify cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.witness.maker import TestMaker
from ranum_falsify.zoo.catalogue import model_of
from tests.cli.workshop import LOG, SAFE, Workshop

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = ("--runs", "2", "--timeout", "5", "-p", "1")
NETWORKS = Path(__file__).resolve().parent.parent.parent / "networks"
STEEP = """g (float[4] x) => (float[4] y) <float low = {-100.0}, float high = {87.0}> {
    c = Clip(x, low, high)
    e = Exp(c)
    [root] y = Sqrt(e)
}"""
BRAIN = """g (bfloat16[2] x) => (bfloat16[2] y) {
    [narrow] f = Cast<to = 1>(x)
    [log] l = Log(f)
    [wide] y = Cast<to = 16>(l)
}"""
NESTED = """g (float[2] x) => (float[2] y, float[2] rows, float[2] f, float[2] c, float[2] l)
        <bool yes = {1}, int64 two = {2}, float zero = {0.0}> {
    [outer] y = Log(x)
    [loop] z = Loop (two, yes, x) <body = b (int64 i, bool go, float[2] h) => (bool on, float[2] t) {
        on = Identity(go) [log] t = Log(h) }>
    [after] l = Log(z)
    [scan] rows = Scan <num_scan_inputs = 1, body = b (float e) => (float r) { [log] r = Log(e) }> (x)
    [always] f = If (yes) <then_branch = t () => (float[2] a) { [taken] a = Log(x) },
                           else_branch = e () => (float[2] b) { b = Neg(x) }>
    s = ReduceSum <keepdims = 0> (x)
    p = Greater(s, zero)
    [choice] c = If (p) <then_branch = t () => (float[2] a) { [log] a = Log(x) },
                         else_branch = e () => (float[2] b) { b = Neg(x) }>
}"""
WIDE = "Forall(x, Implies(-200 <= x <= 200, no_invalid_input(N(x), gradient=True)))"
PAIR = "Forall(a, Forall(b, Implies(And(-3 <= a <= 3, -3 <= b <= 3), no_invalid_input(N(a, b)))))"


def confirm(workshop: Workshop, model: Path, formula: str = "", *arguments: str | Path) -> Any:
    return workshop.run("confirm", workshop.property(formula), "--network", "N", model, *QUICK, *arguments)


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the generated tests in a process of their own that cannot see this package."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # A stand-in that fails wherever somebody imports the package after all.
    (folder / "ranum_falsify.py").write_text("raise ImportError('the tests stand alone')\n")
    plugins = ["-p", "no:cacheprovider", "-p", "no:ranum_falsify.testing"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "-W", "error", *arguments, "."],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def passed(folder: Path) -> int:
    """Run the generated tests, which must all pass; return how many there are."""
    result = run_pytest(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return int(result.stdout.split(" passed")[0].split()[-1])


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "confirm.json").read_text())
    return found


class TestFiles:
    def test_of_a_logarithm(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        found = confirm(workshop, workshop.model(LOG), "", "--out", out)
        assert found.status == 1, found
        tests = ["logarithm.0.npz", "logarithm.1.npz"]
        names = ["confirm.json", *tests, "model.onnx", "model.tensors", "test_prop.py"]
        assert sorted(path.name for path in out.iterdir()) == names
        first, second, third, fourth, *_ = found.out.splitlines()
        assert first.startswith("logarithm (Log): 2 of 2 runs trigger ") and "2 spans proved (radius 2^-" in first
        assert second == "  valid where x > 0; logarithm.0.npz, logarithm.1.npz"
        assert third == "triggered: 1 of 1 operator, 2 of 2 runs"
        assert fourth == f"run them: python -m pytest {out / 'test_prop.py'}"
        onnx.checker.check_model(onnx.load(out / "model.onnx"), full_check=True)
        text = (out / "test_prop.py").read_text()
        assert "ranum_falsify" not in text and "valid_where='x > 0'" in text and "node='logarithm'" in text
        assert passed(out) == 4

    def test_the_report_says_the_same(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        confirm(workshop, workshop.model(LOG), "", "--out", out, "--seed", "5")
        found = report(out)
        (operator,) = found["operators"]
        assert (operator["node"], operator["op_type"], operator["constraint"]) == ("logarithm", "Log", "x > 0")
        assert (operator["runs"], operator["triggered"], operator["alone"], operator["spans"]) == (2, 2, 2, 2)
        assert operator["files"] == ["logarithm.5.npz", "logarithm.6.npz"]
        assert [test["seed"] for test in operator["tests"]] == [5, 6]
        assert len(operator["seconds"]) == 2 and sum(operator["kinds"].values()) == 2
        for test in operator["tests"]:
            with np.load(out / test["file"]) as arrays:
                assert not arrays["input:x"][tuple(test["index"])] > 0
                assert arrays["lower:x"].ndim == 2 and test["span"]["radius"] > 0
        assert [test["shown"] for test in operator["tests"]] == [["y"], ["y"]]
        assert (found["test_file"], found["triggered"]) == ("test_prop.py", 1)
        assert found["models"] == ["model.onnx", "model.tensors"]

    def test_a_test_that_does_not_trigger_fails(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        confirm(workshop, workshop.model(LOG), "", "--out", out)
        with np.load(out / "logarithm.0.npz") as loaded:
            arrays = dict(loaded)
        arrays["input:x"] = np.full_like(arrays["input:x"], 0.5)
        np.savez(out / "logarithm.0.npz", **arrays)
        result = run_pytest(out)
        assert result.returncode == 1 and "2 failed, 2 passed" in result.stdout, result.stdout
        assert "logarithm does not fail" in result.stdout

    def test_only_what_users_saw_is_asserted_of_what_they_see(self, workshop: Workshop) -> None:
        # The optimiser multiplies both factors, whose product is 1, and nothing overflows.
        text = (
            "g (float[1,1] x, float[1,1] z) => (float[1,1] y) <float k = {1e30}, float l = {1e-30}>"
            "{ [scale] a = Mul(x, k) b = MatMul(a, z) y = Mul(b, l) }"
        )
        out, model = workshop.folder / "tests", workshop.model(text)
        formula = "Forall(x, Forall(z, Implies(And(1e10 <= x <= 1e11, 1 <= z <= 2), no_invalid_input(N(x, z)))))"
        assert confirm(workshop, model, formula, "--out", out, "--node", "scale").status == 1
        assert passed(out) == 4
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        (y,) = session.run(None, {"x": np.full((1, 1), 1e10, np.float32), "z": np.ones((1, 1), np.float32)})
        shown = [test["shown"] for test in report(out)["operators"][0]["tests"]]
        if not np.isfinite(y):
            pytest.skip("this version of ONNX Runtime leaves the model as it is written")
        assert shown == [[], []]
        test = out / "test_prop.py"
        test.write_text(test.read_text().replace("has_span=True)", "has_span=True, shown=('y',))"))
        result = run_pytest(out)
        assert "2 failed, 2 passed" in result.stdout, result.stdout
        assert "scale fails, but not at ONNX Runtime's default level, where y is finite" in result.stdout

    @pytest.mark.slow
    def test_a_span_that_reaches_too_far_fails(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        confirm(workshop, workshop.model(LOG), "", "--out", out)
        with np.load(out / "logarithm.1.npz") as loaded:
            arrays = dict(loaded)
        arrays["reach:x"] = np.full_like(arrays["reach:x"], 2)
        np.savez(out / "logarithm.1.npz", **arrays)
        result = run_pytest(out)
        assert "1 failed, 3 passed" in result.stdout and "test_points_of_the_span[logarithm.1" in result.stdout

    @pytest.mark.slow
    def test_weights_and_labels_of_a_network(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        formula = """Forall(x, Forall(y, Forall(W, Implies(
            And(0 <= x <= 1, 0 <= y <= 1, -10 <= W <= 10), no_invalid_input(free(N, "W")(x, y, W))))))"""
        found = confirm(workshop, NETWORKS / "softmax_regression.onnx", formula, "--out", out)
        assert found.status == 1, found
        model = onnx.load(out / "model.onnx")
        assert [info.name for info in model.graph.input][-1] == "W"
        assert "W" not in {tensor.name for tensor in model.graph.initializer} != set()
        assert passed(out) == 4

    @pytest.mark.slow
    def test_of_a_defect_of_the_zoo(self, workshop: Workshop) -> None:
        model = model_of("3")
        architecture = model.architecture()
        text = workshop.folder / "3.py"
        text.write_text(model.property_text(architecture))
        onnx.save(architecture.model, str(workshop.folder / "3.onnx"))
        out = workshop.folder / "tests"
        found = workshop.run("confirm", text, "--network", "N", workshop.folder / "3.onnx", *QUICK, "--out", out)
        assert found.status == 1, found
        operators = {operator["node"]: operator for operator in report(out)["operators"]}
        documented = {defect.node for defect in model.defects}
        assert documented and all(operators[node]["triggered"] == 2 for node in documented)
        assert passed(out) == 4 * len(operators)

    @pytest.mark.slow
    def test_derivatives_where_denormals_are_flushed(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        found = confirm(workshop, workshop.model(STEEP), WIDE, "--out", out, "--runs", "1")
        assert "1 only where denormal numbers are replaced by 0" in found.out
        text = (out / "test_prop.py").read_text()
        assert "steep_where=(('e', 'at most', 0.0),)" in text and "flushed=True" in text
        assert passed(out) == 2
        (out / "test_prop.py").write_text(text.replace(", flushed=True", ""))
        assert "2 failed" in run_pytest(out).stdout

    @pytest.mark.slow
    def test_of_operators_in_subgraphs(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        nodes = ["outer", "taken", "choice", "after"]
        nodes += [f"{part}/body/log[{i}]" for part in ("loop", "scan") for i in range(2)]
        chosen = [text for node in nodes for text in ("--node", node)]
        found = confirm(workshop, workshop.model(NESTED), "", "--out", out, "--runs", "1", "--no-span", *chosen)
        assert "triggered: 8 of 8 operators, 8 of 8 runs" in found.out, found
        assert passed(out) == 8
        text = (out / "test_prop.py").read_text()
        # Iterations are nodes of the model, and what an input chooses is one node of it.
        assert "node='choice'" in text and "node='loop/body/log[1]'" in text
        assert "writes=('loop/body/t[1]',)" in text and "reads=('loop/body/t[1]',)" in text

    @pytest.mark.slow
    def test_integers_end_at_a_division_by_zero(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        text = "g (int32[2] a, int32[2] b) => (int32[2] y) { [quotient] y = Div(a, b) }"
        assert confirm(workshop, workshop.model(text), PAIR, "--out", out).status == 1
        assert passed(out) == 4

    @pytest.mark.slow
    def test_the_least_integer_divided_by_minus_one_ends_its_own_process_alone(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        text = "g (int64[2] a, int64[2] b) => (int64[2] y) { [quotient] y = Div(a, b) }"
        box = f"And(a == {-(2**63)}, b == -1)"
        formula = f"Forall(a, Forall(b, Implies({box}, no_invalid_input(N(a, b)))))"
        assert confirm(workshop, workshop.model(text), formula, "--out", out, "--runs", "1").status == 1
        assert passed(out) >= 1

    @pytest.mark.slow
    def test_bfloat16_needs_no_package_of_its_own(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        assert confirm(workshop, workshop.model(BRAIN), "", "--out", out).status == 1
        assert passed(out) >= 2

    @pytest.mark.slow
    def test_half_precision(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        assert confirm(workshop, workshop.model(LOG), "", "--out", out, "--dtype", "float16").status == 1
        with np.load(out / "logarithm.0.npz") as arrays:
            assert arrays["input:x"].dtype == np.float16
        assert passed(out) == 4

    @pytest.mark.slow
    def test_draws_are_inputs(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        text = "g (float[1,2] x) => (float[1,2] y) { [noise] r = RandomNormalLike(x) s = Add(x, r) [log] y = Log(s) }"
        found = confirm(workshop, workshop.model(text), "", "--out", out)
        assert found.status == 1 and "nondeterministic" not in found.out
        assert [info.name for info in onnx.load(out / "model.onnx").graph.input] == ["x", "r"]
        assert passed(out) == 4

    def test_names_of_any_kind(self, workshop: Workshop) -> None:
        g = ModelBuilder()
        g.output(g.Log(g.input("../a b", [2]), name="l/o g\"'", out="y\\'\""), [2])
        path = workshop.folder / "odd.onnx"
        onnx.save(g.build(), path)
        out = workshop.folder / "tests"
        assert confirm(workshop, path, "", "--out", out).status == 1
        assert (out / "l_o_g.0.npz").is_file() and passed(out) == 4

    def test_repeated_node_names_run(self, workshop: Workshop) -> None:
        text = "g (float[2] x) => (float[2] y) { [same] a = Neg(x) [same] y = Log(a) }"
        out = workshop.folder / "tests"
        assert confirm(workshop, workshop.model(text), "", "--out", out).status == 1
        assert passed(out) == 4

    @pytest.mark.slow
    def test_each_network_has_a_model(self, workshop: Workshop) -> None:
        root = workshop.model("g (float[1, 2] x) => (float[1, 2] y) { [same] y = Sqrt(x) }", "root.onnx")
        log = workshop.model("g (float[1, 2] x) => (float[1, 2] y) { [same] y = Log(x) }", "log.onnx")
        path = workshop.property(
            'M = Network("M")\nForall(x, Implies(lb <= x <= ub, And(no_invalid_input(N(x)), no_invalid_input(M(x)))))'
        )
        out = workshop.folder / "tests"
        found = workshop.run("confirm", path, "-N", "N", root, "-N", "M", log, *QUICK, "--out", out)
        assert found.status == 1, found
        assert "N: same (Sqrt): 2 of 2" in found.out and "M: same (Log): 2 of 2" in found.out
        assert sorted(path.name for path in out.glob("*.onnx")) == ["M.onnx", "N.onnx"]
        assert {path.name for path in out.glob("*.npz")} == {f"same{n}.{i}.npz" for n in ("", "_2") for i in (0, 1)}
        assert passed(out) == 8

    def test_freed_weights_stay_with_their_network(self, workshop: Workshop) -> None:
        text = "g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> { s = Mul(x, w) [log] y = Log(s) }"
        out = workshop.folder / "tests"
        formula = """Forall(x, Forall(w, Implies(
            And(1 <= x <= 2, -1 <= w <= 1), no_invalid_input(free(N, "w")(x, w)))))"""
        confirm(workshop, workshop.model(text), formula, "--out", out)
        with np.load(out / "log.0.npz") as arrays:
            assert (arrays["input:w"] <= 0).any() and (arrays["input:x"] >= 1).all()

    @pytest.mark.slow
    def test_the_model_computes_what_it_did(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        path = NETWORKS / "layer_norm_no_epsilon.onnx"
        formula = "Forall(x, Implies(-5 <= x <= 5, no_invalid_input(N(x))))"
        assert confirm(workshop, path, formula, "--out", out, "--node", "normalise_div").status == 1
        ours, theirs = onnx.load(out / "model.onnx"), onnx.load(path)
        assert list(ours.graph.node) == list(theirs.graph.node)
        for mine, other in zip(ours.graph.initializer, theirs.graph.initializer, strict=True):
            np.testing.assert_array_equal(numpy_helper.to_array(mine), numpy_helper.to_array(other))
        assert passed(out) >= 2

    def test_a_run_again_writes_the_same(self, workshop: Workshop) -> None:
        model, folders = workshop.model(LOG), [workshop.folder / name for name in ("one", "two")]
        for folder in folders:
            confirm(workshop, model, "", "--out", folder)
        for path in folders[0].iterdir():
            if path.suffix != ".json":
                assert path.read_bytes() == (folders[1] / path.name).read_bytes(), path.name


class TestAnswers:
    def test_everything_is_proved(self, workshop: Workshop) -> None:
        out = workshop.folder / "tests"
        found = confirm(workshop, workshop.model(SAFE), "", "--out", out)
        first = found.out.splitlines()[0]
        assert (found.status, first) == (0, "nothing to test: every operator is proved for onnxruntime, torch, exact")
        assert [path.name for path in out.iterdir()] == ["confirm.json"] and report(out)["operators"] == []

    @pytest.mark.slow
    def test_nothing_triggers(self, workshop: Workshop) -> None:
        # Log(x - x + 0.5): the bounds forget that both are one.
        text = """g (float[2] x) => (float[2] y) <float h = {0.5}> {
            s = Softmax(x) t = Mul(s, x) d = Sub(s, t) a = Add(d, h) b = Sub(a, s) q = Add(b, t) [log] y = Log(q)
        }"""
        found = confirm(workshop, workshop.model(text), "", "--timeout", "0.5")
        assert found.status == 3, found
        assert "log (Log): 0 of 2 runs trigger; median" in found.out
        assert "triggered: 0 of 1 operator, 0 of 2 runs" in found.out

    def test_without_a_folder_nothing_is_written(self, workshop: Workshop) -> None:
        model = workshop.model(LOG)
        path = workshop.property()
        before = sorted(workshop.folder.iterdir())
        found = workshop.run("confirm", path, "-N", "N", model, *QUICK)
        assert found.status == 1 and ".npz" not in found.out and "run them" not in found.out
        assert sorted(workshop.folder.iterdir()) == before

    def test_chosen_nodes(self, workshop: Workshop) -> None:
        text = "g (float[1,2] x) => (float[1,2] a, float[1,2] b) { [one] a = Log(x) [two] b = Sqrt(x) }"
        found = confirm(workshop, workshop.model(text), "", "--node", "two", "--no-span")
        assert "two (Sqrt)" in found.out and "one" not in found.out and "span" not in found.out
        refused = confirm(workshop, workshop.model(text), "", "--node", "three")
        assert "'three'" in refused.error

    def test_parameters_and_verbosity(self, workshop: Workshop) -> None:
        model = workshop.model(LOG)
        assert confirm(workshop, model, "", "--prop.lb=0.5").status == 0
        quiet = confirm(workshop, model, "", "-q")
        first, *others = quiet.out.splitlines()
        assert first == "triggered: 1 of 1 operator, 2 of 2 runs"
        assert [line.partition(":")[0] for line in others] == ["box", "of", "kernels"]
        assert "seed 1: " in confirm(workshop, model, "", "-v").out

    def test_json_on_standard_output(self, workshop: Workshop) -> None:
        found = confirm(workshop, workshop.model(LOG), "", "--json", "-", "--random")
        answer = json.loads(found.out)
        assert answer["triggered"] == 1 and answer["random"] and answer["operators"][0]["files"] == []
        target = workshop.folder / "report.json"
        assert confirm(workshop, workshop.model(LOG), "", "--json", target).status == 1
        assert json.loads(target.read_text())["triggered"] == 1

    def test_interruption_keeps_what_is_finished(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "g (float[1,2] x) => (float[1,2] a, float[1,2] b) { [one] a = Log(x) [two] b = Sqrt(x) }"
        real, calls = TestMaker.make_test, []

        def run(self: TestMaker, question: Any, seed: int, seconds: float) -> Any:
            calls.append(seed)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(self, question, seed, seconds)

        monkeypatch.setattr(TestMaker, "make_test", run)
        out = workshop.folder / "tests"
        found = confirm(workshop, workshop.model(text), "", "--out", out)
        assert found.status == 1
        assert "one (Log): 1 of 1 run trigger" in found.out and "two (Sqrt): not tested" in found.out
        assert passed(out) == 2


class TestRefusals:
    def test_other_properties(self, workshop: Workshop) -> None:
        model = workshop.model(LOG)
        assert "no_invalid_input" in confirm(workshop, model, "Forall(x, Implies(1 <= x <= 2, N(x)[0, 0] > 0))").error

    def test_folders(self, workshop: Workshop) -> None:
        model = workshop.model(LOG)
        there_is_none = confirm(workshop, model, "", "--out", workshop.folder / "no" / "such")
        assert "--out" in there_is_none.error and "create it first" in there_is_none.error
        (workshop.folder / "file").write_text("")
        assert "--out" in confirm(workshop, model, "", "--out", workshop.folder / "file").error

    @pytest.mark.parametrize(
        "arguments", [("--runs", "0"), ("--seed", "x"), ("--timeout", "0"), ("--nodes", "a"), ("--device", "nowhere")]
    )
    def test_arguments(self, workshop: Workshop, arguments: tuple[str, str]) -> None:
        assert confirm(workshop, workshop.model(LOG), "", *arguments).error

    def test_no_property_and_no_model(self, workshop: Workshop) -> None:
        assert "PROPERTY is missing" in workshop.run("confirm").error
        missing = workshop.run("confirm", workshop.property(), "-N", "N", workshop.folder / "none.onnx")
        assert "no such file" in missing.error

    def test_models_that_onnx_runtime_refuses_leave_no_half_files(self, workshop: Workshop) -> None:
        text = "g (bfloat16[4] x) => (bfloat16[4] y) { [exp] y = Exp(x) }"
        out = workshop.folder / "tests"
        formula = "Forall(x, Implies(-100 <= x <= 100, no_invalid_input(N(x))))"
        assert "ONNX Runtime" in confirm(workshop, workshop.model(text), formula, "--out", out).error
        assert [path.name for path in out.iterdir()] == ["confirm.json"]
