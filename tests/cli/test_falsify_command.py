"""The main command from files to verdict, report and files."""

import json
import math
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.cli.workshop import LOG, PRODUCT, QUOTIENT, SAFE, Workshop

KEYS = {
    *("format", "verdict", "runtimes", "operators", "counterexample", "seconds", "seed", "starts", "steps"),
    *("ended_early", "sizes", "steep", "notices", "unconfirmed", "assumptions", "versions", "float32", "illustration"),
}
OPERATOR_KEYS = {
    *("node", "op_type", "network", "verdict", "runtimes", "constraint", "reason", "kind", "oracle", "returned"),
    *("operands", "after", "inside", "rewritten"),
    *(
        "reach",
        "optimisations",
        "expressions",
        "mended",
        "fused",
        "source",
        "gradients",
        "proved_after_rewriting",
        "counterexample",
    ),
}
SCALED = """g (float[1, 4] x, float[4, 1] w) => (float[1, 1] y) <float k = {1e20}> {
    a = Mul(x, k) p = MatMul(a, w) y = Mul(p, k)
}"""
BOUNDED = "g (float[1, 2] x) => (float[1, 2] y) { y = Tanh(x) }"
VALID = ("--prop.lb=1", "--prop.ub=2")
ALL = "onnxruntime, torch, exact"
HELD = "onnxruntime and torch on x86-64 and arm64, exact"


def outputs(model: Path, **inputs: np.ndarray) -> list[np.ndarray]:
    return list(onnxruntime.InferenceSession(str(model)).run(None, inputs))


class TestVerdict:
    def test_a_violation_is_named_with_all_that_is_known_of_it(self, workshop: Workshop) -> None:
        run = workshop.falsify()
        assert (run.status, run.err) == (1, "")
        lines = run.out.splitlines()
        assert lines[0] == "violated"
        assert lines[1].strip().startswith("logarithm (Log) gives ")
        assert "valid where x > 0 (else: logarithm of a non-positive number)" in run.out
        assert "operands: x " in run.out
        assert "reach: output" in run.out
        assert "confirmed by ONNX Runtime" in run.out
        assert lines[-1].startswith("time: read ") and "seed 0" in lines[-1]

    def test_nothing_found_is_unknown(self, workshop: Workshop) -> None:
        run = workshop.falsify("--prop.lb=1", "--prop.ub", "2", "--no-prove")
        assert (run.status, run.err) == (3, "")
        assert run.out.splitlines()[0] == "unknown"
        assert "open: 1 operator (Log 1)" in run.out

    def test_quiet_leaves_the_verdict_in_one_line(self, workshop: Workshop) -> None:
        for arguments, verdict in ((("--no-prove", *VALID), "unknown"), (VALID, f"holds for {HELD}"), ((), "violated")):
            assert workshop.falsify("-q", *arguments).out == f"{verdict}\n"

    def test_verbose_lists_the_open_operators(self, workshop: Workshop) -> None:
        run = workshop.falsify("-v", "--no-prove", *VALID)
        assert "  logarithm (Log): x > 0\n" in run.out

    def test_a_proof_needs_no_search(self, workshop: Workshop) -> None:
        run = workshop.falsify(*VALID)
        assert (run.status, run.err) == (0, "")
        lines = run.out.splitlines()
        assert lines[:2] == [f"holds for {HELD}", f"proved for {ALL}: 1 operator (Log 1)"]
        assert "; 0 starts, 0 steps" in lines[-1]

    def test_a_proof_covers_the_runtimes_that_it_names(self, workshop: Workshop) -> None:
        model = """g (float[1, 2] x) => (float[1, 2] y) { [squash] s = Sigmoid(x) [logarithm] y = Log(s) }"""
        box = ("--prop.lb=-20", "--prop.ub=20")
        run = workshop.falsify(*box, model=model)
        assert run.status == 1 and "logarithm (Log) gives infinity" in run.out
        run = workshop.falsify(*box, "--runtime", "torch", model=model)
        assert run.status == 0 and run.out.startswith("holds for torch on x86-64 and arm64\nproved for torch: ")
        run = workshop.falsify(*box, "--runtime", "torch,onnxruntime", "--json", "-", "--n_starts=0", model=model)
        report = json.loads(run.out)
        assert run.status == 3 and report["runtimes"] == ["onnxruntime", "torch"]
        verdicts = {o["node"]: (o["verdict"], o["runtimes"]) for o in report["operators"]}
        assert verdicts["logarithm"] == ("open", [])

    def test_what_is_open_only_because_of_others_says_so(self, workshop: Workshop) -> None:
        model = """g (float[1, 2] x) => (float[1, 2] y) {
            [logarithm] l = Log(x) [wave] y = Sin(l)
        }"""
        run = workshop.falsify("-v", "--n_starts=0", "--prop.lb=0", model=model)
        assert "open: 2 operators (Log 1, Sin 1), 1 only because of logarithm\n" in run.out
        assert "  wave (Sin): open only because of logarithm\n" in run.out

    @pytest.mark.parametrize("option", [("--runtime", "torch"), ("--prove-timeout", "3")])
    def test_no_proof_and_its_options_contradict(self, workshop: Workshop, option: tuple[str, str]) -> None:
        assert f"--no-prove and {option[0]} contradict" in workshop.falsify("--no-prove", *option).error
        assert "--runtime" in workshop.falsify("--runtime", "tensorflow").error

    @pytest.mark.slow
    def test_a_masked_violation_is_left_out_on_demand(self, workshop: Workshop) -> None:
        masked = """g (float[1, 2] x) => (float[1, 2] y) {
            [zero] zero = Constant<value = float[1] {0}>()
            [positive] p = Greater(x, zero)
            [logarithm] l = Log(x)
            [choice] y = Where(p, l, zero)
        }"""
        assert "reach: masked" in workshop.falsify(model=masked).out
        run = workshop.falsify("--fail-on", "output", model=masked)
        assert run.status == 0 and run.out.startswith("holds on outputs") and "1 masked operator" in run.out

    def test_what_is_undecided_fails_on_demand(self, workshop: Workshop) -> None:
        for choice, status in {"output": 3, "any": 3, "open": 1}.items():
            run = workshop.falsify("--no-prove", "--n_starts", "0", "--fail-on", choice)
            assert run.status == status and run.out.startswith("unknown")

    def test_the_same_seed_gives_the_same_counterexample(self, workshop: Workshop) -> None:
        for name in ("a", "b"):
            assert workshop.falsify("--seed", "7", "--save-violation", workshop.folder / name).status == 1
        first, second = ((workshop.folder / f"{name}.npy").read_bytes() for name in ("a", "b"))
        assert first == second

    @pytest.mark.parametrize(("threshold", "status"), [(-0.5, 1), (-1.5, 0)])
    def test_many_boxes_with_a_condition_each(self, workshop: Workshop, threshold: float, status: int) -> None:
        names = "".join(f"(declare-const {name} Real)" for name in ("X_0", "X_1", "Y_0", "Y_1"))
        # Only in the box number 33 is the condition one that Tanh can meet.
        parts = "".join(
            f"(and (>= X_0 {i}) (<= X_0 {i + 0.5}) (>= X_1 -2) (<= X_1 0) (<= Y_1 {threshold if i == 33 else -9}))"
            for i in range(40)
        )
        path = workshop.folder / "p.vnnlib"
        path.write_text(f"{names}(assert (or {parts}))")
        cex = workshop.folder / "cex.npy"
        run = workshop.run(path, "-N", "N", workshop.model(BOUNDED), "--save-violation", cex)
        assert run.status == status, run
        if status:
            x = np.load(cex)
            assert 33 <= x[0, 0] <= 33.5 and np.tanh(x[0, 1]) <= threshold + 1e-6
            replay = workshop.run("replay", cex, "-N", "N", workshop.model(BOUNDED), "--property", path)
            assert replay.status == 1, replay

    def test_vnnlib_by_suffix_and_by_option(self, workshop: Workshop) -> None:
        text = "\n".join(
            ["(declare-const X_0 Real)", "(declare-const X_1 Real)", "(declare-const Y_0 Real)"]
            + ["(declare-const Y_1 Real)"]
            + [f"(assert (<= X_{i} 1.0))\n(assert (>= X_{i} -1.0))" for i in range(2)]
            + ["(assert (>= Y_0 0.5))"]
        )
        model = workshop.model(SAFE)
        for name, option in (("p.vnnlib", []), ("p.txt", ["--vnnlib"])):
            path = workshop.folder / name
            path.write_text(text)
            cex = workshop.folder / "cex.npy"
            run = workshop.run(path, "-N", "N", model, "--save-violation", cex, *option)
            assert run.status == 1, run
            array = np.load(cex)
            assert outputs(model, x=array)[0][0, 0] >= 0.5
            replay = workshop.run("replay", cex, "-N", "N", model, "--property", path, *option)
            assert (replay.status, replay.err) == (1, "")
            assert "the property is false" in replay.out

    def test_symbolic_dimensions(self, workshop: Workshop) -> None:
        model = "g (float[batch, 2] x) => (float[batch, 2] y) { [logarithm] y = Log(x) }"
        default = workshop.falsify(model=model)
        assert "notice: " in default.out and "--dim batch=VALUE" in default.out
        cex = workshop.folder / "cex.npy"
        given = workshop.falsify("--dim", "batch=3", "--save-violation", cex, model=model)
        assert "notice: " not in given.out
        assert np.load(cex).shape == (3, 2)

    def test_a_dimension_of_one_of_two_networks(self, workshop: Workshop) -> None:
        symbolic = "g (float[batch, 2] x) => (float[batch, 2] y) { y = Relu(x) }"
        models = workshop.model(SAFE, "n.onnx"), workshop.model(symbolic, "m.onnx")
        formula = 'Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] >= Network("M")(x)[0, 0] - 1))'
        files = (workshop.property(formula), "-N", "N", models[0], "-N", "M", models[1], "--n_starts", "2")
        assert workshop.run(*files, "--dim", "batch=1", "--no-prove").status == 3
        assert "no network has this symbolic dimension; they have batch" in workshop.run(*files, "--dim", "d=1").error

    def test_operators_are_listed_without_a_search(self, workshop: Workshop) -> None:
        run = workshop.falsify("--list-operators", model=PRODUCT)
        assert run.status == 0
        assert "logarithm (Log)\n    valid where x > 0" in run.out and "root (Sqrt)\n    valid where x >= 0" in run.out
        assert "violated" not in run.out

    def test_what_is_only_in_question_is_not_called_invalid(self, workshop: Workshop) -> None:
        # The absolute value is never negative, which a proof shows and a listing does not.
        model = "g (float[2] x) => (float[2] y) { a = Abs(x) [root] y = Sqrt(a) }"
        run = workshop.falsify("--list-operators", model=model)
        assert run.out.startswith("N: 1 of 2 operators are in question (nothing was proved)\n"), run.out
        assert "can receive" not in run.out

    def test_settings_reach_the_back_end(self, workshop: Workshop) -> None:
        given = ("--no-prove", *VALID)
        run = workshop.falsify("--set", "pgd", "n_starts", "0", *given)
        assert "; 0 starts, 0 steps" in run.out
        run = workshop.falsify("--set", "pgd", "n_starts", "3", "--set", "pgd", "n_steps", "2", *given)
        assert "; 0 starts" not in run.out and run.status == 3


class TestFiles:
    def test_one_input_is_that_array_and_a_description(self, workshop: Workshop) -> None:
        path = workshop.folder / "cex.npy"
        run = workshop.falsify("--save-violation", path, "--seed", "3", "--prop.lb=-2")
        assert f"input: {path}" in run.out
        array = np.load(path)
        assert (array.dtype, array.shape) == (np.float32, (1, 2))
        assert not np.isfinite(outputs(workshop.folder / "model.onnx", x=array)[0]).all()
        described = json.loads((workshop.folder / "cex.json").read_text())
        assert described["seed"] == 3 and described["parameters"] == {"lb": "-2"}
        assert described["property"] == str(workshop.folder / "prop.py")
        assert len(described["networks"]["N"]["sha256"]) == 64
        (entry,) = described["counterexamples"]
        assert entry["inputs"] == {"x": "cex.npy"}
        (violation,) = entry["violations"]
        assert (violation["node"], violation["op_type"]) == ("logarithm", "Log")
        assert violation["operands"]["x"][0] <= 0
        assert {"ranum-falsify", "onnxruntime", "torch", "dnnv"} <= described["versions"].keys()

    def test_the_suffix_may_be_left_out(self, workshop: Workshop) -> None:
        workshop.falsify("--save-violation", workshop.folder / "found")
        assert {path.name for path in workshop.folder.glob("found*")} == {"found.npy", "found.json"}

    def test_several_inputs_are_a_file_each(self, workshop: Workshop) -> None:
        model = workshop.model(QUOTIENT)
        path = workshop.folder / "cex.npy"
        run = workshop.run(workshop.pair(), "-N", "N", model, "--save-violation", path)
        assert run.status == 1
        assert {p.name for p in workshop.folder.glob("cex*")} == {"cex.a.npy", "cex.b.npy", "cex.json"}
        arrays = {name: np.load(workshop.folder / f"cex.{name}.npy") for name in "ab"}
        assert not np.isfinite(outputs(model, **arrays)[0]).all()

    def test_different_inputs_of_different_operators(self, workshop: Workshop) -> None:
        path = workshop.folder / "cex.npy"
        report = workshop.folder / "report.json"
        # A root fails below 0, the logarithm of -x from 0 on; no x makes all its elements fail both ways at 1 element.
        model = PRODUCT.replace("[1, 2]", "[1]")
        run = workshop.falsify("--save-violation", path, "--json", report, model=model)
        assert run.status == 1
        operators = {o["node"]: o for o in json.loads(report.read_text())["operators"]}
        files = {operators[node]["counterexample"]["x"] for node in ("root", "logarithm")}
        assert "cex.npy" in files and files < {"cex.npy", "cex.logarithm.npy", "cex.root.npy"} and len(files) == 2
        for node, is_bad in (("root", np.less), ("logarithm", np.greater_equal)):
            assert is_bad(np.load(workshop.folder / operators[node]["counterexample"]["x"]), 0).all()
        assert len(json.loads((workshop.folder / "cex.json").read_text())["counterexamples"]) == 2

    def test_nothing_is_written_without_a_violation(self, workshop: Workshop) -> None:
        before = {"prop.py", "model.onnx"}
        assert workshop.falsify("--save-violation", workshop.folder / "cex.npy", *VALID).status == 0
        assert {path.name for path in workshop.folder.iterdir()} == before


class TestJson:
    def test_the_report_has_exactly_the_documented_keys(self, workshop: Workshop) -> None:
        path = workshop.folder / "sub" / "report.json"
        path.parent.mkdir()
        cex = workshop.folder / "cex.npy"
        workshop.falsify("--json", path, "--save-violation", cex)
        report = json.loads(path.read_text())
        assert report.keys() == KEYS
        assert (report["verdict"], report["runtimes"], report["seed"]) == ("violated", ["onnxruntime"], 0)
        assert report["seconds"].keys() == {"read", "reduce", "prove", "search", "replay"}
        assert all(math.isfinite(s) and s >= 0 for s in report["seconds"].values())
        assert report["counterexample"] == {"x": "../cex.npy"}
        (operator,) = report["operators"]
        assert operator.keys() == OPERATOR_KEYS
        assert operator["counterexample"] == {"x": "../cex.npy"} and operator["reach"] == "output"

    def test_counterexamples_lie_beside_the_report(self, workshop: Workshop) -> None:
        workshop.falsify("--json", workshop.folder / "report.json")
        report = json.loads((workshop.folder / "report.json").read_text())
        assert report["counterexample"] == {"x": "report.cex.npy"}
        assert (workshop.folder / "report.cex.npy").is_file() and (workshop.folder / "report.cex.json").is_file()

    def test_standard_output_holds_the_report_alone(self, workshop: Workshop) -> None:
        run = workshop.falsify("--json", "-", "--no-prove", *VALID)
        report = json.loads(run.out)
        assert run.status == 3 and report["verdict"] == "unknown"
        assert report["runtimes"] == [] and report["counterexample"] is None
        assert [operator["verdict"] for operator in report["operators"]] == ["open"]

    def test_a_proof_names_the_runtimes(self, workshop: Workshop) -> None:
        run = workshop.falsify("--json", "-", *VALID)
        report = json.loads(run.out)
        assert run.status == 0 and report["verdict"] == "holds"
        assert report["runtimes"] == ["onnxruntime", "torch", "exact"] and report["counterexample"] is None
        (operator,) = report["operators"]
        assert (operator["verdict"], operator["runtimes"], operator["after"]) == ("proved", report["runtimes"], [])
        assert report["seconds"]["prove"] > 0

    def test_the_report_names_the_families_of_processors(self, workshop: Workshop) -> None:
        report = json.loads(workshop.falsify("--json", "-", *VALID).out)
        libraries = report["assumptions"]["libraries"]
        assert ("avx2", True) in [(of["family"], bool(of["version"])) for of in libraries["onnxruntime"]["covered"]]
        assert libraries.keys() == {"onnxruntime", "torch"} and libraries["torch"]["covered"]

    @pytest.mark.slow
    def test_what_is_open_only_as_rewritten_says_so(self, workshop: Workshop) -> None:
        model = workshop.model(SCALED)
        arguments = (workshop.property(), "--network", "N", model, "--prop.lb=0", "--prop.ub=1e-20", "--n_starts", "0")
        assert ", 3 only as ONNX Runtime runs the model" in workshop.run(*arguments).out
        operators = json.loads(workshop.run(*arguments, "--json", "-").out)["operators"]
        assert [operator["rewritten"] for operator in operators] == [True, True, True]

    def test_a_stream_is_written_and_not_replaced(self, workshop: Workshop) -> None:
        run = workshop.falsify("--json", "/dev/null")
        assert run.status == 1 and Path("/dev/null").is_char_device()


@pytest.mark.parametrize("model", [LOG, QUOTIENT], ids=["one input", "two inputs"])
def test_what_is_saved_replays(workshop: Workshop, model: str) -> None:
    path = workshop.model(model)
    prop = workshop.property() if model == LOG else workshop.pair()
    cex = workshop.folder / "cex.npy"
    assert workshop.run(prop, "--network", "N", path, "--save-violation", cex).status == 1
    replay = workshop.run("replay", cex, "--network", "N", path)
    assert (replay.status, replay.err) == (1, "")
    assert replay.out.startswith("violated\n")
