"""The commands `transform` and `simplify`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from ranum_falsify.rewrite.registry import registered
from tests.cli.workshop import LOG, Workshop
from tests.rewrite.transform_kit import temporary_passes
from tests.snippets import Block, blocks

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = (ROOT / "docs" / "transform.md").read_text(encoding="utf-8")
ADD = "g (float[3] x, float[3] b) => (float[3] y) { [sum] y = Add(x, b) }"
ARG = "g (float[N, 5] x) => (int64[N] y) { [position] y = ArgMin<axis = 1, keepdims = 0>(x) }"
SYMBOLIC = "g (float[N, M] x) => (int64[N] y) { [position] y = ArgMax<axis = 1, keepdims = 0>(x) }"


@pytest.fixture(autouse=True)
def no_pass_stays(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(workshop.folder)
    with temporary_passes():
        yield


def block(language: str, holds: str) -> Block:
    """The first block of the documentation that holds a text."""
    return next(block for block, _ in blocks(DOCS) if block.language == language and holds in block.text)


def node_types(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_passes_in_order_make_the_model(workshop: Workshop) -> None:
    run = workshop.run("transform", workshop.model(ARG), "transform_arg_min", "transform_arg_max", "-o", "out.onnx")
    assert (run.status, run.err) == (0, "")
    lines = run.out.splitlines()
    assert lines[0].startswith("transform_arg_min: replaced 1; equality, on valid inputs: structure, sampled 64; ")
    assert any(line.startswith("written: out.onnx: ") for line in lines)
    assert "notice: dimensions taken as 1, 2, 3, 7 in samples: N" in lines
    assert not {"ArgMin", "ArgMax"} & set(node_types(workshop.folder / "out.onnx"))


def test_simplify_reads_the_passes_from_a_list(workshop: Workshop) -> None:
    (workshop.folder / "list.txt").write_text("transform_arg_min\n\n# then\n  transform_arg_max  # the rest\n")
    run = workshop.run("simplify", "-i", workshop.model(ARG), "-o", "out.onnx", "-s", "list.txt")
    assert run.status == 0
    assert [line.partition(":")[0] for line in run.out.splitlines()[:2]] == ["transform_arg_min", "transform_arg_max"]


@pytest.mark.slow
def test_what_is_left_outside_only_is_named(workshop: Workshop) -> None:
    passes = ("transform_arg_min", "transform_arg_max")
    model = workshop.model(ARG)
    base = "Constant,Add,Sub,Mul,MatMul,Relu,Transpose,Sign"
    run = workshop.run("transform", model, *passes, "-o", "out.onnx", "--only", base)
    assert (run.status, run.out.splitlines()[-1]) == (3, "outside --only: Cast 1")
    assert workshop.run("transform", model, *passes, "-o", "out.onnx", "--only", f"{base},Cast").status == 0


def test_a_refusal_is_told_per_node(workshop: Workshop) -> None:
    run = workshop.run("transform", workshop.model(SYMBOLIC), "transform_arg_max", "-o", "out.onnx")
    assert run.status == 0
    assert run.out.splitlines()[:2] == [
        "transform_arg_max: nothing to do",
        "  left: position (ArgMax): axis 1 of 'x' has no fixed length; give the model static shapes",
    ]


def test_the_list_says_what_each_pass_is(workshop: Workshop) -> None:
    run = workshop.run("transform", "--list")
    assert run.status == 0
    place = run.out.splitlines().index("transform_add")
    assert run.out.splitlines()[place : place + 5] == [
        "transform_add",
        "  x + y becomes x - (-0 - y), equal to the bit.",
        "  guarantee: equality",
        "  Add -> Constant, Sub",
        "  needs: a known element type",
    ]


@pytest.mark.slow
def test_the_broken_pass_of_the_documentation_fails_as_it_says(workshop: Workshop) -> None:
    (workshop.folder / "break_adds.py").write_text(block("python", "BreakAdds").text)
    words = block("sh", "BreakAdds").text.split()
    assert words[:2] == ["ranum-falsify", "transform"]
    workshop.model(ADD)
    run = workshop.run(*words[1:])
    assert run.status == 1
    assert run.out == block("sh", "BreakAdds").output
    assert not (workshop.folder / "out.onnx").exists()
    assert node_types(workshop.folder / "out.checkpoint.onnx") == ["Add"]
    arrays = {name: np.load(workshop.folder / f"out.failing.{name}.npy") for name in "xb"}
    assert not np.array_equal(arrays["x"], arrays["b"])


@pytest.mark.slow
def test_an_older_result_is_not_taken_for_the_new_one(workshop: Workshop) -> None:
    (workshop.folder / "break_adds.py").write_text(block("python", "BreakAdds").text)
    (workshop.folder / "out.onnx").write_bytes(b"older")
    workshop.model(ADD)
    run = workshop.run(*block("sh", "BreakAdds").text.split()[1:])
    assert run.out.endswith("out.onnx is not written; what is there is older\n")
    assert (workshop.folder / "out.onnx").read_bytes() == b"older"


PROPERTY = """from dnnv.properties import *
import numpy as np

N = Network("N")
Forall(x, Implies(And(np.array([[-1.0, 0.0, 2.0]]) <= x, x <= np.array([[1.0, 3.0, 5.0]])), N(x) <= 100))
"""
VNNLIB = """
(declare-const X_0 Real) (declare-const X_1 Real) (declare-const X_2 Real) (declare-const Y_0 Real)
(assert (>= X_0 -1)) (assert (<= X_0 1))
(assert (>= X_1 0)) (assert (<= X_1 3))
(assert (>= X_2 2)) (assert (<= X_2 5))
(assert (>= Y_0 100))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), [("p.py", PROPERTY), ("p.vnnlib", VNNLIB)])
def test_inputs_range_over_what_a_property_says(workshop: Workshop, name: str, text: str) -> None:
    (workshop.folder / name).write_text(text)
    (workshop.folder / "cfg.yaml").write_text("verify: {tolerance: {atol: 1.0e-3}}\n")
    model = workshop.model(
        "g (float[N, 3] x) => (float[N, 1] y) { axes = Constant<value_ints = [1]>() y = ReduceSum(x, axes) }"
    )
    options = ("--property", name, "--verify-timeout", "20", "-c", "cfg.yaml")
    run = workshop.run("transform", model, "transform_reduce_sum", "-o", "out.onnx", *options)
    assert (run.status, run.err) == (0, "")
    assert ", proved; " in run.out.splitlines()[0]


@pytest.mark.slow
def test_all_providers_that_there_are_can_be_asked_for(workshop: Workshop) -> None:
    there = onnxruntime.get_available_providers()
    (workshop.folder / "cfg.yaml").write_text(f"onnxruntime: {{providers: {there}}}\n")
    run = workshop.run("transform", workshop.model(ADD), "transform_add", "-o", "out.onnx", "-c", "cfg.yaml")
    assert (run.status, run.err) == (0, "")


def test_a_configuration_says_what_the_command_line_does(workshop: Workshop) -> None:
    folder = workshop.folder / "settings"
    folder.mkdir()
    (folder / "break_adds.py").write_text(block("python", "BreakAdds").text)
    for name, values in {"x": [1, 2, 3], "b": [1, 1, 1], "y": [2, 3, 4]}.items():
        np.save(folder / f"{name}.npy", np.array(values, dtype=np.float32))
    (folder / "cfg.yaml").write_text(
        """
        imports: [break_adds.py]
        passes: [transform_add, BreakAdds]
        reference: {inp: [x.npy, b.npy], out: y.npy}
        logging: {checkpoint: before.onnx, keep_intermediates: true}
        """
    )
    run = workshop.run("transform", workshop.model(ADD), "-o", "out.onnx", "-c", "settings/cfg.yaml", "--samples", "8")
    assert run.status == 0, "no Add is left when BreakAdds runs"
    assert run.out.startswith("transform_add: replaced 1; equality: structure, sampled 10; ")
    kept = sorted(path.name for path in folder.glob("*.onnx"))
    assert kept == ["before.0.before-transform_add.onnx", "before.1.before-BreakAdds.onnx", "before.onnx"]
    assert node_types(folder / "before.0.before-transform_add.onnx") == ["Add"]
    assert node_types(folder / "before.onnx") == ["Constant", "Sub", "Sub"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("passes: [transform_add]\nrefrence: {}", "refrence is unknown; did you mean 'reference'?"),
        ("verify: {tolerance: {rtl: 1}}", "verify.tolerance.rtl is unknown; did you mean 'rtol'?"),
        ("verify: {tolerance: {rtol: -1}}", "verify.tolerance.rtol is -1; write a number that is neither"),
        ("verify: {tolerance: {atol: .inf}}", "verify.tolerance.atol is inf; write a number that is neither"),
        ("passes: [transform_add]\npasses: [lower_sub]", "key 'passes' is there twice"),
        ("logging: {checkpoint: out.onnx}", "out.onnx: would be the new model and the checkpoint before a pass"),
        ("logging: {checkpoint: model.onnx}", "model.onnx: would be the model and the checkpoint before a pass"),
        ("verify: {metrics: {max_abs_eror: [0, 1]}}", "did you mean 'max_abs_error'?"),
        ("verify: {metrics: {accuracy: [1, 0]}}", "verify.metrics.accuracy allows nothing: 1 is more than 0"),
        ("verify: {metrics: {accuracy: 1}}", "verify.metrics.accuracy is 1; write [least, most]"),
        ("onnxruntime: {providers: [CUDExecutionProvider]}", "'CUDExecutionProvider' is not available; did you mean"),
        ("model_checker: 1", "model_checker is 1; write true or false"),
        ("logging: {keep_intermediates: true}", "needs a place; set logging.checkpoint"),
        ("reference: {out: y.npy}", "add reference.inp"),
        ("reference: {inp: missing.npy}", "missing.npy: no such file"),
        ("passes: transform_ad", "did you mean 'transform_add'?"),
        ("imports: missing.py\npasses: transform_add", "missing.py: no such file"),
        ("- 1", "is [1]; write keys and values"),
        ("{", "is not YAML"),
        ("passes: !!python/object/apply:os.system [ls]", "is not YAML"),
    ],
)
def test_a_wrong_configuration_is_one_line(workshop: Workshop, text: str, said: str) -> None:
    (workshop.folder / "cfg.yaml").write_text(f"{text}\n")
    passes = () if "passes" in text else ("transform_add",)
    run = workshop.run("transform", workshop.model(ADD), *passes, "-o", "out.onnx", "-c", "cfg.yaml")
    assert said in run.error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no model is given"),
        (("model.onnx",), "-o OUT"),
        (("model.onnx", "-o", "out.onnx"), "no pass is given"),
        (("model.onnx", "transform_add", "-o", "no/out.onnx"), "--output no/out.onnx: there is no folder 'no'"),
        (("missing.onnx", "transform_add", "-o", "out.onnx"), "missing.onnx: no such file"),
        (("prop.py", "transform_add", "-o", "out.onnx"), "prop.py: not an ONNX model"),
        (("model.onnx", "transform_add=3", "-o", "out.onnx"), "takes no argument"),
        (("model.onnx", "convert_opset", "-o", "out.onnx"), "convert_opset=ARGUMENT"),
        (("model.onnx", "convert_opset=three", "-o", "out.onnx"), "give an opset from 7"),
        (("model.onnx", "transform_add", "-o", "out.onnx", "--box", "1", "0"), "LO <= HI"),
        (("model.onnx", "transform_add", "-o", "out.onnx", "--box", "z=0,1"), "inputs have no 'z'"),
        (("model.onnx", "transform_add", "-o", "out.onnx", "--dim", "N=3"), "--dim: the model's inputs have no 'N'"),
        (("model.onnx", "transform_add", "-o", "out.onnx", "--reference", "x=x.npy"), "x.npy: no such file"),
        (("model.onnx", "transform_add", "-o", "out.onnx", "--import", "none.py"), "registers no pass"),
        (("model.onnx", "transform_add", "-o", "out.onnx", "--import", "bad.py"), "bad.py: line 2: ZeroDivisionError"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(workshop: Workshop, arguments: tuple[str, ...], said: str) -> None:
    workshop.model(ADD)
    workshop.property()
    (workshop.folder / "bad.py").write_text("x = 0\n1 / x\n")
    (workshop.folder / "none.py").write_text("x = 0\n")
    assert said in workshop.run("transform", *arguments).error


def test_a_checkpoint_does_not_replace_the_model(workshop: Workshop) -> None:
    model = workshop.model(ADD)
    Path(model).rename("out.checkpoint.onnx")
    run = workshop.run("transform", "out.checkpoint.onnx", "transform_add", "-o", "out.onnx")
    assert "out.checkpoint.onnx: would be the model and the checkpoint before a pass" in run.error


def test_a_list_without_passes_is_told(workshop: Workshop) -> None:
    (workshop.folder / "list.txt").write_text("# none yet\n")
    run = workshop.run("simplify", "-i", workshop.model(ADD), "-o", "out.onnx", "-s", "list.txt")
    assert "list.txt: names no pass; `transform --list` shows them" in run.error


def test_a_model_may_be_replaced_by_what_passes_make_of_it(workshop: Workshop) -> None:
    model = workshop.model(ADD)
    assert workshop.run("transform", model, "transform_add", "-o", model, "--samples", "8").status == 0
    assert node_types(workshop.folder / "model.onnx") == ["Constant", "Sub", "Sub"]


def test_a_pass_without_a_guarantee_is_refused(workshop: Workshop) -> None:
    text = block("python", "BreakAdds").text.replace("@verify.equality\n", "")
    (workshop.folder / "bad.py").write_text(text)
    run = workshop.run("transform", workshop.model(ADD), "BreakAdds", "-o", "out.onnx", "--import", "bad.py")
    assert "pass 'BreakAdds' has no guarantee; put @verify.equality" in run.error


def test_external_data_goes_into_a_file_beside_the_new_model(workshop: Workshop) -> None:
    text = "g (float[2, 300] x) => (float[2, 4] y) { i = Identity(x) y = MatMul(i, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    weights = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    (workshop.folder / "in").mkdir()
    onnx.save(model, workshop.folder / "in" / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    run = workshop.run("transform", "in/m.onnx", "eliminate_identity", "-o", "out.onnx", "--box", "-1", "1")
    assert (run.status, run.err) == (0, "")
    assert (workshop.folder / "out.onnx.data").stat().st_size == weights.nbytes
    (written,) = onnx.load(workshop.folder / "out.onnx").graph.initializer
    assert np.array_equal(onnx.numpy_helper.to_array(written), weights)
    assert sorted(path.name for path in workshop.folder.iterdir()) == ["in", "out.onnx", "out.onnx.data"]
    again = workshop.run("transform", "out.onnx", "add_default_attributes", "lift_constants", "-o", "out.onnx")
    assert (again.status, again.err) == (0, ""), "what is mapped is what is written"
    (written,) = onnx.load(workshop.folder / "out.onnx").graph.initializer
    assert np.array_equal(onnx.numpy_helper.to_array(written), weights)


def test_weights_of_the_new_model_replace_none_of_the_old_one(workshop: Workshop) -> None:
    text = "g (float[2] x) => (float[2] y) { y = Add(x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    onnx.save(model, workshop.folder / "m.onnx", save_as_external_data=True, location="out.onnx.data", size_threshold=0)
    before = (workshop.folder / "out.onnx.data").read_bytes()
    run = workshop.run("transform", "m.onnx", "transform_add", "-o", "out.onnx")
    assert "--output out.onnx: its weights would replace out.onnx.data, which holds those of m.onnx" in run.error
    assert (workshop.folder / "out.onnx.data").read_bytes() == before and not (workshop.folder / "out.onnx").exists()


def test_an_import_that_fails_leaves_no_pass(workshop: Workshop) -> None:
    (workshop.folder / "half.py").write_text(block("python", "BreakAdds").text + "\nraise RuntimeError\n")
    before = registered()
    assert "half.py" in workshop.run("transform", "--list", "--import", "half.py").error
    assert registered() == before


def test_a_model_that_fails_itself_is_compared_all_the_same(workshop: Workshop) -> None:
    run = workshop.run("transform", workshop.model(LOG), "convert_opset=18", "-o", "out.onnx")
    assert run.status == 0 and ", sampled" in run.out
