"""What operands that come from one another say beyond their bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ranum_falsify.checker.bounds import Bounds
from ranum_falsify.checker.functions import FUNCTIONS, apply
from ranum_falsify.checker.node import NodeView, Operands
from ranum_falsify.checker.sums import axes_of

_CHOOSING = frozenset(
    "Reshape Tile Slice Transpose Squeeze Unsqueeze Flatten Expand Identity ReduceMax ReduceMin".split()
)
_NEARLY, _LEAST = 0.99, 1e-30  # more than roundings take away; far above what is replaced by 0


class Relations:
    """What is known of tensors beside their bounds.

    Peaks are what the greatest element of each section of a tensor comes to, at least.

    A difference to the own maximum is 0 somewhere, and nowhere above; its exponential is about 1 there; and a sum of
    such is no smaller.
    """

    def __init__(self) -> None:
        self._axes: dict[str, tuple[int, ...]] = {}
        self._least: dict[str, float] = {}
        self._maxima: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._sizes: dict[str, str] = {}
        self._small: dict[str, tuple[str, float]] = {}
        self._away: dict[str, float] = {}

    def prepare(self, node: NodeView) -> None:
        """Tell a node how far from 0 its second operand stays."""
        if len(node.proto.input) == 2:
            node.away = self._away.get(node.proto.input[1], 0.0)

    def _guard(self, node: NodeView, operands: Operands) -> None:
        """Keep that Where(|x| < least, other, x) is no nearer to 0 than both, and what is made of such."""
        made, given, name = node.proto.output[0], node.proto.input, node.proto.op_type
        if name == "Abs":
            self._sizes[made] = given[0]
        elif name == "Less" and given[0] in self._sizes and operands[1] is not None and operands[1].lower.size:
            self._small[made] = self._sizes[given[0]], float(operands[1].lower.min())
        elif name == "Where" and given[0] in self._small:
            of, least = self._small[given[0]]
            if of == given[2]:
                self._away[made] = _NEARLY * min(least, self._distance(given[1], operands[1]))
        elif name in _CHOOSING:
            self._away[made] = self._away.get(given[0], 0.0)
        elif name in ("Mul", "Div"):
            a, b = (self._distance(one, of) for one, of in zip(given, operands, strict=True))
            far = operands[1].real.size.max() if operands[1] is not None else np.inf
            found = _NEARLY * (a * b if name == "Mul" else a / max(far, 1e-30))
            self._away[made] = found if found > _LEAST else 0.0

    def _distance(self, name: str, x: Bounds | None) -> float:
        """Return how far from 0 a tensor stays, by what is kept of it and by its bounds."""
        if x is None or not x.lower.size:
            return 0.0
        apart = np.where((x.lower <= 0) & (x.upper >= 0), 0.0, np.minimum(np.abs(x.real.low), np.abs(x.real.high)))
        return max(float(apart.min()), self._away.get(name, 0.0))

    def refine(self, node: NodeView, operands: Operands, results: Sequence[Bounds | None]) -> Sequence[Bounds | None]:
        """Return narrower bounds of what a node makes, and keep what is known of it."""
        found, name = results[0], node.proto.op_type
        if found is None or node.proto.domain not in ("", "ai.onnx") or not found.lower.size:
            return results
        self._guard(node, operands)
        if not found.is_float:
            return results
        made, given = node.proto.output[0], node.proto.input
        if name == "ReduceMax" and operands[0] is not None and node.attribute("keepdims", 1):
            self._maxima[made] = given[0], axes_of(node, operands, operands[0].lower.ndim)
        elif name == "Sub" and self._maxima.get(given[1], ("",))[0] == given[0]:
            self._keep(made, self._maxima[given[1]][1], 0.0)
            return [Bounds(np.minimum(found.lower, found.dtype.type(0)), np.minimum(found.upper, found.dtype.type(0)))]
        elif name == "Transpose" and given[0] in self._least:
            order = [int(one) for one in node.attribute("perm", range(found.lower.ndim)[::-1])]
            self._keep(made, tuple(sorted(order.index(axis) for axis in self._axes[given[0]])), self._least[given[0]])
        elif name == "Exp" and given[0] in self._least:
            point = np.asarray(self._least[given[0]], dtype=found.dtype)
            image = apply(FUNCTIONS[name], Bounds(point, point))
            if image is not None:
                self._keep(made, self._axes[given[0]], float(image.lower))
        elif name == "ReduceSum" and given[0] in self._least and operands[0] is not None:
            same = axes_of(node, operands, operands[0].lower.ndim) == self._axes[given[0]]
            if same and (operands[0].lower >= 0).all():
                return [Bounds(np.maximum(found.lower, found.dtype.type(self._least[given[0]])), found.upper)]
        return results

    def _keep(self, name: str, axes: tuple[int, ...], least: float) -> None:
        self._axes[name], self._least[name] = axes, least
