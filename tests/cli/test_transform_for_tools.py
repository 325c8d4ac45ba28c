"""`transform --for`, `--property` and `--json`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import onnx
import pytest

from tests.cli.test_transform_command import ADD, DOCS, block
from tests.cli.workshop import LOG, Workshop
from tests.rewrite.transform_kit import temporary_passes
from tests.snippets import blocks

RNN = """g (float[2, 1, 1] x) => (float[2, 1, 1, 1] y) <float[1, 1, 1] w = {1}, float[1, 1, 1] r = {1}> {
    [layer] y = RNN<hidden_size = 1>(x, w, r) }"""
FEW = ("--samples", "8")


@pytest.fixture(autouse=True)
def no_pass_stays(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(workshop.folder)
    with temporary_passes():
        yield


def test_for_vnncomp_chains_passes(workshop: Workshop) -> None:
    run = workshop.run("transform", workshop.model(RNN), "--for", "vnncomp", "-o", "out.onnx", *FEW)
    assert "unroll_rnn: replaced 1; " in run.out
    assert "RNN" not in {node.op_type for node in onnx.load(workshop.folder / "out.onnx").graph.node}


def test_what_the_tools_do_not_read_is_named(workshop: Workshop) -> None:
    run = workshop.run("transform", workshop.model(LOG), "--for", "vnncomp", "-o", "out.onnx", *FEW, "--box", "1", "2")
    assert (run.status, run.out.splitlines()[-1]) == (3, "outside --for: Log 1")
    run = workshop.run(
        "transform", workshop.model(LOG), "--for", "vnncomp", "-o", "out.onnx", *FEW, "--box", "1", "2", "--only", "Log"
    )
    assert run.status == 0


@pytest.mark.slow
def test_the_property_goes_beside_the_model(workshop: Workshop) -> None:
    arguments = ("--property", workshop.property(), "--prop.lb=-0.5", "--samples", "8")
    run = workshop.run("transform", workshop.model(LOG), "--for", "vnncomp", "-o", "out.onnx", *arguments)
    assert (run.status, run.err) == (0, "")
    lines = run.out.splitlines()
    assert "written: out.vnnlib" in lines
    assert any(line.startswith("notice: the output of the network is what the property asks about") for line in lines)
    text = (workshop.folder / "out.vnnlib").read_text()
    assert "(assert (>= X_0 -0.5))" in text and "    (and (<= Y_1 0.0))" in text
    again = workshop.run("out.vnnlib", "--network", "N", "out.onnx", "--n_starts", "20")
    assert again.status == 1 and again.out.startswith("violated")


def test_what_each_pass_did_as_json(workshop: Workshop) -> None:
    arguments = ("transform_add", "infer_shapes", "-o", "out.onnx", "--json", "-", "--only", "Sub", *FEW)
    run = workshop.run("transform", workshop.model(ADD), *arguments)
    assert run.status == 3
    report = json.loads(run.out)
    assert (report["format"], report["output"], report["vnnlib"], report["failure"]) == (1, "out.onnx", None, None)
    first, second = report["passes"]
    assert {key: first[key] for key in ("name", "modified", "replaced", "left", "largest_difference")} == {
        "name": "transform_add",
        "modified": True,
        "replaced": 1,
        "left": [],
        "largest_difference": 0.0,
    }
    assert first["verified"][0] == "structure" and first["verified"][1].startswith("sampled ")
    assert first["guarantee"] == {"kind": "equality", "signed_zero": True, "everywhere": True}
    assert second["replaced"] is None
    assert report["operators"] == {"Constant": 1, "Sub": 2}
    assert report["outside"] == {"Constant": 1}


def test_the_largest_difference_is_that_of_the_samples(workshop: Workshop) -> None:
    model = workshop.model("g (float[64] x) => (float[1] y) { y = ReduceSum(x) }", opset=12)
    run = workshop.run("transform", model, "transform_reduce_sum", "-o", "o.onnx", "--json", "o.json", *FEW, "--seed=1")
    assert run.status == 0 and "transform_reduce_sum: replaced 1" in run.out
    (done,) = json.loads((workshop.folder / "o.json").read_text())["passes"]
    assert isinstance(done["largest_difference"], float) and done["largest_difference"] >= 0


def test_a_broken_promise_as_json(workshop: Workshop) -> None:
    (workshop.folder / "break_adds.py").write_text(block("python", "BreakAdds").text)
    run = workshop.run(
        "transform", workshop.model(ADD), "infer_shapes", "BreakAdds", "--import", "break_adds.py", "-o", "out.onnx",
        "--json", "report.json", "-q", *FEW,
    )  # fmt: skip
    assert run.status == 1
    report = json.loads((workshop.folder / "report.json").read_text())
    assert report["output"] is None and [done["name"] for done in report["passes"]] == ["infer_shapes"]
    failure = report["failure"]
    assert failure["name"] == "BreakAdds" and failure["why"].startswith("output 'y' not as expected")
    assert failure["inputs"] == {"x": "out.failing.x.npy", "b": "out.failing.b.npy"}
    assert failure["checkpoint"] == "out.checkpoint.onnx"
    assert all((workshop.folder / name).exists() for name in (*failure["inputs"].values(), failure["checkpoint"]))


def test_the_keys_are_those_of_the_documentation(workshop: Workshop) -> None:
    run = workshop.run("transform", workshop.model(ADD), "transform_add", "-o", "out.onnx", "--json", "-", *FEW)
    section = DOCS.partition("## JSON")[2].partition("\n## ")[0]
    documented = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
    assert documented == set(json.loads(run.out))
    assert blocks(DOCS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--for", "vnncmp"), "'vnncmp' is unknown; there is: vnncomp"),
        (("--for", "vnncomp", "--property", "none.py"), "none.py: no such file"),
        (("--for", "vnncomp", "--property", "prop.py", "--prop.lb=x"), "lb"),
        (("--for", "vnncomp", "--property", "two.py"), "two.py: VNN-LIB is about one network"),
        (("--for", "vnncomp", "--property", "root.py"), "root.py: VNN-LIB cannot say 'sqrt'"),
        (("--for", "vnncomp", "--json", "no/report.json"), "there is no folder 'no'"),
    ],
)
def test_wrong_usage_is_one_line_and_writes_nothing(workshop: Workshop, arguments: tuple[str, ...], said: str) -> None:
    workshop.property()
    workshop.property('M = Network("M")\nForall(x, Implies(0 <= x <= 1, N(x) <= M(x)))', "two.py")
    workshop.property("import numpy as np\nForall(x, Implies(0 <= x <= 1, np.sqrt(N(x)) <= 1))", "root.py")
    run = workshop.run("transform", workshop.model(LOG), *arguments, "-o", "out.onnx")
    assert said in run.error
    assert not list(workshop.folder.glob("out*"))
