"""What operands that come from one another say beyond their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ranum_falsify.checker.bounds import Bounds
from ranum_falsify.checker.elementwise import FUNCTIONS, apply_function
from ranum_falsify.checker.node import NodeView, Operands
from ranum_falsify.checker.sums import axes_of

_CHOOSING = frozenset(
    "Reshape Tile Slice Transpose Squeeze Unsqueeze Flatten Expand Identity ReduceMax ReduceMin".split()
)
_NEARLY, _LEAST = 0.99, 1e-30  # more than roundings take away; far above what is replaced by 0


class Relations:
    """What is known of tensors beside their bounds.

    Peaks: a difference to the own maximum is 0 somewhere along the maximum's axes, and nowhere above; its exponential
    is about 1 there, at least; and a sum of such over these axes is no smaller.

    Distances from 0: Where(|x| < least, other, x) is no nearer to it than both, nor is what moves of such, and products
    and quotients of such are as far as their factors say.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, str, Any]] = {}
        self._peaks: dict[str, tuple[tuple[int, ...], float]] = {}
        self._away: dict[str, float] = {}

    def prepare(self, node: NodeView) -> None:
        """Tell a node how far from 0 its second operand stays."""
        if len(node.proto.input) == 2:
            node.away = self._away.get(node.proto.input[1], 0.0)

    def refine(self, node: NodeView, operands: Operands, results: Sequence[Bounds | None]) -> Sequence[Bounds | None]:
        """Return narrower bounds of what a node makes, and keep what is known of it."""
        found, (made, *_), given = results[0], node.proto.output, [*node.proto.input, ""]
        if found is None or node.key != node.op or not found.lower.size:
            return results
        self._away[made] = self._distance_of(node, operands)
        of, floor = given[0], None
        if node.op == "Abs":
            self._made[made] = "Abs", of, None
        elif node.op == "Less" and self._made.get(of, ("",))[0] == "Abs" and operands[1] is not None:
            self._made[made] = "Less", self._made[of][1], float(operands[1].lower.min())
        elif node.op == "ReduceMax" and operands[0] is not None and node.attribute("keepdims", 1):
            self._made[made] = "ReduceMax", of, axes_of(node, operands[0], *operands[1:])
        elif node.op == "Sub" and self._made.get(given[1], ("", ""))[:2] == ("ReduceMax", of):
            self._peaks[made] = self._made[given[1]][2], 0.0
            return [Bounds(np.minimum(found.lower, 0), np.minimum(found.upper, 0), found.form)]
        elif of in self._peaks:
            axes, peak = self._peaks[of]
            if node.op == "Transpose":
                order = [int(one) for one in node.attribute("perm", range(found.lower.ndim)[::-1])]
                self._peaks[made] = tuple(sorted(order.index(axis) for axis in axes)), peak
            elif node.op == "Exp":
                image = apply_function(FUNCTIONS["Exp"], Bounds.of(np.asarray(peak, dtype=found.dtype)))
                self._peaks[made] = axes, float(image.lower)
            elif node.op == "ReduceSum" and operands[0] is not None and (operands[0].lower >= 0).all():
                floor = peak if axes_of(node, operands[0], *operands[1:]) == axes else None
        if floor is None:
            return results
        return [Bounds(np.maximum(found.lower, found.dtype.type(floor)), found.upper, found.form)]

    def _distance_of(self, node: NodeView, operands: Operands) -> float:
        """Return how far from 0 the result of a node stays, beside what its bounds say."""
        given = node.proto.input
        if node.op == "Where" and self._made.get(given[0], ("",))[0] == "Less":
            _, of, least = self._made[given[0]]
            return _NEARLY * min(least, self._distance(given[1], operands[1])) if of == given[2] else 0.0
        if node.op in _CHOOSING:
            return self._away.get(given[0], 0.0)
        if node.op in ("Mul", "Div") and operands[1] is not None:
            a, b = (self._distance(one, of) for one, of in zip(given, operands, strict=True))
            found = _NEARLY * (a * b if node.op == "Mul" else a / max(operands[1].size.max(), 1e-30))
            return float(found) if found > _LEAST else 0.0
        return 0.0

    def _distance(self, name: str, x: Bounds | None) -> float:
        """Return how far from 0 a tensor stays, by what is kept of it and by its bounds."""
        return 0.0 if x is None or not x.lower.size else max(float(x.nearest.min()), self._away.get(name, 0.0))
