"""What verdicts rest on: said in text, complete in JSON, and never left out."""

import hashlib
import json
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ranum_falsify.properties.problem.problem import InputVariable
from ranum_falsify.results import text
from ranum_falsify.results.assumptions import as_text
from ranum_falsify.results.counterexample import Saved
from ranum_falsify.results.plain import as_json
from ranum_falsify.results.run_report import grounds_of, make_report
from ranum_falsify.verify.prove.assumptions import Assumptions, assumptions_of
from ranum_falsify.verify.search.result import Answer
from tests.cli.workshop import LOG, QUOTIENT, SAFE, Workshop
from tests.witness.confirm_kit import Array, posed

FREE = "g (float[batch, 2] x) => (float[batch, 2] y) { [rectifier] y = Relu(x) }"
ROOT = "g (float[1, 2] x) => (float[1, 2] y) { [rectifier] r = Relu(x) [root] y = Sqrt(r) }"
VALID = ("--prop.lb=1", "--prop.ub=2")
ALL = "onnxruntime, torch, exact"
HELD = "onnxruntime and torch on x86-64 and arm64, exact"
ORT, TORCH = (f"{name} {version(name).partition('+')[0]}" for name in ("onnxruntime", "torch"))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lines(out: str, label: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith(f"{label}: ")]


def variable(name: str, lower: Any, upper: Any, dtype: type = np.float32) -> InputVariable:
    low: Array = np.asarray(lower, dtype)
    high: Array = np.asarray(upper, dtype)
    return InputVariable(name=name, shape=low.shape, dtype=np.dtype(dtype), lower=low, upper=high)


class TestText:
    def test_box_files_and_kernels(self, workshop: Workshop) -> None:
        out = workshop.falsify(*VALID).out
        assert lines(out, "box") == ["box: x in [1, 2] (float32)"]
        prop, model = (workshop.folder / name for name in ("prop.py", "model.onnx"))
        assert lines(out, "of") == [
            f"of: {prop} (sha256 {sha256(prop)[:12]}) with lb = 1, ub = 2; N = {model} (sha256 {sha256(model)[:12]})"
        ]
        (kernels,) = lines(out, "kernels")
        other = r"( of [0-9.]+)?"
        arm64 = rf"neon{other}, neon_fp16{other}, sve{other}"
        families = rf"{ORT} on x86-64 \(.*avx2, avx512{other},.*\) and arm64 \({arm64}\)"
        vectors = rf"neon{other}, neon_fp16{other}, sve128{other}, sve256{other}"
        also = rf"{TORCH} on x86-64 \(avx2, .*\) and arm64 \({vectors}\); not of GPUs"
        assert re.fullmatch(f"kernels: as measured of {families}, and of {also}", kernels)

    def test_of_a_violation_too(self, workshop: Workshop) -> None:
        out = workshop.falsify().out
        assert out.startswith("violated\n") and lines(out, "box") == ["box: x in [-1, 1] (float32)"]

    def test_only_runtimes_that_a_proof_covers_have_families(self, workshop: Workshop) -> None:
        torch = workshop.falsify(*VALID, "--runtime", "torch").out
        (kernels,) = lines(torch, "kernels")
        assert kernels.startswith(f"kernels: as measured of {TORCH} on x86-64 (")
        assert kernels.endswith(f"; not of {ORT} or GPUs")
        assert lines(workshop.falsify(*VALID, "--no-prove").out, "kernels") == [f"kernels: {ORT}, {TORCH}"]

    def test_verbose_has_whole_hashes(self, workshop: Workshop) -> None:
        (files,) = lines(workshop.falsify(*VALID, "-v").out, "of")
        assert f"(sha256 {sha256(workshop.folder / 'model.onnx')})" in files

    def test_a_box_of_different_elements(self) -> None:
        x = variable("x", [0, 0.5], [0.5, 0.75])
        (box, _) = as_text(Assumptions(inputs=(x,)))
        assert box == "box: x in [0, 0.75], at most 0.5 wide (float32)"

    def test_inputs_of_the_same_range_are_named_once(self) -> None:
        inputs = [variable(name, [0, 0], [1, 1]) for name in "abcdef"]
        inputs += [variable("k", [3], [3], np.int64)]
        (box, _) = as_text(Assumptions(inputs=tuple(inputs)))
        assert box == "box: a, b, c, d and 2 more in [0, 1] (float32); k = 3 (int64)"
        assert "a, b, c, d, e, f in [0, 1]" in next(as_text(Assumptions(inputs=tuple(inputs)), verbose=True))

    def test_many_ranges_are_cut(self) -> None:
        inputs = tuple(variable(f"x{i}", [0], [i + 1]) for i in range(9))
        assert next(as_text(Assumptions(inputs=inputs))).endswith("x3 in [0, 4] (float32); 5 more inputs")

    def test_side_conditions_alternatives_and_other_types(self) -> None:
        narrow = "g (float[2] x) => (float16[2] y) { [narrow] y = Cast<to = 10>(x) }"
        asked = posed(narrow, [(-1.0, 1.0)], extra="v0[0] + v0[1] >= 1.5")
        box = next(as_text(assumptions_of(asked, ())))
        assert box == "box: v0 in [-1, 1] (float32); 1 side condition; computed in float16 and float32"

    def test_the_element_type_of_a_conversion_stands_in_the_verdict(self, workshop: Workshop) -> None:
        out = workshop.falsify(*VALID, "--dtype", "float16", model=SAFE).out
        held = "onnxruntime on x86-64 and arm64, torch on x86-64, exact"
        assert out.startswith(f"holds for {held}, converted to float16; not proved on arm64 (torch: float16)\n")
        assert lines(out, "box") == ["box: x in [1, 2] (float16)"]


class TestUnsetDims:
    def test_they_stand_in_the_verdict(self, workshop: Workshop) -> None:
        out = workshop.falsify(model=FREE).out
        assert out.startswith(f"holds for {HELD}, with batch taken as 1\n")

    def test_given_ones_do_not(self, workshop: Workshop) -> None:
        out = workshop.falsify("--dim", "batch=3", model=FREE).out
        assert out.startswith(f"holds for {HELD}\n") and lines(out, "box") == ["box: x in [-1, 1] (float32); batch = 3"]

    def test_quiet_keeps_what_the_verdict_is_about(self, workshop: Workshop) -> None:
        assert "--dim batch=VALUE" in workshop.falsify(model=FREE).out
        assert workshop.falsify("-q", model=FREE).out == f"holds for {HELD}, with batch taken as 1\n"

    def test_many_are_counted(self) -> None:
        shown = list(text.report(result(assumed_dims={"a": 1, "b": 1}), Saved()))
        assert shown[0] == "unknown, with a and b taken as 1"
        shown = list(text.report(result(assumed_dims=dict.fromkeys("abcde", 1)), Saved()))
        assert shown[0] == "unknown, with 5 symbolic dimensions taken as 1"
        shown = list(text.report(result(assumed_dims={"a": 1, "time": 512, "b": 1}), Saved()))
        assert shown[0] == "unknown, with a and b taken as 1 and time taken as 512"
        shown = list(text.report(result(assumed_dims=dict.fromkeys("abcde", 1) | {"b": 2}), Saved()))
        assert shown[0] == "unknown, with sizes chosen for 5 symbolic dimensions"

    def test_slices_compositions_and_weights_keep_them(self, workshop: Workshop) -> None:
        formula = "Forall(x, Implies(lb <= x <= ub, no_invalid_input({}(x))))"
        for network in ("N[:1]", "N.compose(N)"):
            out = workshop.falsify(model=FREE, formula=formula.format(network)).out
            assert out.splitlines()[0].endswith(", with batch taken as 1"), network

    def test_json_has_all_sizes(self, workshop: Workshop) -> None:
        model = "g (float[batch, time] x) => (float[batch, time] y) { y = Relu(x) }"
        found = json.loads(workshop.falsify("--dim", "time=3", "--json", "-", model=model).out)["assumptions"]
        assert found["dims"] == {"N": {"batch": 1, "time": 3}} and found["assumed_dims"] == {"batch": 1}


class TestDerivatives:
    """What holds on the forward pass says so where a derivative may be infinite."""

    def test_a_root_at_zero(self, workshop: Workshop) -> None:
        run = workshop.falsify(model=ROOT)
        assert (run.status, run.out.splitlines()[0]) == (0, f"holds for {HELD}, on the forward pass")
        assert any("root (Sqrt)" in line and "gradient=True" in line for line in lines(run.out, "notice"))

    def test_finite_ones_are_not_mentioned(self, workshop: Workshop) -> None:
        assert "forward pass" not in workshop.falsify(*VALID, model=ROOT).out

    def test_nor_what_the_property_asks_for_or_not_about(self, workshop: Workshop) -> None:
        asked = "Forall(x, Implies(lb <= x <= ub, no_invalid_input(N(x), {})))"
        run = workshop.falsify(model=ROOT, formula=asked.format("gradient=True"))
        assert run.status == 1 and "forward pass" not in run.out
        run = workshop.falsify(model=ROOT, formula=asked.format('only=["Relu"]'))
        assert run.status == 0 and "forward pass" not in run.out

    def test_nor_where_nothing_holds(self, workshop: Workshop) -> None:
        run = workshop.falsify("--no-prove", model=ROOT)
        assert run.status == 3 and "forward pass" not in run.out

    def test_json(self, workshop: Workshop) -> None:
        assert json.loads(workshop.falsify("--json", "-", model=ROOT).out)["steep"] == ["root (Sqrt)"]

    def test_confirm(self, workshop: Workshop) -> None:
        run = workshop.run("confirm", workshop.property(), "-N", "N", workshop.model(ROOT))
        assert run.out.startswith(f"nothing to test: every operator is proved for {ALL}, on the forward pass\n")


class TestJson:
    def test_files_and_parameters(self, workshop: Workshop) -> None:
        report = json.loads(workshop.falsify("--prop.lb=1", "--prop.ub=2", "--json", "-").out)
        found, prop, model = report["assumptions"], workshop.folder / "prop.py", workshop.folder / "model.onnx"
        assert report["format"] == 1
        assert found["property"] == {"path": str(prop), "sha256": sha256(prop), "external_data": {}}
        assert found["networks"] == {"N": {"path": str(model), "sha256": sha256(model), "external_data": {}}}
        assert found["parameters"] == {"lb": 1.0, "ub": 2.0} and found["dtype"] is None
        assert found["element_types"] == ["float32"] and found["side_conditions"] == []

    def test_parameters_have_the_values_that_were_used(self, workshop: Workshop) -> None:
        found = json.loads(workshop.falsify("--prop.lb=0.5", "--json", "-").out)["assumptions"]
        assert found["parameters"] == {"lb": 0.5, "ub": 1.0}

    def test_external_data_counts(self, workshop: Workshop) -> None:
        model = onnx.load(workshop.model("g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }"))
        path = workshop.folder / "apart.onnx"
        model.graph.initializer[0].raw_data = np.array([1, 2], np.float32).tobytes()
        model.graph.initializer[0].ClearField("float_data")
        onnx.save(model, str(path), save_as_external_data=True, location="apart.data", size_threshold=0)
        found = json.loads(workshop.run(workshop.property(), "-N", "N", path, "--json", "-").out)
        (network,) = found["assumptions"]["networks"].values()
        assert network["external_data"] == {"apart.data": sha256(workshop.folder / "apart.data")}

    def test_boxes(self, workshop: Workshop) -> None:
        box = "And(-1 <= a <= 1, 1 <= b[0] <= 2, 3 <= b[1] <= 4)"
        pair = workshop.property(f"Forall(a, Forall(b, Implies({box}, no_invalid_input(N(a, b)))))")
        found = json.loads(workshop.run(pair, "-N", "N", workshop.model(QUOTIENT), "--json", "-").out)["assumptions"]
        assert found["inputs"] == [
            {"name": "a", "shape": [2], "dtype": "float32", "lower": -1.0, "upper": 1.0},
            {"name": "b", "shape": [2], "dtype": "float32", "lower": [1.0, 3.0], "upper": [2.0, 4.0]},
        ]
        assert found["regions"] == []

    def test_alternatives(self) -> None:
        first, second = ((variable("x", [at], [at + 1]),) for at in (0, 5))
        hull = (variable("x", [0], [6]),)
        found = as_json(grounds_of(Assumptions(inputs=hull, regions=(first, second))))
        assert found is not None and [[x["lower"] for x in region] for region in found["regions"]] == [[0.0], [5.0]]

    def test_large_bounds_are_summarised(self) -> None:
        x = variable("x", np.arange(1000), np.arange(1000) + 1)
        found = as_json(grounds_of(Assumptions(inputs=(x,))))
        digest = hashlib.sha256(x.lower.tobytes()).hexdigest()
        assert found is not None and found["inputs"][0]["lower"] == {"least": 0.0, "greatest": 999.0, "sha256": digest}

    def test_early_end_and_notices(self) -> None:
        shown = as_json(make_report(result(interrupted="timeout", notices=("a notice",)), Saved(), Path()))
        assert (shown["ended_early"], shown["notices"]) == ("timeout", ["a notice"])
        assert as_json(make_report(result(), Saved(), Path()))["ended_early"] is None


class TestConfirm:
    NORMAL = """g (float[1, 2] x) => (float[1, 2] y) <float ten = {10.0}> {
        [draw] r = RandomNormalLike(x) [shift] s = Add(r, ten) [log] l = Log(s) y = Add(x, l)
    }"""
    QUICK = ("--runs", "1", "--timeout", "0.5", "-p", "1")

    def test_what_only_likely_draws_prove_is_not_called_proved(self, workshop: Workshop) -> None:
        prop, model = workshop.property(), workshop.model(self.NORMAL)
        main = json.loads(workshop.run(prop, "-N", "N", model, "--n_starts", "5", "--json", "-").out)
        assert {o["node"]: o["verdict"] for o in main["operators"]}["log"] == "open"
        run = workshop.run("confirm", prop, "-N", "N", model, *self.QUICK)
        assert run.status == 3 and "proved for" not in run.out
        assert run.out.startswith("log (Log): 0 of 1 run trigger")
        assert any("4 standard deviations" in line for line in lines(run.out, "notice"))

    def test_operators_that_become_inputs_are_named(self, workshop: Workshop) -> None:
        model = workshop.model(
            "g (float[2] x) => (float[2] y) { [draw] r = RandomNormalLike<scale = 1e38>(x) y = Tanh(r) }"
        )
        run = workshop.run("confirm", workshop.property(), "-N", "N", model, *self.QUICK, "--json", "-")
        assert run.status == 3 and json.loads(run.out)["untested"] == ["draw (RandomNormalLike)"]
        run = workshop.run("confirm", workshop.property(), "-N", "N", model, "-q", *self.QUICK)
        assert run.out.startswith("nothing to test; neither proved nor tested: draw (RandomNormalLike)\n")

    def test_draws_that_cannot_matter_leave_all_proved(self, workshop: Workshop) -> None:
        model = workshop.model(self.NORMAL.replace("10.0", "100.0"))
        run = workshop.run("confirm", workshop.property(), "-N", "N", model, *self.QUICK)
        assert run.status == 0 and run.out.startswith("nothing to test: every operator is proved for ")

    def test_the_report_says_what_it_rests_on(self, workshop: Workshop) -> None:
        prop, model = workshop.property(), workshop.model(LOG.replace("1, 2", "n, 2"))
        run = workshop.run("confirm", prop, "-N", "N", model, *self.QUICK, "--no-span", "--json", "-")
        report = json.loads(run.out)
        assert (report["format"], report["ended_early"]) == (1, None) and "--dim n=VALUE" in report["notices"][0]
        found = report["assumptions"]
        assert found["networks"]["N"]["sha256"] == sha256(model) and found["assumed_dims"] == {"n": 1}
        quiet = workshop.run("confirm", prop, "-N", "N", model, *self.QUICK, "--no-span", "-q").out
        assert quiet.startswith("triggered: 1 of 1 operator, 1 of 1 run, with n taken as 1\nbox: ")
        assert "--dim n=VALUE" in quiet


class TestReplay:
    def test_it_says_what_it_rests_on(self, workshop: Workshop) -> None:
        workshop.falsify("--save-violation", workshop.folder / "cex")
        other = workshop.model(LOG.replace("logarithm", "another"))
        out = workshop.run("replay", workshop.folder / "cex.json", "-N", "N", other).out
        assert lines(out, "of") == [f"of: N = {other} (sha256 {sha256(other)[:12]})"]
        assert lines(out, "kernels") == [f"kernels: {ORT}"]
        assert len(lines(out, "notice")) == 1 and "SHA-256 differs" in out


def result(assumed_dims: Mapping[str, int] | None = None, **facts: Any) -> Answer:
    assumptions = Assumptions(inputs=(variable("x", [0], [1]),), assumed_dims=assumed_dims or {})
    return Answer(verdict="unknown", assumptions=assumptions, **facts)
