"""A node of a model, as rules see it, the table of the rules by operator, and how these follow linear forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ranum_falsify.checker.bounds import MOST_ELEMENTS, Bounds, least, require, unit

Operands = Sequence[Bounds | None]  # of a node; None for those that it is not given
Rule = Callable[..., Any]  # from a node and its operands to bounds of results; raises where it shows nothing of them
RULES: dict[str, Rule] = {}  # by ONNX operator, with its domain where it is another one
_IDLE = frozenset(  # attributes that change nothing of what rules show that do not read them
    "linear_before_reset momentum noop_with_empty_axes ratio saturate seed select_last_index stash_type"
    " storage_order".split()
)
_MOST_PIECES, _MOST_POINTS = 256, 1 << 20
_STRAIGHT = ("Relu", "LeakyRelu", "PRelu", "Abs", "Clip", "Max", "Min")
_PRODUCTS = ("Mul", "MatMul", "Gemm", "FusedMatMul", "Conv", "ConvTranspose")


def rule(names: str, follow: Callable[..., list[Bounds]] | None = None) -> Callable[[Rule], Rule]:
    """Enter a rule for some operators, and how it follows linear forms, `by_lines` or `by_planes`."""

    def enter(one: Rule) -> Rule:
        def entered(node: NodeView, *operands: Bounds | None) -> list[Bounds | None]:
            found = one(node, *operands)
            return [found] if isinstance(found, Bounds) else found

        RULES.update(dict.fromkeys(names.split(), partial(follow, entered) if follow else entered))
        return one

    return enter


class NodeView:
    """A node, with what its model says about it.

    Its operator is `op` without the domain, and `key` with the domain where that is none of ONNX's own; `opset` is the
    version of these.
    """

    def __init__(self, proto: onnx.NodeProto, opsets: Sequence[onnx.OperatorSetIdProto]) -> None:
        self.proto, self.op = proto, proto.op_type
        self.key = self.op if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{self.op}"
        self.opset = next((one.version for one in opsets if one.domain in ("", "ai.onnx")), 0)
        self._given, self._read = {one.name: one for one in proto.attribute}, set(_IDLE)

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute; numbers are float32, those of a default, too."""
        self._read.add(name)
        default = float(np.float32(default)) if isinstance(default, float) else default
        value = onnx.helper.get_attribute_value(self._given[name]) if name in self._given else default
        return value.decode() if isinstance(value, bytes) else value

    def require_read(self) -> None:
        """Raise where an attribute that no rule asked for is not what it is by default."""
        for name in self._given.keys() - self._read:
            default = onnx.defs.get_schema(self.op, self.opset, self.proto.domain).attributes[name].default_value
            require(onnx.helper.get_attribute_value(default) == onnx.helper.get_attribute_value(self._given[name]))

    def like(self, op: str, **attributes: Any) -> NodeView:
        """Return a node of another operator in its place, with those of its attributes that this has, too."""
        shared = (self._given.keys() & onnx.defs.get_schema(op, self.opset).attributes.keys()) - attributes.keys()
        proto = onnx.helper.make_node(op, [f"x{i}" for i in range(9)], self.proto.output[:1], **attributes)
        proto.attribute.extend(self._given[name] for name in shared)
        self._read |= shared
        return NodeView(proto, [onnx.helper.make_opsetid("", self.opset)])

    def call(self, op: str, *operands: Bounds | None, **attributes: Any) -> Bounds:
        """Return bounds of what another operator would make in its place."""
        node = self.like(op, **attributes)
        found: Bounds = RULES[op](node, *operands)[0]
        node.require_read()
        require(found.is_sound)
        return found.flushed()

    def run(self, *arrays: Any) -> list[np.ndarray]:
        """Return what the reference evaluator of ONNX makes of operands."""
        self._read |= onnx.defs.get_schema(self.op, self.opset).attributes.keys()
        require("" not in self.proto.output)
        if self.op == "GatherElements":  # the evaluator's own takes 32 places at most
            x, at, axis = np.asarray(arrays[0]), np.asarray(arrays[1]), int(self.attribute("axis", 0))
            require(np.delete(x.shape, axis) == np.delete(at.shape, axis))
            return [np.take_along_axis(x, at % x.shape[axis], axis)]
        names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
        feeds = {name: np.asarray(array) for name, array in zip(names, arrays, strict=True) if name}
        kind = onnx.helper.np_dtype_to_tensor_dtype
        given = [onnx.helper.make_tensor_value_info(name, kind(one.dtype), one.shape) for name, one in feeds.items()]
        proto = onnx.NodeProto(op_type=self.op, domain=self.proto.domain, input=names, output=self.proto.output)
        proto.attribute.extend(self.proto.attribute)
        made = [onnx.ValueInfoProto(name=name) for name in proto.output]
        graph = onnx.helper.make_graph([proto], "node", given, made)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)])
        found = [np.asarray(one) for one in ReferenceEvaluator(model).run(None, feeds)]
        for one, value in zip(found, onnx.shape_inference.infer_shapes(model).graph.output, strict=True):
            dims = value.type.tensor_type.shape.dim  # by a program of its own
            require(not dims or [dim.dim_value or n for dim, n in zip(dims, one.shape, strict=True)] == [*one.shape])
        return found


def by_lines(rule: Rule, node: NodeView, *operands: Bounds | None) -> list[Bounds]:
    """Keep what a rule makes, element by element, of one operand that has planes between two parallel lines.

    Lines of any slope do.  How far results stray from them comes of the rule itself, for pieces of what the operand
    ranges over, or for the points between which the function is straight.
    """
    (found,) = rule(node, *operands)
    names = [name if one and one.rest else "" for name, one in zip(node.proto.input, operands, strict=False)]
    x = next((one for one in operands if one and one.rest), None)
    if len({*names, ""}) != 2 or x is None or x.rest is None or x.shape != found.shape or not x.lower.size:
        return [found]
    others = [one for one, name in zip(operands, names, strict=True) if one and not name]
    pieces = _cut_up(node.op, x, others).flushed()
    y = rule(node, *(pieces if name else one for one, name in zip(operands, names, strict=True)))[0].real
    width = x.real.upper - x.real.lower
    slope = np.where(width > 0, (y.upper[-1] - y.lower[0]) / np.where(width > 0, width, 1.0), 0.0)
    gap = y - Bounds.of(slope) * pieces
    rest = Bounds.of(slope) * x.rest + Bounds(gap.lower.min(0), gap.upper.max(0))
    return [found.lined(x.planes * slope, rest)]


def _cut_up(op: str, x: Bounds, others: Sequence[Bounds]) -> Bounds:
    """Return pieces of an interval, one after another along a new first axis."""
    if op in _STRAIGHT and (others or op != "Clip") and all(one.is_point for one in others):
        # It is straight between 0 and where another operand is chosen; of old, Clip had attributes for operands.
        inner = [np.clip(kink, x.lower, x.upper) for kink in (x.dtype.type(0), *(one.lower for one in others))]
        points = np.sort(np.stack([x.lower, *inner, x.upper]), axis=0)
        return Bounds(points, points)
    count = int(np.clip(_MOST_POINTS // x.lower.size, 4, _MOST_PIECES))
    shares = np.linspace(0, 1, count + 1).reshape(-1, *[1] * x.lower.ndim)
    points = np.clip((x.real.lower + (x.real.upper - x.real.lower) * shares).astype(x.dtype), x.lower, x.upper)
    points[0], points[-1] = x.lower, x.upper
    return Bounds(points[:-1], points[1:], away=x.away)


def by_planes(rule: Rule, node: NodeView, *operands: Bounds | None) -> list[Bounds]:
    """Apply a rule of which sums come to sums, in float64, to what is left of operands, and to each of their planes.

    A product of two that have planes, about their middles n and m, is n b + a m + (a - n) (b - m) - n m.
    """
    places = {place for place, one in enumerate(operands) if one and one.rest}
    if node.op in ("Div", "BatchNormalization"):
        places &= {0}
    a, b = [*operands, None][:2]
    if (node.op == "Mul" and a is b) or (node.op == "Div" and not places):
        return by_lines(rule, node, *operands)
    results: list[Bounds] = rule(node, *operands)
    count = max((len(one.planes) for place, one in enumerate(operands) if place in places and one), default=0)
    if not count or count * sum(one.lower.size for one in results) > MOST_ELEMENTS:
        return results

    def apply(parts: Mapping[int, Bounds]) -> list[Bounds]:
        reals = [one and (one.real if one.is_float else one) for one in operands]
        return [one.widen() for one in rule(node, *(parts.get(place, one) for place, one in enumerate(reals)))]

    def follow(places: set[int], fixed: Mapping[int, Bounds]) -> list[Bounds]:
        formed = {place: one for place, one in enumerate(operands) if one and place in places}
        nothing = {**fixed, **{place: Bounds.of(np.zeros(one.shape)) for place, one in formed.items()}}
        zeros, rests = apply(nothing), apply({**fixed, **{place: one.rest or one for place, one in formed.items()}})
        planes, errors = [np.zeros((count, *one.shape)) for one in zeros], [np.zeros(one.shape) for one in zeros]
        for row in range(count):
            parts = {place: Bounds.of(one.planes[row]) for place, one in formed.items() if row < len(one.planes)}
            for made, zero, plane, error in zip(apply({**nothing, **parts}), zeros, planes, errors, strict=True):
                plane[row], stray = (made - zero).ball
                error += stray
        wide = [rest.widen(error * (1 + 1e-6)) for rest, error in zip(rests, errors, strict=True)]
        return [replace(one, planes=plane, rest=one) for one, plane in zip(wide, planes, strict=True)]

    if node.op in _PRODUCTS and places >= {0, 1} and a and b:
        n, m = Bounds.of(a.ball[0]), Bounds.of(b.ball[0])
        (left,), (right,) = follow(places - {1}, {1: m}), follow({1}, {0: n})
        (crossed,), (bias,), (middle,) = map(apply, ({0: a - n, 1: b - m}, {0: n - n, 1: m - m}, {0: n, 1: m}))
        followed = [left.lined(left.planes + right.planes, left + right + crossed - bias - middle)]
    else:
        followed = follow(places, {})
    margins = [one.stray + 2 * unit(one.dtype) * one.size + least(one.dtype) for one in results]
    rests = [one.rest and one.rest.widen(margin) for one, margin in zip(followed, margins, strict=True)]
    triples = zip(results, followed, rests, strict=True)
    return [replace(one, planes=linear.planes, rest=rest) for one, linear, rest in triples]
