"""The command `fix`: the repaired model, its report, and what is refused."""

import json
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.cli.workshop import LOG, PRODUCT, SAFE, Workshop

QUICK = ("--n_starts", "4", "--samples", "8", "--no-self-check")
NAMES = "g (float[1, 2] x) => (float[1, 2] y) { [square] s = Mul(x, x) [logarithm] y = Log(s) }"


def test_the_repaired_model_holds_and_says_what_was_done(workshop: Workshop) -> None:
    fixed, report = workshop.folder / "fixed.onnx", workshop.folder / "report.json"
    prop, model = workshop.property(), workshop.model(NAMES)
    run = workshop.run("fix", prop, "-N", "N", model, "-o", fixed, *QUICK, "--by", "guard", "--json", report, "-v")
    assert run.status == 0 and f"written: {fixed} (proved)" in run.out
    for part in ("to repair: logarithm (Log, ", "best: guard, proved for onnxruntime, torch, exact", "PyTorch: x = "):
        assert part in run.out
    for part in ("TensorFlow: x = ", "bit for bit", "operations: +2 per inference", "  - Log logarithm: s -> y"):
        assert part in run.out
    assert workshop.run(prop, "-N", "N", fixed, "--no-self-check").status == 0
    session = ort.InferenceSession(str(fixed), providers=["CPUExecutionProvider"])
    assert np.isfinite(session.run(None, {"x": np.zeros((1, 2), np.float32)})[0]).all()
    content = json.loads(report.read_text())
    assert (content["format"], content["output"]) == (1, str(fixed))
    assert [hazard["node"] for hazard in content["hazards"]] == ["logarithm"]
    best = content["repairs"][0]
    assert best["standing"] == "proved" and best["runtimes"] == ["onnxruntime", "torch", "exact"]
    assert best["kept"] == {"s": 1.0} and best["outputs"]["largest"] == 0 and best["left"] == []
    assert [change["kind"] for change in best["changes"]] == ["guard"]


def test_the_report_may_go_to_standard_output(workshop: Workshop) -> None:
    fixed = workshop.folder / "fixed.onnx"
    run = workshop.run(
        "fix", workshop.property(), "-N", "N", workshop.model(), "-o", fixed, *QUICK, "--json", "-", "--by", "clip"
    )
    assert run.status == 0
    content = json.loads(run.out)
    assert {kind for repair in content["repairs"] for kind in repair["kinds"]} == {"clip"}
    assert fixed.exists()


def test_ways_and_places_are_chosen(workshop: Workshop) -> None:
    fixed = workshop.folder / "fixed.onnx"
    arguments = ("fix", workshop.property(), "-N", "N", workshop.model(), "-o", fixed, *QUICK)
    run = workshop.run(*arguments, "--by", "clip", "--at", "input")
    assert run.status == 4 and "Clip(x, " in run.out and "best: clip, proved" in run.out
    assert "at a loss: outputs that were right change by up to" in run.out and "(proved, at a loss)" in run.out
    (clip,) = [node for node in onnx.load(fixed).graph.node if node.op_type != "Log"]
    assert clip.input[0] == "x"
    assert "best: guard" in workshop.run(*arguments, "--by", "guard", "-q").out


def test_the_output_of_a_node_is_clipped(workshop: Workshop) -> None:
    fixed = workshop.folder / "fixed.onnx"
    arguments = ("fix", workshop.property(), "-N", "N", workshop.model(NAMES), "-o", fixed, *QUICK)
    run = workshop.run(*arguments, "--by", "clip", "--at", "square")
    assert run.status == 4 and "Clip(s, " in run.out
    (clip,) = [node for node in onnx.load(fixed).graph.node if node.op_type not in ("Mul", "Log")]
    assert list(clip.input[:1]) == ["s"]


def test_without_a_repair_nothing_is_written(workshop: Workshop) -> None:
    """There is no stable form of a logarithm alone."""
    fixed = workshop.folder / "fixed.onnx"
    arguments = ("fix", workshop.property(), "-N", "N", workshop.model(), "-o", fixed, *QUICK)
    run = workshop.run(*arguments, "--by", "rewrite")
    assert run.status == 3 and "no repair was found" in run.out and not fixed.exists()


def test_one_of_several_operators_is_repaired(workshop: Workshop) -> None:
    fixed = workshop.folder / "fixed.onnx"
    arguments = ("fix", workshop.property(), "-N", "N", workshop.model(PRODUCT), "-o", fixed, *QUICK)
    run = workshop.run(*arguments, "--node", "logarithm")
    assert run.status == 0 and "still open: root" in run.out


class TestRefusals:
    """Each is one line, with exit status 2, and nothing is written."""

    def refuse(self, workshop: Workshop, *options: str | Path, model: str = LOG, formula: str = "") -> str:
        fixed = workshop.folder / "fixed.onnx"
        where = () if "-o" in options else ("-o", fixed)
        prop = workshop.property(formula)
        error = workshop.run("fix", prop, "-N", "N", workshop.model(model), *where, *QUICK, *options).error
        assert not fixed.exists()
        return error

    def test_nothing_to_repair(self, workshop: Workshop) -> None:
        assert "there is nothing to repair: all operators are proved already" in self.refuse(workshop, model=SAFE)

    def test_a_node_that_is_proved(self, workshop: Workshop) -> None:
        assert "minus is proved already" in self.refuse(workshop, "--node", "minus", model=PRODUCT)

    @pytest.mark.parametrize("option", ["--node", "--at"])
    def test_a_node_that_is_not_there(self, workshop: Workshop, option: str) -> None:
        error = self.refuse(workshop, option, "logaritm")
        assert f"{option} logaritm: the model has no such node; it has logarithm" in error

    def test_no_weights_to_clip(self, workshop: Workshop) -> None:
        error = self.refuse(workshop, "--by", "clip", "--at", "weight")
        assert "--at weight: there is nothing to clip: the property leaves no weights free; free(N, 'NAME')" in error

    def test_a_property_about_outputs(self, workshop: Workshop) -> None:
        error = self.refuse(workshop, formula="Forall(x, Implies(0 <= x <= 1, N(x)[0, 0] <= 1))")
        assert "the property is about outputs" in error

    def test_a_part_of_a_network(self, workshop: Workshop) -> None:
        formula = "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N[1:](x))))"
        assert "not about one whole network" in self.refuse(workshop, model=PRODUCT, formula=formula)

    def test_no_place_for_the_model(self, workshop: Workshop) -> None:
        assert "with -o FIXED" in workshop.run("fix", workshop.property(), "-N", "N", workshop.model()).error

    def test_a_folder_that_is_missing(self, workshop: Workshop) -> None:
        assert "there is no folder" in self.refuse(workshop, "-o", workshop.folder / "none" / "fixed.onnx")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
    def test_a_folder_that_cannot_be_written(self, workshop: Workshop) -> None:
        locked = workshop.folder / "locked"
        locked.mkdir()
        locked.chmod(0o500)
        assert "cannot be written" in self.refuse(workshop, "-o", locked / "fixed.onnx")

    def test_a_folder_in_place_of_a_file(self, workshop: Workshop) -> None:
        assert "is a folder" in self.refuse(workshop, "-o", workshop.folder)

    def test_a_way_that_does_not_exist(self, workshop: Workshop) -> None:
        assert "'magic' is unknown; rewrite, guard, clip and any exist" in self.refuse(workshop, "--by", "magic")

    def test_a_report_in_place_of_the_model(self, workshop: Workshop) -> None:
        fixed = workshop.folder / "fixed.onnx"
        assert "the repaired model goes there" in self.refuse(workshop, "--json", fixed)
