"""Models as the linear analysis bounds them, for the same checks as those of the interval analysis."""

from __future__ import annotations

from dnnv.nn.operations import Input

from ranum_falsify.domain import Interval, Visited
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from tests.domain.boxes import Feeds
from tests.domain.subjects import Held, Setting, Subject, Verdict, conditions, tensor_of

__all__ = ["LinearSubject"]

_WORK = 3e8


class LinearSubject(Subject):
    """A subject whose tensors are bounded by a backward pass each."""

    def analyse(self, lower: Feeds, upper: Feeds, setting: Setting | None = None) -> Verdict:
        """Analyse the graph over a box."""
        held: dict[str, Held] = {}
        bounds: dict[str, Interval | None] = {}

        def observe(visited: Visited) -> None:
            held[visited.op.name] = conditions(visited)

        analysis = LinearAnalysis(self.graph, work=_WORK)
        analysis.run([Interval.box(lower[name], upper[name]) for name in self.graph.input_names], observe)
        for op in self.graph.order:
            if not isinstance(op, Input):
                known = analysis.bounds_of(op)
                bounded = known is not None and known.is_floating and known.size
                bounds[tensor_of(op)] = analysis.tightened(op) if bounded else known
        return Verdict(bounds, held)
