"""Check a proof file: each step again, from the bounds of its operands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from ranum_falsify.checker.proof import ProofFile, ProofRejectedError
from ranum_falsify.checker.rules import SHAPES, Bounds, is_valid, may_end_a_run, results_of

__all__ = ["CheckedProof", "check_proof", "live_nodes", "weights_of"]


@dataclass(frozen=True)
class CheckedProof:
    """What a proof came to.

    Attributes:
        checked: How many operators were computed again.
        valid: Those whose validity was shown again, from bounds, and whose own bounds were not, with the reason.
        trusted: Those that had to be trusted, with the reason.
    """

    checked: int
    valid: Mapping[str, str]
    trusted: Mapping[str, str]


def check_proof(proof: ProofFile, path: Path) -> CheckedProof:
    """Check a proof of a model.

    Raises:
        OSError: The model cannot be read.
        ProofRejectedError: A step is not right, or the proof is of another model.
    """
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != proof.model:
        raise ProofRejectedError(f"it is of another model than {path}")
    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, ValueError, OSError, onnx.checker.ValidationError) as error:
        raise ProofRejectedError(f"{path} cannot be read as a model with its weights") from error
    _check_weights(model)
    known = weights_of(model, proof.inputs)
    _check_inputs(model, proof, known)
    checked, valid, trusted = 0, dict[str, str](), dict[str, str]()
    for node in live_nodes(model.graph):
        title = f"{node.name or node.output[0]} ({node.op_type})"
        outputs = [name for name in node.output if name]
        missing = [name for name in outputs if name not in proof.bounds]
        if missing:
            raise ProofRejectedError(f"{title}: it has no bounds of {missing[0]!r}")
        claimed = [proof.bounds[name] for name in outputs]
        operands = [None if not name else known.get(name) for name in node.input]
        if any(name and operand is None for name, operand in zip(node.input, operands, strict=True)):
            raise ProofRejectedError(f"{title}: it has no bounds of its operands")
        why = proof.trusted.get(outputs[0])
        if why is None:
            _check_step(node, title, operands, claimed, model)
            checked += 1
        elif is_valid(node, operands) or results_of(node, operands, model.opset_import) is not None:
            valid[title] = why
        else:
            trusted[title] = why
        known |= {name: said.flushed() for name, said in zip(outputs, claimed, strict=True)}
    return CheckedProof(checked, valid, trusted)


def _check_step(
    node: onnx.NodeProto, title: str, operands: list[Bounds | None], claimed: list[Bounds], model: onnx.ModelProto
) -> None:
    """Raise where what the proof says of a node does not follow from its operands."""
    computed = results_of(node, operands, model.opset_import)
    if computed is None:
        raise ProofRejectedError(f"{title}: the bounds of its operands do not show that it is valid")
    for found, said in zip(computed, claimed, strict=True):
        if not found.lies_in(said):
            raise ProofRejectedError(f"{title}: its bounds are narrower than those that follow from its operands")


def _check_inputs(model: onnx.ModelProto, proof: ProofFile, known: dict[str, Bounds]) -> None:
    """Add the box to what is known; every input has one."""
    names = {value.name for value in model.graph.input}
    for name in proof.inputs:
        if name not in names | {tensor.name for tensor in model.graph.initializer}:
            raise ProofRejectedError(f"the model has no input {name!r}")
        if name not in proof.bounds or not proof.bounds[name].is_finite:
            raise ProofRejectedError(f"it has no box of input {name!r}")
        known[name] = proof.bounds[name].flushed()
    missing = sorted(names - known.keys())
    if missing:
        raise ProofRejectedError(f"it has no box of input {missing[0]!r}")


def _check_weights(model: onnx.ModelProto) -> None:
    """Refuse weights in other files, of which the hash of the model says nothing."""
    if any(onnx.external_data_helper.uses_external_data(one) for one in model.graph.initializer):
        raise ProofRejectedError("the model's weights lie in files of their own, of which the proof says nothing")


def weights_of(model: onnx.ModelProto, inputs: tuple[str, ...] = ()) -> dict[str, Bounds]:
    """Return the initializers of a model as bounds, without those that are inputs of a proof."""
    arrays = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer if one.name not in inputs}
    return {name: Bounds(np.asarray(array), np.asarray(array)) for name, array in arrays.items()}


def live_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that an output depends on, or that may end a run, in the graph's order."""
    needed = {value.name for value in graph.output}
    reached = {value.name for value in graph.input} - {one.name for one in graph.initializer}
    for node in graph.node:
        if may_end_a_run(node, reached):
            needed.update(node.output)
        holds_graphs = any(part.HasField("g") for part in node.attribute)
        if holds_graphs or (reached.intersection(node.input) and node.op_type not in SHAPES):
            reached.update(filter(None, node.output))
    live = []
    for node in reversed(graph.node):
        if needed.intersection(node.output) - {""}:
            live.append(node)
            needed.update(node.input)
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    needed.update(name for part in inner.node for name in part.input)
    yield from reversed(live)
