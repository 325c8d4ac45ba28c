"""Models as the linear analysis bounds them, for the same checks as for the interval analysis."""

from __future__ import annotations

from collections.abc import Sequence

from dnnv.nn.operations import Input

from ranum_falsify.config import RUNTIMES, Runtime
from ranum_falsify.domain import Interval, Visited
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.network import Graph
from ranum_falsify.verify.prove.analyses import analyses_of
from tests.domain.boxes import Feeds
from tests.domain.subjects import Held, Setting, Subject, Verdict, conditions, executed, tensor_of

__all__ = ["LinearSubject"]

_WORK = 3e8


class LinearSubject(Subject):
    """A subject whose tensors are each bounded by a backward pass."""

    def analyse(self, lower: Feeds, upper: Feeds, setting: Setting | None = None) -> Verdict:
        """Analyse the graph over a box."""
        held: dict[str, Held] = {}
        bounds: dict[str, Interval | None] = {}

        def observe(visited: Visited) -> None:
            held[visited.op.name] = conditions(analysis, visited)

        def make(graph: Graph, runtimes: Sequence[Runtime]) -> LinearAnalysis:
            return LinearAnalysis(graph, runtimes=runtimes, work=_WORK, ascent=_WORK)

        analyses = analyses_of(self.graph, RUNTIMES, make)
        analysis = make(self.graph, RUNTIMES)
        boxes = [Interval.box(lower[name], upper[name]) for name in self.graph.input_names]
        outputs = analysis.run(boxes, observe)
        for op in self.graph.order:
            if not isinstance(op, Input):
                known = analysis.bounds_of(op)
                bounded = known is not None and known.is_floating and known.size
                bounds[tensor_of(op)] = analysis.tighten(op) if bounded else known
        return Verdict(bounds, held, executed=executed(analyses, boxes, outputs))
