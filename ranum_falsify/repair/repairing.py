"""Find repairs: propose, prove, measure, rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import onnx

from ranum_falsify.config import FixConfig, SearchConfig
from ranum_falsify.errors import ReplayError, UsageError, is_interruption
from ranum_falsify.network.nesting import black_boxes_of
from ranum_falsify.network.optimised import optimise
from ranum_falsify.process.deadline import OutOfTime
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.repair.abstraction.clipping import find_clips, list_clippable
from ranum_falsify.repair.editing import clip_change, guard_change, insert_clips, rewrite_changes
from ranum_falsify.repair.guard_search import Guarded, GuardSearch
from ranum_falsify.repair.measuring import OutputMeter, count_operations
from ranum_falsify.repair.repair import Change, Kind, Repair, diff_models, rank
from ranum_falsify.repair.rewrites import Rewritten, find_rewrites
from ranum_falsify.repair.subject import Assessment, GuardSites, RepairSubject
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.search.result import Answer
from ranum_falsify.verify.search.search import Progress

_SHARE = 0.2
"""Part of the time that is left that a search for counterexamples, or the draws of inputs, may take."""
_NOWHERE = {
    "input": "no input has a range in the property",
    "weight": "the property leaves no weights free; free(N, 'NAME') in place of N frees one",
}
_SHOWN = 12  # nodes
_LARGEST = 2_000_000_000  # bytes
_LEAST, _MOST = 1.0, 5.0  # seconds


@dataclass(frozen=True, kw_only=True)
class Repairs:
    """What was found.

    Attributes:
        repairs: The repairs, the best first.
        hazards: The operators that were to be repaired.
        answer: What is known of the original.
        is_complete: Whether there was time for all that was to be tried.
    """

    repairs: Sequence[Repair]
    hazards: Sequence[str]
    answer: Answer
    is_complete: bool = True


@dataclass(frozen=True)
class _Proposal:
    """A changed model that may be a repair."""

    changes: Sequence[Change]
    model: onnx.ModelProto


class Repairing:
    """The search for repairs of one model."""

    def __init__(self, subject: RepairSubject, config: FixConfig, progress: Callable[[Progress], None]) -> None:
        self._subject = subject
        self._config = config
        self._progress = progress
        self._began = time.monotonic()
        self._meter = OutputMeter(subject, samples=config.samples, seconds=self._part(), seed=config.seed)
        self._nodes = {op.name: op for op in subject.graph.nodes}
        self._sites = subject.sites
        self._hazards: Sequence[str] = ()
        self._others = frozenset[str]()
        self._ignored = frozenset[str]()

    def run(self) -> Repairs:
        """Find repairs.

        Raises:
            UsageError: There is nothing to repair, or no node of a given name.
            ReplayError: ONNX Runtime cannot run the model.
        """
        self._check_nodes()
        answer = self._search(self._subject.problem)
        repairs: list[Repair] = []
        is_complete = True
        try:
            self._hazards = self._find_hazards(answer)
            for proposal in self._propose(repairs):
                found = self._settle(proposal)
                if found is not None:
                    repairs.append(found)
        except OutOfTime:
            is_complete = False
        except (KeyboardInterrupt, RuntimeError) as error:
            if not is_interruption(error):
                raise
            is_complete = False
        hazards = tuple(dict.fromkeys(map(self._sites.title_of, self._hazards)))
        return Repairs(repairs=rank(repairs), hazards=hazards, answer=answer, is_complete=is_complete)

    # what is to be repaired -------------------------------------------------------------------------------------------

    def _check_nodes(self) -> None:
        asked = [("--node", node) for node in self._config.nodes or () if not self._sites.find(node)]
        asked += [("--at", node) for node in self._config.at if node not in FixConfig.at]
        for option, node in asked:
            if node not in self._nodes:
                some = ", ".join(list(self._nodes)[:_SHOWN])
                raise UsageError(f"{option} {node}: the model has no such node; it has {some}")
        places = {*list_clippable(self._subject.problem).values(), "operand", *self._nodes}
        if self._config.by == ("clip",) and not places.intersection(self._config.at):
            reasons = [reason for place, reason in _NOWHERE.items() if place in self._config.at]
            raise UsageError(f"--at {', '.join(self._config.at)}: there is nothing to clip: {' and '.join(reasons)}")

    def _find_hazards(self, answer: Answer) -> Sequence[str]:
        """Return the operators to repair; those that stay as they are may stay open."""
        unproved = [operator.node for operator in answer.operators if operator.verdict != "proved"]
        open_ones = [node for node in self._subject.original.open if self._sites.outermost(node) in unproved]
        if answer.verdict == "holds":
            raise UsageError("fix: there is nothing to repair: all operators are proved already")
        if not open_ones:
            raise UsageError(
                "fix: what is not proved comes after operators that the property does not ask about; ask about all"
            )
        wanted = self._config.nodes
        asked = None if wanted is None else {name for node in wanted for name in (node, *self._sites.find(node))}
        hazards = [n for n in open_ones if asked is None or n in asked or self._sites.outermost(n) in asked]
        if not hazards:
            named, left = ", ".join(wanted or ()), ", ".join(map(self._sites.title_of, open_ones[:_SHOWN]))
            raise UsageError(f"fix: there is nothing to repair: {named} is proved already; open: {left}")
        self._others = frozenset(open_ones) - frozenset(hazards)
        # Finer proofs than those of proposals close these; such a proof decides in the end.
        self._ignored = self._others | (frozenset(self._subject.original.open) - frozenset(open_ones))
        return hazards

    # proposals --------------------------------------------------------------------------------------------------------

    def _propose(self, found: Sequence[Repair]) -> Iterator[_Proposal]:
        """Yield changed models, the gentlest first; the later ones only where none before them is proved."""
        by = self._config.by
        if "rewrite" in by:
            self._report("rewrites", 0.2)
            rewritten = find_rewrites(self._subject, self._hazards)
            if rewritten is not None:
                yield from self._after_rewriting(rewritten)
        if "guard" in by:
            self._report("guards", 0.4)
            search = GuardSearch(self._subject, ignored=self._ignored)
            limiting = search.run()
            if limiting is not None:
                yield _guarded(limiting, "guard")
                adding = search.add_instead(limiting)
                if adding is not None:
                    yield _guarded(adding, "guard")
                if any(guard.upper is not None and guard.kept()[0] < 1 for guard in limiting.guards):
                    scaling = GuardSearch(self._subject, scales=True, ignored=self._ignored).run()
                    if scaling is not None and any(guard.halvings for guard in scaling.guards):
                        yield _guarded(scaling, "guard")
        is_found = any(repair.standing == "proved" and not repair.loss for repair in found)
        if "clip" in by and (by == ("clip",) or not is_found):
            self._report("clips", 0.6)
            yield from self._clips()

    def _after_rewriting(self, rewritten: Rewritten) -> Iterator[_Proposal]:
        """Yield a rewritten model, with guards on what is still open if guards may be used."""
        changes = list(rewrite_changes(rewritten.steps, self._subject.model))
        if self._ignored.issuperset(rewritten.assessment.open):
            yield _Proposal(changes, rewritten.model)
        elif "guard" in self._config.by:
            inner = self._subject.derive(rewritten.assessment)
            guarded = GuardSearch(inner, ignored=self._ignored).run()
            if guarded is not None:
                yield _Proposal([*changes, *_changes_of(guarded, "guard")], guarded.model)

    def _clips(self) -> Iterator[_Proposal]:
        at = self._config.at
        if "operand" in at:
            clipped = GuardSearch(self._subject, is_clip=True, ignored=self._ignored).run()
            if clipped is not None:
                yield _guarded(clipped, "clip")
        places = list_clippable(self._subject.problem)
        tensors = [name for name, place in places.items() if place in at]
        tensors += [name for node in at if node in self._nodes for name in self._nodes[node].output_names if name]
        if not tensors:
            return
        nodes = None if self._config.nodes is None else [self._sites.outermost(node) for node in self._hazards]
        ends = self._subject.deadline.share(1 / 2)
        kept = find_clips(self._subject.problem, tensors, nodes=nodes, runtimes=self._config.runtimes, deadline=ends)
        if kept:
            yield _Proposal([clip_change(part) for part in kept], insert_clips(self._subject.model, kept))
        elif ends.has_passed:
            raise OutOfTime

    # verdicts ---------------------------------------------------------------------------------------------------------

    def _settle(self, proposal: _Proposal) -> Repair | None:
        """Return a proposal with what is proved and measured of it; None where it is no repair."""
        self._report("proof of the repaired model", 0.8)
        model = _written(proposal.model)
        assessment = self._subject.assess(model)
        if assessment is None or self._is_refused(assessment):
            return None
        sites = GuardSites(assessment.problem.calls[0].graph)
        proved, left = self._is_proved(assessment), tuple(map(sites.title_of, assessment.unproved))
        if not proved:
            answer = self._search(assessment.problem)
            left = tuple(operator.node for operator in answer.operators if operator.verdict != "proved")
            others = {name for node in self._others for name in (node, self._sites.title_of(node))}
            if any(o.verdict == "violated" and o.node not in others for o in answer.operators):
                return None
            proved = answer.verdict == "holds"
        try:
            outputs = self._meter.measure(model) if self._config.samples else None
        except ReplayError:
            return None
        return Repair(
            changes=tuple(proposal.changes),
            model=model,
            standing="proved" if proved else "not falsified",
            runtimes=self._config.runtimes if proved else (),
            repaired=self._list_repaired(left),
            left=left,
            outputs=outputs,
            operations=self._operations(assessment),
            diff=diff_models(self._subject.model, model),
            seconds=time.monotonic() - self._began,
        )

    def _list_repaired(self, left: Sequence[str]) -> tuple[str, ...]:
        known = [node for node in self._hazards if self._sites.outermost(node) not in left]
        return tuple(title for node in known if (title := self._sites.title_of(node)) not in left)

    def _is_proved(self, assessment: Assessment) -> bool:
        """Tell whether the property is proved; or, where others are to stay, all but these and what they break."""
        if not self._others:
            return assessment.holds
        is_known = not black_boxes_of(assessment.problem.calls[0].graph)
        return is_known and self._others.issuperset(assessment.open)

    def _is_refused(self, assessment: Assessment) -> bool:
        """Tell whether ONNX Runtime, which runs the original, does not load a changed model."""
        refused = bool(optimise(assessment.problem.calls[0].graph).refusal)
        return refused and not optimise(self._subject.graph).refusal

    def _operations(self, assessment: Assessment) -> int:
        return count_operations(assessment.problem.calls[0].graph) - count_operations(self._subject.graph)

    def _search(self, problem: Problem) -> Answer:
        """Prove or falsify, within a part of the time that is left."""
        seconds = self._part()
        self._report("search", 0.1)
        config = SearchConfig(
            n_starts=self._config.n_starts,
            seed=self._config.seed,
            timeout=seconds,
            prove_timeout=seconds / 2,
            runtime=self._config.runtimes,
        )
        return falsify(problem, config)

    def _part(self) -> float:
        return max(_LEAST, min(_MOST, _SHARE * self._subject.deadline.left))

    def _report(self, text: str, done: float) -> None:
        self._progress(Progress(stage="fix", done=done, text=text))


def _written(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model as it is read from its file; one that no message can hold, as it is."""
    return onnx.load_model_from_string(model.SerializeToString()) if model.ByteSize() < _LARGEST else model


def _guarded(guarded: Guarded, kind: Kind) -> _Proposal:
    return _Proposal(_changes_of(guarded, kind), guarded.model)


def _changes_of(guarded: Guarded, kind: Kind) -> list[Change]:
    return [guard_change(guard, tensor, kind) for guard, tensor in zip(guarded.guards, guarded.tensors, strict=True)]
