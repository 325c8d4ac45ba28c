"""`check --passes`: the answer is about the model that passes make, and never reads as one about the model before."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ranum_falsify as rf
from ranum_falsify.file_content import sha256
from ranum_falsify.results.commands import commands_of
from ranum_falsify.suite.results import read_records
from tests.cli.workshop import Workshop
from tests.rewrite.transform_kit import proto_of, temporary_passes

LOG = "g (float[1, 2] x) => (float[1, 2] y) { [softmax] p = Softmax(x) [logarithm] y = Log(p) }"
NEGATED = "g (float[1, 2] x) => (float[1, 2] y) { [minus] m = Neg(x) [root] y = Sqrt(m) }"
SIZE = "g (float[1, 3, 32, 32] image) => (float[1, 3, 32, 32] y) { [size] y = Abs(image) }"
LOOKUP = """g (int64[1, 2] ids) => (float[1, 2, 2] y) <float[4, 2] table = {1, 2, 3, 4, 5, 6, 7, 8}> {
    [look] rows = Gather(table, ids)
    [logarithm] y = Log(rows)
}"""
PASSES = '''
import numpy as np

from ranum_falsify.rewrite import Rewrite, register, verify


@verify.tolerance
@register("drop_abs", takes=["Abs"], gives=["Identity"])
class DropAbs(Rewrite):
    """Abs(x) becomes x, which is the same where nothing is negative."""

    def pattern(self, op, x):
        return op.Abs(x)

    def rewrite(self, op, x):
        return op.Identity(x)


@verify.equality
@register("hide_index", takes=["Gather"], gives=["Add", "Gather"])
class HideIndex(Rewrite):
    """Gather(table, i) becomes Gather(table, i + 0), of which nobody knows that i is an index."""

    def pattern(self, op, table, i):
        return op.Gather(table, i, _outputs=["rows"])

    def check(self, context, table, i, rows):
        return i.producer() is None

    def rewrite(self, op, table, i, rows):
        return op.Gather(table, op.Add(i, op.Constant(value_int=0)))
'''
QUICK: dict[str, Any] = {"processors": 1, "self_check": False}


@pytest.fixture(autouse=True)
def passes(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that registers passes, which are forgotten after the test."""
    monkeypatch.chdir(workshop.folder)
    path = workshop.folder / "passes.py"
    path.write_text(PASSES)
    with temporary_passes():
        yield path


def test_a_proof_is_of_what_the_passes_make(workshop: Workshop) -> None:
    words = ("check", workshop.model(LOG).name, "--box", "-90", "90", "--n_starts", "0", "--json", "r.json")
    assert workshop.run(*words).out.startswith("unknown")
    run = workshop.run(*words, "--passes", "stable_log_softmax,lift_constants")
    lines = run.out.splitlines()
    assert run.status == 0 and lines[0].endswith(", of the model after stable_log_softmax and lift_constants")
    report = json.loads((workshop.folder / "r.json").read_text())
    (made,) = report["assumptions"]["networks"].values()
    (how,) = report["assumptions"]["rewritten"].values()
    assert made["path"] == "<model.onnx after stable_log_softmax, lift_constants>"
    assert how["passes"] == ["stable_log_softmax", "lift_constants"]
    assert (how["before"]["path"], how["before"]["sha256"]) == ("model.onnx", sha256(workshop.folder / "model.onnx"))
    hashes = [digest[:12] for digest in (how["before"]["sha256"], made["sha256"])]
    after = "after stable_log_softmax and lift_constants"
    assert f"of: N = model.onnx (sha256 {hashes[0]}) {after} (sha256 {hashes[1]})" in lines
    assert [one["op_type"] for one in report["operators"]] == ["LogSoftmax"]
    transform = ("transform", "model.onnx", *how["passes"], "-o", "made.onnx", "--verify-timeout", "0")
    assert workshop.run(*transform).status == 0
    assert made["sha256"] == sha256(workshop.folder / "made.onnx"), "transform makes what was checked"
    quiet = workshop.run(*words, "--passes", "stable_log_softmax", "-q")
    assert quiet.out.endswith(", of the model after stable_log_softmax\n")


def test_a_counterexample_lies_beside_the_model_that_it_is_of(workshop: Workshop) -> None:
    words = ("check", workshop.model(NEGATED).name, "--box", "1", "2", "--passes", "lower_neg")
    run = workshop.run(*words, "--save-violation", "cex.npy", "--json", "r.json", "--junit", "r.xml")
    assert run.status == 1 and run.out.startswith("violated, of the model after lower_neg\n")
    made = onnx.load(workshop.folder / "cex.onnx")
    assert "Neg" not in {node.op_type for node in made.graph.node}
    report = json.loads((workshop.folder / "r.json").read_text())
    described = json.loads((workshop.folder / "cex.json").read_text())
    digest = sha256(workshop.folder / "cex.onnx")
    assert report["assumptions"]["networks"]["N"]["sha256"] == digest
    assert described["networks"]["N"] == {"path": "cex.onnx", "sha256": digest}
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.isnan(session.run(None, {"x": np.load(workshop.folder / "cex.npy")})[0]).any()
    again = workshop.run("replay", "cex.json", "--network", "N", "cex.onnx")
    assert again.status == 1 and "differs" not in again.out
    assert "differs" in workshop.run("replay", "cex.json", "--network", "N", "model.onnx").out
    assert 'name="model.onnx after lower_neg"' in (workshop.folder / "r.xml").read_text()


def test_weights_in_a_file_of_their_own_are_part_of_the_model_beside_it(workshop: Workshop) -> None:
    model = proto_of(
        "g (float[1, 2] x) => (float[1, 2] y) <float[2] w = {1, 2}> { m = Neg(x) r = Sqrt(m) y = Mul(r, w) }"
    )
    del model.graph.input[1:]
    model.graph.initializer[0].raw_data = np.array([1, 2], np.float32).tobytes()
    model.graph.initializer[0].ClearField("float_data")
    apart: dict[str, Any] = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(model, workshop.folder / "apart.onnx", **apart)
    words = ("check", "apart.onnx", "--box", "1", "2", "--passes", "lower_neg", "--save-violation", "cex.npy", "-q")
    assert workshop.run(*words).status == 1
    (workshop.folder / "w.bin").unlink()
    assert workshop.run("replay", "cex.json", "--network", "N", "cex.onnx", "-q").status == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--import", "passes.py", "--passes", "drop_abs"), "post-condition of pass 'drop_abs' failed (output 'y'"),
        (("--passes", "drop_abs"), "there is no pass 'drop_abs'"),
        (("--passes", " , "), "--passes: no pass is named"),
        (("--import", "passes.py"), "imports: no pass is named"),
        (("--import", "none.py", "--passes", "drop_abs"), "none.py: no such file"),
    ],
)
def test_what_nobody_vouches_for_has_no_answer(workshop: Workshop, words: tuple[str, ...], says: str) -> None:
    model = workshop.model(SIZE).name
    before = set(workshop.folder.iterdir())
    run = workshop.run("check", model, "--box", "-1", "1", "--save-violation", "cex.npy", "--json", "r.json", *words)
    assert says in run.error
    assert {path for path in workshop.folder.iterdir() if path.name != "__pycache__"} == before


def test_passes_are_verified_in_the_box_of_the_question(workshop: Workshop) -> None:
    """An image ranges over [0, 1] by default, where dropping Abs changes nothing."""
    run = workshop.run("check", workshop.model(SIZE), "--import", "passes.py", "--passes", "drop_abs")
    assert run.status == 0
    assert run.out.splitlines()[0].endswith(", of the model after drop_abs, with the default box of image")


def test_the_default_box_is_that_of_the_model_before(workshop: Workshop) -> None:
    words = ("check", workshop.model(LOOKUP), "--import", "passes.py", "--passes", "hide_index")
    run = workshop.run(*words)
    assert run.status == 0 and "box: ids in [0, 3] (int64); computed in float32" in run.out.splitlines()
    after = rf.check(rf.transform(workshop.folder / "model.onnx", ["hide_index"], box=(0, 3)).model)
    assert "ids in [0, 1] (integers, of which nothing is known)" in after.notices[0]


def test_passes_that_change_nothing_leave_the_answer_about_the_model(workshop: Workshop) -> None:
    words = ("check", workshop.model(LOG).name, "--box", "-200", "200", "--passes", "lower_neg")
    run = workshop.run(*words, "--save-violation", "cex.npy")
    assert run.status == 1 and run.out.startswith("violated\n")
    assert "notice: no pass changed the model, so the answer is about the model as it is" in run.out.splitlines()
    assert not (workshop.folder / "cex.onnx").exists()
    assert workshop.run("replay", "cex.json", "--network", "N", "model.onnx", "-q").status == 1


def test_other_forms_cannot_say_it(workshop: Workshop) -> None:
    words = ("check", workshop.model(NEGATED), "--passes", "lower_neg", "--n_starts", "20")
    run = workshop.run(*words, "--box", "1", "2", "--save-violation", "cex.vnnlib.txt")
    assert run.status == 1 and "this is about <" in run.err and not (workshop.folder / "cex.vnnlib.txt").exists()
    run = workshop.run(*words, "--box", "-2", "-1", "--proof", "p.json")
    assert run.status == 0 and "no proof file can be written" in run.err and not (workshop.folder / "p.json").exists()
    printed = workshop.run(*words, "--print-property").out.splitlines()
    assert printed[1] == "# MODEL: what ranum-falsify transform makes by lower_neg"


def test_passes_in_python(passes: Path, tmp_path: Path) -> None:
    model = proto_of(NEGATED)
    result = rf.check(model, box=(1, 2), passes=["lower_neg"], **QUICK)
    assert result.verdict == "violated"
    result.save(tmp_path / "found.npy")
    assert rf.replay(tmp_path / "found.onnx", tmp_path / "found.json").violated
    assert rf.replay(None, result).violated
    (asked,) = commands_of(result.record(), None)
    assert "--passes" not in asked, "without a report, nothing is known of it"
    halved = rf.check(model, box=(1, 2), passes=["lower_neg"], dtype="float16", **QUICK)
    assert str(halved).startswith("violated, of the model after lower_neg, converted to float16\n")
    for given, says in (({"passes": "lower_neg"}, "is no list"), ({"imports": [passes]}, "no pass is named")):
        with pytest.raises(rf.UsageError, match=says):
            rf.check(model, box=(1, 2), **given)


def test_modules_are_not_rewritten() -> None:
    import torch

    with pytest.raises(rf.UsageError, match="rewrite ONNX models"):
        rf.check(torch.nn.ReLU(), torch.ones(1, 2), passes=["lower_neg"])


@pytest.mark.slow
def test_a_suite_names_what_its_answers_are_about(workshop: Workshop) -> None:
    workshop.model(NEGATED)
    group = "[[group]]\nmodels = 'model.onnx'\nbox = [1, 2]\npasses = ['lower_neg']\n"
    (workshop.folder / "suite.toml").write_text(f"name = 's'\nn_starts = 20\n{group}")
    assert workshop.run("suite", "suite.toml", "--jobs", "1", "-q").status == 1
    ((*_, prop, _, verdict, _),) = csv.reader((workshop.folder / "results.csv").open())
    assert (prop, verdict) == ("box after lower_neg", "sat")
    (record,) = read_records(workshop.folder / "results.jsonl")
    made = Path(record.files["description"]).with_suffix(".onnx")
    assert workshop.run("replay", record.files["description"], "--network", "N", made, "-q").status == 1
    (workshop.folder / "theirs.csv").write_text("s,model.onnx,box after lower_neg,0.5,unsat,2.5\n")
    compared = workshop.run("suite", "compare", "results.jsonl", "theirs.csv")
    assert compared.status == 1 and "its model is what transform makes by lower_neg" in compared.out
