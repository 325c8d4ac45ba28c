"""Write down what a `holds` rests on, for the checker."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.checker.check import live_nodes, weights_of
from ranum_falsify.checker.proof import ProofFile
from ranum_falsify.checker.rules import Bounds, has_rule, results_of
from ranum_falsify.config import ProveConfig
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.kernels.records import FOLDER
from ranum_falsify.errors import UsageError
from ranum_falsify.network.fingerprint import Fingerprint
from ranum_falsify.network.naming import tensor_name
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.properties.problem.problem import Problem

__all__ = ["make_proof", "to_bytes"]

_MOST_ELEMENTS = 1 << 26
"""Of a tensor, and of all that is stored."""
_MARGIN = 1e-3
"""Bounds of the prover that are narrower than the checker's by less, relative to their width, are not needed."""

_NO_RULE = "the checker has no rule for it"
_NARROWER = "its bounds come from related operands, or from finer proofs"
_NOT_ASKED = "it is not in question, or cannot fail"
_NOT_SHOWN = "that it is valid comes from related operands, or from finer proofs"


def make_proof(
    problem: Problem, config: ProveConfig, source: Fingerprint, facts: Mapping[str, Any], proved: Collection[str]
) -> ProofFile:
    """Return the proof file of a problem that holds.

    What the checker can compute again has the checker's own bounds; what it cannot has those of an interval analysis,
    and is listed as trusted.

    Args:
        problem: The problem.
        config: The runtimes that it holds for.
        source: The file of its only network.
        facts: What else the proof rests on.
        proved: Names of the operators that are proved.

    Raises:
        UsageError: It is no question that proof files are about.
    """
    _check_question(problem, source)
    (call,) = problem.calls
    path = Path(source.path)
    model = onnx.load(path)
    (region,) = problem.regions
    variables = {variable.name: variable for variable in region}
    boxes = {
        name: Bounds(variables[variable].lower, variables[variable].upper)
        for name, variable in zip(call.graph.input_names, call.variables, strict=True)
        if variable is not None
    }
    writer = _ProofWriter(model, boxes, _find_bounds(call.graph, boxes, config), proved)
    for node in live_nodes(model.graph):
        writer.add(node)
    return ProofFile(
        model=source.sha256,
        facts={
            **facts,
            "derivatives": any(goal.gradient for goal in problem.goals),
            "runtimes": list(config.runtimes),
            "kernels": _hash_of_kernels(),
        },
        inputs=tuple(boxes),
        trusted=writer.trusted,
        bounds=writer.said,
    )


def to_bytes(proof: ProofFile) -> bytes:
    """Return a proof file, to be written."""
    arrays = {"meta": np.frombuffer(json.dumps(proof.meta() | {"digest": proof.digest()}).encode(), dtype=np.uint8)}
    for position, of in enumerate(proof.bounds.values()):
        arrays[f"lower{position}"] = _stored(of.lower)
        if not of.is_point:
            arrays[f"upper{position}"] = _stored(of.upper)
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def _stored(array: np.ndarray) -> np.ndarray:
    """Return an array with size 1 along the dimensions that are merged."""
    return array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]


def _merge(array: np.ndarray) -> np.ndarray:
    """Return an array as a view that has a stride of 0 along the dimensions in which its elements are equal."""
    stored = array
    for axis, size in enumerate(array.shape):
        if size > 1 and (stored == (first := stored.take([0], axis))).all():
            stored = first
    return np.broadcast_to(stored, array.shape)


def _check_question(problem: Problem, source: Fingerprint) -> None:
    why = ""
    if not problem.is_pure_validity:
        why = "the property asks for more than valid operators"
    elif len(problem.calls) != 1 or len(problem.regions) != 1 or None in problem.calls[0].variables:
        why = "the property is about more than one network, or more than one box"
    elif problem.calls[0].graph.source is None or source.path.startswith("<"):
        why = "the network is no whole file"
    elif source.data:
        why = "its weights lie in files of their own"
    if why:
        raise UsageError(f"no proof file can be written: {why}; ask about one model and one box, as check does")


def _hash_of_kernels() -> str:
    """Return a hash of the measurements that bounds rest on."""
    found = hashlib.sha256()
    for path in sorted(FOLDER.glob("*.json")):
        found.update(path.read_bytes())
    return found.hexdigest()


def _find_bounds(graph: Any, boxes: Mapping[str, Bounds], config: ProveConfig) -> Mapping[str, Bounds]:
    """Return what an interval analysis knows of each tensor, by ONNX name."""
    found: dict[str, Bounds] = {}
    for op, arrays in graph.folded:
        found |= {name: Bounds(array, array) for name, array in zip(op.output_names, arrays, strict=False)}
    with torch.no_grad():
        analysis = IntervalAnalysis(graph, runtimes=config.runtimes, keep=True)
        for visited in analysis.folded:
            found |= dict(zip(visited.op.output_names, map(_bounds, visited.outputs), strict=False))
        analysis.run([Interval.box(boxes[name].lower, boxes[name].upper) for name in graph.input_names])
        for op in graph.order:
            bounds = None if _is_split(op) else analysis.bounds_of(op)
            if bounds is not None and bounds.size <= _MOST_ELEMENTS:
                found[tensor_name(op)] = _bounds(bounds)
    return found


def _is_split(op: Operation) -> bool:
    """Tell whether it stands for several tensors, which output selections name."""
    return not isinstance(op, (Input, OutputSelect)) and len([name for name in op.output_names if name]) > 1


def _bounds(bounds: Interval) -> Bounds:
    return Bounds(*(_merge(to_numpy(end)) for end in bounds.expand()))


class _ProofWriter:
    """Gathers what a proof says, node by node."""

    def __init__(
        self,
        model: onnx.ModelProto,
        boxes: Mapping[str, Bounds],
        known: Mapping[str, Bounds],
        proved: Collection[str],
    ) -> None:
        self._opsets = model.opset_import
        self._known = known
        self._proved = proved
        self.said = dict(boxes)
        self.trusted: dict[str, str] = {}
        self._weights = weights_of(model, tuple(boxes))
        self._elements = 0

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node, whose operands have been added.

        Raises:
            UsageError: Nothing is known of a result.
        """
        outputs = [name for name in node.output if name]
        computed = results_of(node, [self._find(name) for name in node.input], self._opsets)
        prover = [self._known.get(name) for name in outputs]
        why = self._distrust(node, computed, prover)
        said = prover if why else computed
        for name, bounds in zip(outputs, said or prover, strict=True):
            if bounds is None:
                raise UsageError(f"no proof file can be written: nothing is known of tensor {name!r}")
            self.said[name] = Bounds(_merge(bounds.lower), _merge(bounds.upper))
            self._elements += _stored(self.said[name].lower).size
        if why:
            self.trusted[outputs[0]] = why
        if self._elements > _MOST_ELEMENTS:
            raise UsageError("no proof file can be written: the network's tensors have too many elements")

    def _distrust(
        self, node: onnx.NodeProto, computed: Sequence[Bounds] | None, prover: Sequence[Bounds | None]
    ) -> str:
        """Return why the checker has to trust a node; "" where it has not."""
        if computed is None:
            if node.name not in self._proved and node.op_type not in ("Constant", "ConstantOfShape"):
                return _NOT_ASKED
            return _NOT_SHOWN if has_rule(node) else _NO_RULE
        narrower = any(
            known is not None and _is_narrower(known, own) for known, own in zip(prover, computed, strict=True)
        )
        return _NARROWER if narrower else ""

    def _find(self, name: str) -> Bounds | None:
        if not name:
            return None
        if name in self.said:
            return self.said[name].flushed()
        return self._weights.get(name)


def _is_narrower(known: Bounds, own: Bounds) -> bool:
    """Tell whether the prover knows clearly more than the checker."""
    if known.lower.shape != own.lower.shape or known.lower.dtype != own.lower.dtype or known.lower.dtype.kind != "f":
        return False
    width = own.upper.astype(np.float64) - own.lower
    inward = np.maximum(known.lower.astype(np.float64) - own.lower, own.upper - known.upper.astype(np.float64))
    return bool((inward > _MARGIN * width).any())
