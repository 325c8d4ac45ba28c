"""The analyses of one network: as it is written, and as ONNX Runtime rewrites it before running it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from weakref import WeakKeyDictionary

from dnnv.nn import Operation

from ranum_falsify.config import CUDA, Runtime, library_of
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.kernels import sums_in_half
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.slope_optimisation import SlopeRecord
from ranum_falsify.network import Graph
from ranum_falsify.network.nesting import black_boxes_of
from ranum_falsify.network.optimised import Optimised, optimise
from ranum_falsify.operators.relations.halves import describe_unknown_halves, find_half
from ranum_falsify.operators.relations.rewrites import is_rewritten
from ranum_falsify.operators.relations.unpublished import describe_unchecked, describe_unpublished
from ranum_falsify.verify.prove.checked import Checked, check, find_varying_after
from ranum_falsify.verify.prove.chosen_sizes import MOST_SIZES, join_readings, list_sizes, read_sized
from ranum_falsify.verify.prove.optimised_graph import OptimisedGraph

REWRITING: Runtime = "onnxruntime"
"""The runtime that does not run a network as it is written."""

FOLLOWING = 1 / 3
"""Share of what the first analysis' ascents may take for those of the second, which begin with what these chose."""

_executions: WeakKeyDictionary[Graph, OptimisedGraph | None] = WeakKeyDictionary()


def execution_of(graph: Graph) -> OptimisedGraph | None:
    """Return what ONNX Runtime runs in place of a graph; None if it runs the graph as written."""
    if graph not in _executions:
        found = optimise(graph)
        same = found.graph is not None and not is_rewritten(graph, found.graph)
        _executions[graph] = None if same else OptimisedGraph(graph, found)
    return _executions[graph]


def find_unknown_halves(graph: Graph, runtimes: Iterable[Runtime]) -> str:
    """Return what bounds do not cover where some of the runtimes round sums to half precision; "" for nothing.

    Of ONNX Runtime, see `describe_unknown_halves`; of PyTorch, it is everything.
    """
    libraries = {library_of(runtime) for runtime in runtimes if sums_in_half((runtime,))}
    if "torch" in libraries and (half := find_half(graph)):
        return half
    if REWRITING not in libraries:
        return ""
    execution = execution_of(graph)
    return describe_unknown_halves(graph, None if execution is None else execution.graph)


def _find_unchecked(graph: Graph, runtimes: Iterable[Runtime]) -> str:
    is_asked = any(library_of(runtime) in ("torch", CUDA) for runtime in runtimes)
    return describe_unchecked(graph) if is_asked else ""


def notices_of(network: str, graph: Graph, runtimes: Sequence[Runtime]) -> Iterator[str]:
    """Yield what users should know about the graph that ONNX Runtime, if requested, runs in place of a network."""
    if unchecked := _find_unchecked(graph, runtimes):
        yield (
            f"nothing is proved about network {network} for PyTorch, which may compute {unchecked} otherwise than its "
            "export; write it with other operators, or check the exported model"
        )
    if unknown := find_unknown_halves(graph, runtimes):
        yield f"nothing is proved about network {network} for ARM64, whose kernels bounds do not cover: {unknown}"
    if CUDA in runtimes and (unpublished := describe_unpublished(graph)):
        yield f"nothing is proved about network {network} for PyTorch on CUDA: no error is published of {unpublished}"
    if REWRITING not in runtimes:
        return
    found = optimise(graph)
    if found.refusal:
        yield f"nothing is proved about network {network} for ONNX Runtime, which does not load it: {found.refusal}"
    elif found.fault:
        yield f"nothing is proved about network {network} for ONNX Runtime, which may rewrite it: {found.fault}"
    known = black_boxes_of(graph)
    for title, why in ({} if found.graph is None else black_boxes_of(found.graph)).items():
        if title not in known:
            yield f"nothing is proved about what ONNX Runtime makes of a part of network {network}: {why}"


def analyses_of(
    graph: Graph, runtimes: Sequence[Runtime], make: Callable[[Graph, Sequence[Runtime]], IntervalAnalysis]
) -> Analyses:
    """Return the analyses of a network that the runtimes need; `make` makes that of a graph for some runtimes."""
    written = make(graph, runtimes)
    if unchecked := _find_unchecked(graph, runtimes):
        return Analyses(written, None, OptimisedGraph(graph, Optimised(), f"PyTorch ({unchecked})"))
    if CUDA in runtimes and (unpublished := describe_unpublished(graph)):
        return Analyses(written, None, OptimisedGraph(graph, Optimised(), f"CUDA ({unpublished})"))
    if unknown := find_unknown_halves(graph, runtimes):
        return Analyses(written, None, OptimisedGraph(graph, Optimised(), f"ARM64 ({unknown})"))
    execution = execution_of(graph) if REWRITING in runtimes else None
    if execution is not None and execution.graph is None:
        return Analyses(written, None, execution)
    rewriting = tuple(runtime for runtime in runtimes if library_of(runtime) == REWRITING)

    def read_with(sizes: Mapping[str, int]) -> Analyses | None:
        again = read_sized(graph, sizes)
        runs = None if execution is None or execution.graph is None else read_sized(execution.graph, sizes)
        if again is None or (runs is None) != (execution is None):
            return None
        if runs is None:
            return Analyses(make(again, runtimes), read_with=read_with)
        return Analyses(
            make(again, runtimes), make(runs, rewriting), OptimisedGraph(again, Optimised(graph=runs)), read_with
        )

    executed = None if execution is None or execution.graph is None else make(execution.graph, rewriting)
    return Analyses(written, executed, execution, read_with)


def without_execution(analyses: Analyses, graph: Graph, reason: str) -> Analyses:
    """Return analyses of a network by which, for a reason, nothing is proved for ONNX Runtime."""
    return Analyses(analyses.written, None, OptimisedGraph(graph, Optimised(fault=reason)))


@dataclass(frozen=True)
class Analyses:
    """Both analyses of one network.

    Attributes:
        written: The analysis of the network as written, for all runtimes.
        executed: The analysis of what ONNX Runtime runs in its place; None if that is the same, not known, or not asked
            for.
        execution: How the two correspond; None if the network runs as written.
        read_with: Returns the analyses of the network as if values chose sizes, by name of the tensor; None where it
            cannot be read so.
        room: How many such readings there may be.
    """

    written: IntervalAnalysis
    executed: IntervalAnalysis | None = None
    execution: OptimisedGraph | None = None
    read_with: Callable[[Mapping[str, int]], Analyses | None] = lambda sizes: None
    room: int = MOST_SIZES

    @property
    def all(self) -> tuple[IntervalAnalysis, ...]:
        """Every analysis, that of the network as written first."""
        return (self.written,) if self.executed is None else (self.written, self.executed)

    @property
    def linear(self) -> tuple[LinearAnalysis, ...]:
        """Those with backward linear bounds."""
        return tuple(analysis for analysis in self.all if isinstance(analysis, LinearAnalysis))

    @property
    def is_short(self) -> bool:
        """Whether linear bounds would be closer if they had been given more work."""
        return any(analysis.is_short for analysis in self.linear)

    def check(
        self,
        inputs: Sequence[Interval],
        *,
        only: Collection[int] | None = None,
        tick: Callable[[], None] = lambda: None,
        decides: bool = True,
        cells: bool = True,
    ) -> Checked:
        """Analyse the network over a box and check every condition of its operators, as written and as run.

        Where values choose a size, that is done for each size; only if all operators are to be checked.  For the
        arguments, see `ranum_falsify.verify.prove.checked.check`; the box and the operators are those of the written
        network.
        """
        written = check(self.written, inputs, only=only, tick=tick, decides=decides, cells=cells)
        if written.varying and only is None:
            readings = self._check_readings(written.varying, inputs, tick)
            if readings:
                return join_readings(self.written.graph, readings)
        if self.execution is None:
            return written
        executed = None
        if self.executed is not None:
            asked = None if only is None else self.execution.runs(frozenset(only))
            boxes = self.execution.inputs(self.executed.graph, inputs)
            executed = check(self.executed, boxes, only=asked, tick=tick, decides=decides, cells=cells)
        return self.execution.narrow(written, executed)

    def _check_readings(
        self, varying: Sequence[Operation], inputs: Sequence[Interval], tick: Callable[[], None]
    ) -> list[tuple[Graph, Checked]]:
        """Return what holds in each reading of the network; nothing where readings do not tell all shapes."""
        found = []
        for again in self.read_each(self.written, varying):
            checked = None if again is None else again.check(inputs, tick=tick)
            if again is None or checked is None or checked.varying:
                return []
            found.append((again.written.graph, checked))
        return found

    def read_each(self, analysis: IntervalAnalysis, varying: Sequence[Operation]) -> Iterator[Analyses | None]:
        """Yield the analyses of the network as if values chose a size, for each that is possible after a run.

        `varying` are the operators whose results had no shape of their own in it.  None is yielded in the end where
        there are too many sizes, or not all are known.
        """
        possible = list_sizes(analysis, varying)
        if not 0 < len(possible) <= self.room:
            yield None
            return
        for sizes in reversed(possible):  # of the greatest, least is proved
            again = self.read_with({**analysis.graph.options.sizes, **sizes})
            yield None if again is None else replace(again, room=self.room // len(possible))

    def run(self, inputs: Sequence[Interval]) -> Iterator[IntervalAnalysis]:
        """Yield every analysis as it is after a run over a box, that of the network as written first.

        They are those of the only possible reading where values choose sizes that the box determines.
        """
        for analysis in self.all:
            boxes = inputs
            if analysis is self.executed and self.execution is not None:
                boxes = self.execution.inputs(analysis.graph, inputs)
            if len(boxes) != len(analysis.inputs) or any(
                a is not b for a, b in zip(boxes, analysis.inputs, strict=True)
            ):
                analysis.run(boxes)
            if analysis is self.written and (again := self._find_only_reading()) is not None:
                yield from again.run(inputs)
                return
            yield analysis

    def _find_only_reading(self) -> Analyses | None:
        varying = find_varying_after(self.written)
        readings = list(islice(self.read_each(self.written, varying), 2)) if varying else []
        return readings[0] if len(readings) == 1 else None


def make_linear(
    plain: Analyses,
    towards: Collection[int] | None,
    *,
    work: float,
    ascent: float,
    tick: Callable[[], None],
    speed: float | None = None,
    slopes: SlopeRecord | None = None,
) -> Analyses:
    """Return the same analyses with backward linear bounds; for the arguments, see :class:`LinearAnalysis`.

    All have the given work, but the ascent is that of the first: the second begins with the slopes that it chose.
    """
    shared = SlopeRecord() if slopes is None else slopes

    def make(analysis: IntervalAnalysis, ends: Collection[int] | None) -> LinearAnalysis:
        return LinearAnalysis(
            analysis.graph,
            runtimes=analysis.runtimes,
            work=work,
            ascent=ascent * (1 if analysis is plain.written else FOLLOWING),
            speed=speed,
            towards=ends,
            slopes=shared,
            tick=tick,
        )

    executed = None
    if plain.executed is not None:
        runs = towards
        if towards is not None and plain.execution is not None:
            runs = plain.execution.runs(frozenset(towards))
        executed = make(plain.executed, runs)
    return Analyses(make(plain.written, towards), executed, plain.execution, plain.read_with)
