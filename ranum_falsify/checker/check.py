"""Follow a model from the question's box: bounds of every tensor, by the checker's own rules, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from ranum_falsify.checker import layers, moving  # noqa: F401 - they enter rules
from ranum_falsify.checker.bounds import Bounds, require
from ranum_falsify.checker.node import RULES, NodeView, Operands
from ranum_falsify.checker.proof import ProofFile, reject
from ranum_falsify.checker.question import ModelQuestion
from ranum_falsify.checker.relations import Relations

_OLDEST = 7
_CANNOT_FAIL = frozenset(
    "Abs And ArgMax ArgMin Ceil Clip Concat Constant DepthToSpace Dropout Equal EyeLike Flatten Floor GlobalMaxPool"
    " Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Max Min Neg NonZero Not Or Relu Round Shape Sign"
    " Size SpaceToDepth Transpose Trilu Unique Where Xor".split()
)
"""Operators that make finite numbers of finite ones, by choosing, comparing or rounding, and accept all."""

_Box = Mapping[str, Bounds]


@dataclass
class Followed:
    """What came of a model.

    Attributes:
        total: How many operators outputs depend on, or can fail.
        failing: Titles of those that can fail.
        open: Those of them that are not shown not to, with the reason.
        parts: Into how many parts the box was cut.
    """

    total: int = 0
    failing: set[str] = field(default_factory=set)
    open: dict[str, str] = field(default_factory=dict)
    parts: int = 0


@np.errstate(all="ignore")
def check_model(question: ModelQuestion, proof: ProofFile, model: onnx.ModelProto | None = None) -> Followed:
    """Show that no operator of a model fails in the question's box.

    Args:
        question: The question.
        proof: Where to cut the box, and what to follow as linear functions.
        model: What runs in place of the question's model, with the same inputs; by default that model itself.

    Raises:
        ProofRejectedError: The cuts are not those of a box.
    """
    model = question.model if model is None else model
    constants = [one for one in model.graph.initializer if one.name not in question.free]
    nothing = np.zeros(0, object)  # no rule is about it
    weights = {
        one.name: Bounds.of(nothing if one.external_data else onnx.numpy_helper.to_array(one)) for one in constants
    }
    for value in model.graph.input:
        reject(value.name not in weights.keys() | question.inputs.keys(), f"nothing is said of input {value.name!r}")
    walk, found = iter(proof.cuts), Followed()
    waiting: list[_Box] = [question.inputs]
    while waiting:
        part = waiting.pop()
        cut = next(walk, None)
        if cut is not None:
            waiting += _halves(part, *cut)
            continue
        found.parts += 1
        once = again = _follow(model, {**weights, **part}, ())
        if once.open and proof.directions:
            again = _follow(model, {**weights, **part}, proof.directions)
        found.total = once.total
        found.failing |= once.failing & again.failing
        found.open = {title: why for title, why in again.open.items() if title in once.open} | found.open
        if len(found.open) == len(found.failing) > 0:
            break  # nothing is shown; the other parts cost time
    reject(next(walk, None) is not None and not waiting, "it has more cuts than its box has parts")
    return found


def _halves(part: _Box, name: str, position: int, value: float) -> list[_Box]:
    """Return the lower and the upper side, which share the value where they meet."""
    box = part.get(name, Bounds.of(np.zeros(0)))
    reject(not 0 <= position < box.lower.size or box.dtype.kind == "b", f"it cuts {name!r} where that has no element")
    inside = box.lower.reshape(-1)[position] <= value <= box.upper.reshape(-1)[position]
    reject(not inside, f"it cuts {name!r} outside of its box")
    lower, upper = box.lower.copy(), box.upper.copy()
    upper.reshape(-1)[position] = lower.reshape(-1)[position] = np.asarray(value).astype(box.dtype)
    return [{**part, name: Bounds(box.lower, upper)}, {**part, name: Bounds(lower, box.upper)}]


def _follow(model: onnx.ModelProto, given: _Box, directions: Collection[str]) -> Followed:
    """Return what bounds show of one part of the box."""
    nodes, functions = list(live_nodes(model.graph)), {(one.domain, one.name) for one in model.functions}
    reads, relations = Counter(name for node in nodes for name in node.input), Relations()
    found, known, named = Followed(total=len(nodes)), dict[str, Bounds | None](), 0

    def keep(name: str, one: Bounds | None) -> None:
        nonlocal named
        if one is not None and one.is_float and name in directions:
            form, named = one.linear.named(named)
            one = Bounds(one.lower, one.upper, form)
        known[name] = one

    for name, box in given.items():
        keep(name, box.flushed())
    for proto in nodes:
        title = f"{proto.name or proto.output[0]} ({proto.op_type})"
        operands = [known.get(name) if name else None for name in proto.input]
        unknown = [name for name, operand in zip(proto.input, operands, strict=True) if name and operand is None]
        node = NodeView(proto, model.opset_import, relations.distance_of_second(proto))
        is_other = (proto.domain, proto.op_type) in functions
        results = None if unknown or is_other else bound(node, operands)
        if results is None:
            why = "bounds of its operands do not show it, or it has no rule"
            found.open.setdefault(title, f"nothing is known of {unknown[0]!r}" if unknown else why)
        else:
            results = relations.refine(node, operands, results)
        if results is None or can_fail(proto):
            found.failing.add(title)
        for name, one in zip(proto.output, [*(results or ()), *[None] * len(proto.output)], strict=False):
            keep(name, one)
        for name in proto.input:
            reads[name] -= 1
            if not reads[name]:
                known.pop(name, None)
    return found


def bound(node: NodeView, operands: Operands) -> Sequence[Bounds | None] | None:
    """Return bounds of the results of a node, None where no rule shows that they are finite."""
    given = [one for one in operands if one is not None]
    try:
        rule = moving.make_exact if moving.is_exact(node, given) else RULES[node.key]
        require(_OLDEST <= node.opset <= onnx.defs.onnx_opset_version(), *(one.is_sound for one in given))
        found = rule(node, *operands)
        results = [one and one.flushed() for one in ([found] if isinstance(found, Bounds) else found)]
        node.require_read()
    except Exception:  # a form of the operator that its rule, or ONNX's evaluator, does not know
        return None
    return results if results and all(one is None or one.is_sound for one in results) else None


def can_fail(proto: onnx.NodeProto) -> bool:
    """Tell whether an operator can make NaN or infinity of finite numbers, or end a run."""
    return proto.domain not in ("", "ai.onnx") or proto.op_type not in _CANNOT_FAIL


def live_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that an output depends on, or that can fail, in the graph's order."""
    needed, live = {value.name for value in graph.output}, []
    for node in reversed(graph.node):
        if needed.intersection(node.output) - {""} or can_fail(node):
            live.append(node)
            needed.update(node.input)
    yield from reversed(live)
