"""Proof files: accepted as they were written, rejected where they were tampered with."""

import ast
import dataclasses
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import ranum_falsify as rf
from ranum_falsify.api.proof_files import proof_of
from ranum_falsify.checker.check import check_proof, live_nodes
from ranum_falsify.checker.proof import ProofFile, ProofRejectedError
from ranum_falsify.checker.rules import Bounds
from ranum_falsify.network.registry import list_supported
from tests.imports import imported

NETWORKS = Path(__file__).parents[2] / "networks"
HEADER = '<ir_version: 8, opset_import: ["" : 18]>'
SAFE = ("log_mel_safe", "masked_attention_safe", "mlp_classifier", "l2_normalise_safe", "layer_norm_safe")


def prove(path: Path) -> ProofFile:
    result = rf.check(path, box=(-1, 1), n_starts=0, self_check=False)
    assert result.verdict == "holds"
    data = proof_of(result.answer, result.loaded, result.config)
    file = path.with_suffix(".npz")
    file.write_bytes(data)
    return ProofFile.read(file)


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[ProofFile, Path]]:
    folder = tmp_path_factory.mktemp("proofs")
    made = {}
    for name in SAFE:
        path = folder / f"{name}.onnx"
        path.write_bytes((NETWORKS / f"{name}.onnx").read_bytes())
        made[name] = prove(path), path
    return made


@pytest.mark.parametrize("name", SAFE)
def test_proofs_are_accepted(proofs: dict[str, tuple[ProofFile, Path]], name: str) -> None:
    proof, path = proofs[name]
    found = check_proof(proof, path)
    assert found.checked > len(found.trusted)
    assert set(found.valid) | set(found.trusted) <= {
        f"{node.name} ({node.op_type})" for node in onnx.load(path).graph.node
    }


def steps_of(proof: ProofFile, path: Path) -> list[str]:
    """The tensors whose bounds the checker computes again."""
    nodes = [node for node in onnx.load(path).graph.node if node.output[0] not in proof.trusted]
    return [name for node in nodes for name in node.output if name in proof.bounds]


def narrow(bounds: Bounds, which: int, lower: bool) -> Bounds:
    """One bound of one element, moved inward by one unit in the last place."""
    ends = [bounds.lower.copy(), bounds.upper.copy()]
    end = ends[0 if lower else 1].reshape(-1)
    end[which] = np.nextafter(end[which], end.dtype.type(np.inf if lower else -np.inf))
    return Bounds(*ends)


@pytest.mark.parametrize("name", SAFE)
def test_a_bound_moved_inward_is_rejected(proofs: dict[str, tuple[ProofFile, Path]], name: str) -> None:
    proof, path = proofs[name]
    rng = np.random.default_rng(0)
    floats = [tensor for tensor in steps_of(proof, path) if proof.bounds[tensor].lower.dtype == np.float32]
    for _ in range(40):
        tensor = rng.choice(floats)
        bounds = proof.bounds[tensor]
        moved = narrow(bounds, int(rng.integers(bounds.lower.size)), bool(rng.integers(2)))
        with pytest.raises(ProofRejectedError, match="narrower than those that follow"):
            check_proof(dataclasses.replace(proof, bounds={**proof.bounds, tensor: moved}), path)


@pytest.mark.parametrize("name", SAFE)
def test_a_tensor_left_out_is_rejected(proofs: dict[str, tuple[ProofFile, Path]], name: str) -> None:
    proof, path = proofs[name]
    for tensor in proof.bounds:
        rest = {other: bounds for other, bounds in proof.bounds.items() if other != tensor}
        with pytest.raises(ProofRejectedError, match="it has no b"):
            check_proof(dataclasses.replace(proof, bounds=rest), path)


def wider(proof: ProofFile) -> ProofFile:
    """The same proof of a larger box."""
    box = proof.bounds[proof.inputs[0]]
    return dataclasses.replace(
        proof, bounds={**proof.bounds, proof.inputs[0]: Bounds(box.lower * np.float32(2), box.upper)}
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (wider, "narrower than those"),
        (lambda proof: dataclasses.replace(proof, model="0" * 64), "it is of another model"),
        (lambda proof: dataclasses.replace(proof, trusted={}), "do not show that it is valid"),
        (lambda proof: dataclasses.replace(proof, inputs=()), "it has no box of input"),
        (
            lambda proof: dataclasses.replace(proof, inputs=("nothing", *proof.inputs)),
            "the model has no input 'nothing'",
        ),
    ],
)
def test_other_changes_are_rejected(
    proofs: dict[str, tuple[ProofFile, Path]], change: Callable[[ProofFile], ProofFile], message: str
) -> None:
    proof, path = proofs["log_mel_safe"]
    with pytest.raises(ProofRejectedError, match=message):
        check_proof(change(proof), path)


def test_a_file_that_was_changed_is_rejected(proofs: dict[str, tuple[ProofFile, Path]], tmp_path: Path) -> None:
    proof, path = proofs["mlp_classifier"]
    data = bytearray(path.with_suffix(".npz").read_bytes())
    rng = np.random.default_rng(0)
    changed = tmp_path / "changed.npz"
    for place in rng.integers(0, len(data), 60):
        twin = data.copy()
        twin[place] ^= 1 << int(rng.integers(8))
        changed.write_bytes(twin)
        try:
            assert ProofFile.read(changed) and ProofFile.read(changed).digest() == proof.digest()
        except ProofRejectedError:
            continue


def test_bounds_that_do_not_differ_are_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "batch.onnx"
    text = "g (float[512,4,300] x) => (float[512,4,300] y) { y = Abs(x) }"
    onnx.save(onnx.parser.parse_model(HEADER + text), path)
    proof = prove(path)
    assert proof.bounds["y"].lower.shape == (512, 4, 300)
    assert path.with_suffix(".npz").stat().st_size < 5000
    with np.load(path.with_suffix(".npz")) as arrays:
        assert {arrays[name].size for name in arrays if name != "meta"} == {1}
    assert check_proof(proof, path).checked == 1


def test_what_nothing_reads_is_checked_where_it_may_end_a_run(tmp_path: Path) -> None:
    path = tmp_path / "unread.onnx"
    text = "g (float[2] x) => (float[2] y) <int64[1] i = {{{index}}}> {{ l = Gather(x, i) m = Neg(x) y = Abs(x) }}"
    onnx.save(onnx.parser.parse_model(HEADER + text.format(index=1)), path)
    proof = prove(path)
    assert check_proof(proof, path).checked == 2
    onnx.save(onnx.parser.parse_model(HEADER + text.format(index=5)), path)
    forged = dataclasses.replace(proof, model=hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(ProofRejectedError, match="Gather"):
        check_proof(forged, path)


def test_the_checker_knows_all_operators_that_may_end_a_run() -> None:
    refusing = {spec.op_type for spec in list_supported() if any(condition.refuses for condition in spec.valid)}
    for op_type in {"Div", "Mod", "If", "Loop", "Scan", *refusing}:
        node = onnx.helper.make_node(op_type, ["x"] * 7, ["unread"])
        value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [1])
        graph = onnx.helper.make_graph([node], "g", [value], [])
        assert [one.op_type for one in live_nodes(graph)] == [op_type]


@pytest.mark.parametrize(("steps", "count"), [("s", 1), ("k", 0), ("n", 0), ("m", 1)])
def test_what_nothing_reads_is_live_where_inputs_say_what_it_does(steps: str, count: int) -> None:
    text = f"""g (float[2] x, int64[1] s) => (float[2] y) <int64[1] k = {{1}}> {{
        y = Neg(x) n = Shape(s) m = Neg(s) t = Slice(x, s, k, k, {steps}) }}"""
    graph = onnx.parser.parse_model(HEADER + text).graph
    assert len([node for node in live_nodes(graph) if node.op_type == "Slice"]) == count


def test_the_checker_is_small_and_stands_alone() -> None:
    folder = Path(__file__).parents[2] / "ranum_falsify" / "checker"
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))]
    assert sum(len(text.splitlines()) for text in texts) <= 620
    names = {name for text in texts for _, name in imported(ast.parse(text))}
    libraries = {name.split(".")[0] for name in names} - sys.stdlib_module_names
    assert libraries == {"google", "numpy", "onnx", "ranum_falsify"}
    assert all(name.startswith("ranum_falsify.checker.") for name in names if name.startswith("ranum_falsify"))
