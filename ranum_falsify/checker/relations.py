"""What operands that come from one another say beyond their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx

from ranum_falsify.checker.bounds import Bounds
from ranum_falsify.checker.elementwise import FUNCTIONS, apply_function
from ranum_falsify.checker.node import NodeView, Operands
from ranum_falsify.checker.sums import axes_of

_CHOOSING = "Reshape Tile Slice Transpose Squeeze Unsqueeze Flatten Expand Identity ReduceMax ReduceMin".split()
_NEARLY, _LEAST = 0.99, 1e-30  # more than roundings take away; far above what is replaced by 0


class Relations:
    """What is known of tensors beside their bounds.

    Peaks: a difference to the own maximum is 0 somewhere along the maximum's axes, and nowhere above; its exponential
    is about 1 there, at least; and a sum of such over these axes is no smaller.

    Distances from 0: Where(|x| < least, other, x) is no nearer to it than both, nor is what moves of such, and products
    and quotients of such are as far as their factors say.
    """

    def __init__(self) -> None:
        self._magnitudes: dict[str, str] = {}  # of what
        self._small: dict[str, tuple[str, float]] = {}  # what is nearer to 0 than that
        self._greatest: dict[str, tuple[str, tuple[int, ...]]] = {}  # of what, along which axes
        self._peaks: dict[str, tuple[tuple[int, ...], float]] = {}
        self._away: dict[str, float] = {}

    def distance_of_second(self, proto: onnx.NodeProto) -> float:
        """Return how far from 0 the second of two operands stays."""
        return self._away.get(proto.input[1], 0.0) if len(proto.input) == 2 else 0.0

    def refine(self, node: NodeView, operands: Operands, results: Sequence[Bounds | None]) -> Sequence[Bounds | None]:
        """Return narrower bounds of what a node makes, and keep what is known of it."""
        found, made, (of, by) = results[0], node.proto.output[0], [*node.proto.input, "", ""][:2]
        if found is None or node.key != node.op or not found.lower.size:
            return results
        self._away[made] = self._distance_of(node, operands)
        x, y = [*operands, None, None][:2]
        if node.op == "Abs":
            self._magnitudes[made] = of
        elif node.op == "Less" and of in self._magnitudes and y is not None:
            self._small[made] = self._magnitudes[of], float(y.lower.min())
        elif node.op == "ReduceMax" and x is not None and node.attribute("keepdims", 1):
            self._greatest[made] = of, axes_of(node, x, y)
        elif node.op == "Sub" and self._greatest.get(by, ("",))[0] == of:
            self._peaks[made] = self._greatest[by][1], 0.0
            return [replace(found, lower=np.minimum(found.lower, 0), upper=np.minimum(found.upper, 0))]
        elif of in self._peaks:
            axes, peak = self._peaks[of]
            if node.op == "Transpose":
                order = [int(one) for one in node.attribute("perm", range(found.lower.ndim)[::-1])]
                self._peaks[made] = tuple(sorted(order.index(axis) for axis in axes)), peak
            elif node.op == "Exp":
                image = apply_function(FUNCTIONS["Exp"], Bounds.of(np.asarray(peak, dtype=found.dtype)))
                self._peaks[made] = axes, float(image.lower)
            elif node.op == "ReduceSum" and x is not None and (x.lower >= 0).all() and axes_of(node, x, y) == axes:
                return [found.at_least(peak)]
        return results

    def _distance_of(self, node: NodeView, operands: Operands) -> float:
        """Return how far from 0 the result of a node stays, beside what its bounds say."""
        given = node.proto.input
        if node.op in _CHOOSING:
            return self._away.get(given[0], 0.0)
        if node.op not in ("Where", "Mul", "Div"):
            return 0.0
        away = [
            0.0 if one is None or not one.lower.size else max(float(one.nearest.min()), self._away.get(name, 0.0))
            for name, one in zip(given, operands, strict=True)
        ]
        if node.op == "Where":
            of, least = self._small.get(given[0], ("", 0.0))
            return _NEARLY * min(least, away[1]) if of == given[2] else 0.0
        greatest = 1.0 if operands[1] is None else max(float(operands[1].size.max()), 1e-30)
        found = _NEARLY * away[0] * (away[1] if node.op == "Mul" else 1 / greatest)
        return found if found > _LEAST else 0.0
