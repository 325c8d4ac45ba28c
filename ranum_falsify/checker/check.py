"""Follow a model from the question's box: bounds of every tensor, by the checker's own rules, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from ranum_falsify.checker import layers  # noqa: F401 - it enters rules
from ranum_falsify.checker.bounds import Bounds, least, require
from ranum_falsify.checker.moving import EXACT, axes_of, make_exact
from ranum_falsify.checker.node import RULES, NodeView, Operands
from ranum_falsify.checker.question import ModelQuestion, ProofFile, reject

_OLDEST = 7
_CANNOT_FAIL = frozenset(  # operators that make finite numbers of finite ones, and accept all
    "Abs And ArgMax ArgMin Ceil Clip Concat Constant DepthToSpace Dropout Equal EyeLike Flatten Floor GlobalMaxPool"
    " Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Max Min Neg NonZero Not Or Relu Round Shape Sign"
    " Size SpaceToDepth Transpose Trilu Unique Where Xor".split()
)
_CHOOSING = "Reshape Tile Slice Transpose Squeeze Unsqueeze Flatten Expand Identity ReduceMax ReduceMin".split()
_NEARLY = 0.99  # more than a rounding takes away

_Box = Mapping[str, Bounds]


@dataclass
class Followed:
    """What came of a model."""

    total: int = 0  # operators that outputs depend on, or that can fail
    failing: set[str] = field(default_factory=set)  # titles of those that can fail
    open: dict[str, str] = field(default_factory=dict)  # those of them that are not shown not to, with the reason
    parts: int = 0  # of the box


@np.errstate(all="ignore")
def check_model(question: ModelQuestion, proof: ProofFile, model: onnx.ModelProto | None = None) -> Followed:
    """Show that no operator of a model fails in the question's box, or of what runs in its place, with the same inputs.

    Raises:
        ProofRejectedError: The proof's cuts are not those of a box.
    """
    model = question.model if model is None else model
    weights = dict[str, Bounds]()
    for one in model.graph.initializer:
        is_outside = bool(one.external_data)  # no rule is about objects
        weights[one.name] = Bounds.of(np.zeros(0, object) if is_outside else onnx.numpy_helper.to_array(one))
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
    reads, facts = Counter(name for node in nodes for name in node.input), dict[str, tuple[Any, ...]]()
    found, known, named = Followed(total=len(nodes)), dict[str, Bounds | None](), 0

    def keep(name: str, one: Bounds | None) -> None:
        nonlocal named
        known[name] = one
        if one is not None and one.is_float and name in directions:
            known[name], named = one.named(named)

    for name, box in given.items():
        keep(name, box.flushed())
    for proto in nodes:
        title = f"{proto.name or proto.output[0]} ({proto.op_type})"
        operands = [known.get(name) if name else None for name in proto.input]
        unknown = [name for name, operand in zip(proto.input, operands, strict=True) if name and operand is None]
        node, is_other = NodeView(proto, model.opset_import), (proto.domain, proto.op_type) in functions
        results = None if unknown or is_other else bound(node, operands)
        if results is None:
            why = "bounds of its operands do not show it, or it has no rule"
            found.open.setdefault(title, f"nothing is known of {unknown[0]!r}" if unknown else why)
        elif results[0] is not None and node.key == node.op and results[0].lower.size:
            results = [_refine(facts, node, operands, results[0]), *results[1:]]
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
        is_exact = node.key in EXACT and all(one.dtype.kind in "biu" and one.is_point for one in given)
        require(_OLDEST <= node.opset <= onnx.defs.onnx_opset_version(), *(one.is_sound for one in given))
        found = (make_exact if is_exact else RULES[node.key])(node, *operands)
        results = [one and one.flushed() for one in found]
        node.require_read()
    except Exception:  # a form of the operator that its rule, or ONNX's evaluator, does not know
        return None
    return results if results and all(one is None or one.is_sound for one in results) else None


def _refine(facts: dict[str, tuple[Any, ...]], node: NodeView, operands: Operands, found: Bounds) -> Bounds:
    """Return narrower bounds of what a node makes by what operands come from, and keep what is known of it.

    A difference to the own maximum is 0 somewhere along the maximum's axes, and nowhere above; its exponential is about
    1 there, at least; and a sum of such over these axes is no smaller.

    Where(|x| < least, other, x) is no nearer to 0 than both, nor is what moves of such, and products and quotients of
    such are as far as their factors say.
    """
    made, (of, by, last) = node.proto.output[0], [*node.proto.input, "", "", ""][:3]
    x, y = [*operands, None, None][:2]

    def away(place: int) -> float:
        one = operands[place]
        return float(one.nearest.min()) if one and one.lower.size else 0.0

    match node.op, facts.get(of, ()), facts.get(by, ()):
        case "Abs", _, _:
            facts[made] = "magnitude", of
        case "Less", ("magnitude", tensor), _ if y:
            facts[made] = "small", tensor, float(y.lower.min())
        case "Where", ("small", tensor, edge), _ if tensor == last:
            found = replace(found, away=_NEARLY * min(edge, away(1)))
        case "ReduceMax", _, _ if x and node.attribute("keepdims", 1):
            facts[made] = "greatest", of, axes_of(node, x, y)
        case "Sub", _, ("greatest", tensor, axes) if tensor == of and found.is_float:
            facts[made] = "peak", axes, 0.0
            found = found.clip(high=0.0)
        case "Transpose", ("peak", axes, peak), _:
            order = [int(one) for one in node.attribute("perm", range(found.lower.ndim)[::-1])]
            facts[made] = "peak", tuple(sorted(order.index(axis) for axis in axes)), peak
        case "Exp", ("peak", axes, peak), _:
            facts[made] = "peak", axes, float(node.call("Exp", Bounds.of(found.dtype.type(peak))).lower)
        case "ReduceSum", ("peak", axes, peak), _ if x and (x.lower >= 0).all() and axes_of(node, x, y) == axes:
            found = found.clip(peak)
    if node.op in _CHOOSING:
        found = replace(found, away=away(0))
    elif node.op in ("Mul", "Div") and y and found.is_float:
        far = _NEARLY * away(0) * (away(1) if node.op == "Mul" else 1 / max(float(y.size.max()), 1e-30))
        found = replace(found, away=far if far > 64 * least(found.dtype) else 0.0)  # nearer ones round to others
    return found


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
