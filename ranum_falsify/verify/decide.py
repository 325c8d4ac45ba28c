"""The main task: from a problem to an answer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from ranum_falsify.config import ARM64, SearchConfig
from ranum_falsify.errors import OUT_OF_MEMORY, MemoryShortageError, is_interruption, is_out_of_memory
from ranum_falsify.network.blackbox import evaluate_until
from ranum_falsify.network.nesting import is_evaluated_outside
from ranum_falsify.network.tensors import is_floating
from ranum_falsify.process.deadline import Deadline, OutOfTime
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.verify.prove.assumptions import assumptions_of
from ranum_falsify.verify.prove.elsewhere import find_further, prove_elsewhere
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.verify.replay.confirmer import Confirmer
from ranum_falsify.verify.search.attacks import check_backends
from ranum_falsify.verify.search.backends import BackendSearch
from ranum_falsify.verify.search.clauses import ClauseSearch
from ranum_falsify.verify.search.converter import TorchModel, convert
from ranum_falsify.verify.search.device import bytes_per_sample, device_of, settings
from ranum_falsify.verify.search.extremes import find_extremes
from ranum_falsify.verify.search.operator_search import OperatorSearch
from ranum_falsify.verify.search.result import Answer, OperatorResult
from ranum_falsify.verify.search.search import Budget, Progress, SearchContext

_REPLAY_THREADS = 1
"""The search uses the other cores while a child process replays."""

_TURN = 10.0
"""Seconds that the first turn of the search takes, after its first round and the first turn of the proof."""

_OPENING, _WHOLE_TURN, _WIDE_TURN = 0.02, 0.6, 0.8
"""Shares of the time limit, at most, for properties of outputs: the first round of the search; and the proof on the
whole box, if the settings do not give it more, and that on one of so many elements that cutting these leads nowhere."""
_TURN_SHARE, _CUT_GROWTH, _FIND_GROWTH = 0.2, 0.5, 0.15
"""Turns after that: the seconds of a proof that cuts the box and of the search for each second of the run so far, of
which this share of the time limit counts at most."""
_SHARED = 300.0
"""The most seconds of a time limit that turns are shares of: whoever gives a day waits for none of them."""


def falsify(
    problem: Problem,
    config: SearchConfig,
    *,
    progress: Callable[[Progress], None] | None = None,
    elsewhere: bool = False,
    refute: Callable[[OperatorResult], str | None] = lambda _: None,
) -> Answer:
    """Prove a reduced property, or search for a counterexample.

    First comes one interval analysis; operators that it proves are not searched.  Then a round of the search, then
    finer proofs of those that are still open, then further rounds if there are to be as many as time allows.  For a
    property of outputs, that round is short, and most of the search comes after bounds of the whole box.  The verdict
    is `violated` only with inputs that ONNX Runtime has confirmed on the original models, `holds` only with a proof,
    else `unknown`.  A timeout or Ctrl-C ends the run early with the best answer so far.

    With `elsewhere`, what holds is proved for processors of ARM64, too.  `refute` tells of an operator that PyTorch
    shows to be invalid why it is not counted, None if it is.

    Raises:
        BackendError: A back end is missing, or its settings do not fit.
        DeviceError: The device does not exist.
        MemoryShortageError: There is not enough memory.
        ReplayError: ONNX Runtime cannot run a model.
    """
    check_backends(config)
    config = _count_all(problem, config)
    device = device_of(config.device)
    began = time.monotonic()
    budget = Budget(Deadline.after(config.timeout), began)
    graphs = {id(call.graph): call.graph for call in problem.calls}
    size = bytes_per_sample(graphs.values()) * config.batch
    confirmer = Confirmer(list(graphs.values()), threads=_REPLAY_THREADS)
    with settings(config.seed, config.processors, device, size), evaluate_until(budget.deadline):
        modules = {key: convert(graph).to(device) for key, graph in graphs.items()}
        models = [_resolve_branches(problem, call, modules[id(call.graph)]).to(device) for call in problem.calls]
        for call, model in zip(problem.calls, models, strict=True):
            if model.graph is not call.graph:
                confirmer.inline(call, model.graph)
        context = SearchContext(
            problem, config, models, confirmer, budget, device, progress or (lambda _: None), refute
        )
        search = OperatorSearch(context) if problem.is_pure_validity else ClauseSearch(context)
        interrupted = ""
        try:
            _decide_watched(context, search, elsewhere=elsewhere)
        except OutOfTime:
            interrupted = "timeout"
        except (KeyboardInterrupt, MemoryError, RuntimeError) as error:
            if not is_interruption(error):
                if is_out_of_memory(error):
                    raise MemoryShortageError(OUT_OF_MEMORY) from error
                raise
            # An interrupt also ends a step that takes long.
            interrupted = "timeout" if budget.expired else "Ctrl-C"
    try:
        return _conclude(context, search, interrupted)
    except KeyboardInterrupt:  # the alarm of a time limit, which rings once, must not cost what was found
        return _conclude(context, search, interrupted or ("timeout" if budget.expired else "Ctrl-C"))


def _count_all(problem: Problem, config: SearchConfig) -> SearchConfig:
    """Return settings by which every operator counts where no output could show NaN or infinity: labels never do."""
    outputs = (
        details for call in problem.calls for details in map(call.graph.details_of, call.graph.output_operations)
    )
    if config.fail_on != "output" or any(is_floating(details.dtype) for details in outputs):
        return config
    return replace(config, fail_on="any")


def _decide_watched(context: SearchContext, search: OperatorSearch | ClauseSearch, *, elsewhere: bool) -> None:
    """Decide the property; where ONNX Runtime shows other than what is proved, by a search alone."""
    try:
        _decide(context, search, elsewhere=elsewhere)
    except _DepartureError as failed:
        with context.confirmer:
            search.replay(failed.inputs)
        if failed.runs and not search.has_found:
            _decide(context, search, proves=False)


def _prove_elsewhere(context: SearchContext, prover: Prover) -> None:
    """Prove for ARM64 what holds, in about the time that the proof took; without time, the proof is what it was."""
    late = {library: "there was no time" for library in ARM64 if library in context.proof.runtimes}
    context.proof = replace(context.proof, elsewhere=late)
    with suppress(OutOfTime), context.budget.time_proof():
        found = prove_elsewhere(prover, min(context.budget.prove_seconds, context.config.prove_timeout))
        context.proof = replace(context.proof, elsewhere=found)


def _decide(
    context: SearchContext,
    search: OperatorSearch | ClauseSearch,
    *,
    proves: bool = True,
    elsewhere: bool = False,
) -> None:
    """Prove and search in turns, until the property is decided or time is up."""
    config, budget = context.config, context.budget
    prover = None
    if config.prove and proves:
        graphs = {id(call): model.graph for call, model in zip(context.problem.calls, context.models, strict=True)}
        drive = partial(_drive, context)
        outputs_alone = not config.counts("masked")
        prover = Prover(context.problem, config, graphs, tick=budget.check, drive=drive, outputs_alone=outputs_alone)
        context.report(Progress(stage="prove", done=0.0, text="interval analysis"))
        try:
            with budget.time_proof():
                prover.further = find_further(prover) if elsewhere else ()
                context.proof = prover.analyse()
                if context.problem.is_pure_validity and not context.proof.holds:
                    context.proof = prover.analyse_without_further()
        except OutOfTime:
            context.proof = replace(context.proof, notices=(prover.describe_rest(),))
            raise
        _check_watched(prover)
    if not context.proof.holds:
        with context.confirmer:
            if isinstance(search, ClauseSearch) and config.is_paced:
                _pace(context, search, prover)
            else:
                _search_and_refine(context, search, prover)
    if elsewhere and prover is not None and context.proof.holds:
        _prove_elsewhere(context, prover)


def _search_and_refine(context: SearchContext, search: OperatorSearch | ClauseSearch, prover: Prover | None) -> None:
    """Search one whole round, prove, and search again as the settings say."""
    config = context.config
    is_first = config.backends[0] == "pgd"
    if is_first:
        search.run()
    if prover is not None and not search.is_done:
        _refine(context, search, prover)
    if isinstance(search, ClauseSearch) and search.is_unfinished and not (search.is_done or context.proof.holds):
        search.run()
    for number, backend in enumerate(config.backends):
        if search.is_done or context.proof.holds:
            return
        if backend != "pgd":
            BackendSearch(context, backend, search).run()
        elif number or not is_first or config.is_endless:
            search.run(endless=config.is_endless)
    if config.takes_turns:
        _take_turns(context, search, prover)


def _pace(context: SearchContext, search: ClauseSearch, prover: Prover | None) -> None:
    """Search and prove in turns, shares of the time limit; most of the search comes after bounds of whole boxes."""
    assert context.config.timeout is not None, "only a limit has shares"
    limit = min(context.config.timeout, _SHARED)

    def is_over() -> bool:
        return search.is_done or context.proof.holds or context.budget.expired

    def turn(growth: float) -> float:
        # What a run has taken so far tells what its steps cost: a small network is not kept from its first cuts.
        return growth * min(_TURN_SHARE * limit, time.monotonic() - context.budget.began)

    context.is_hurried = True
    with context.budget.end_within(_OPENING * limit):
        search.run()
    if prover is not None and not is_over():
        _refine(context, search, prover, least=(_WHOLE_TURN if prover.may_cut else _WIDE_TURN) * limit, cuts=False)
    while not is_over():
        proves = prover is not None and prover.config.prove_timeout > 0 and not prover.is_exhausted
        if prover is not None and proves:
            _refine(context, search, prover, most=turn(_CUT_GROWTH))
        until = Deadline.after(turn(_FIND_GROWTH))
        while not is_over() and not until.has_passed:
            with context.budget.end_within(until.left):
                search.run()
            if not context.varies:
                break
        if not (proves or context.varies):
            return


def _drive(context: SearchContext, box: Sequence[InputVariable]) -> Sequence[Mapping[str, np.ndarray]]:
    """Return points at which tensors are near their extremes, on the gradients of the search."""
    calls = context.problem.calls
    if len(calls) != 1 or context.device.type != "cpu":
        return ()
    try:
        return find_extremes(calls[0], context.models[0], box)
    except (RuntimeError, ValueError, IndexError) as error:
        if is_interruption(error) or is_out_of_memory(error):
            raise
        return ()  # what torch cannot run, or differentiate, is proved without it


def _take_turns(context: SearchContext, search: OperatorSearch | ClauseSearch, prover: Prover | None) -> None:
    """Search and prove in turns, each twice as long as the one before, while there is time and nothing is decided."""

    def is_over() -> bool:
        return search.has_found or search.is_done or context.proof.holds or context.budget.expired

    searches = "pgd" in context.config.backends and context.varies
    times = 1.0
    while not is_over():
        until = Deadline.after(times * _TURN)
        while searches and not is_over() and not until.has_passed:
            search.run()
        times *= 2
        proves = prover is not None and not prover.is_exhausted and not is_over()
        if prover is not None and proves:
            _refine(context, search, prover, times=times)
        if not searches and not proves:
            return


def _refine(
    context: SearchContext,
    search: OperatorSearch | ClauseSearch,
    prover: Prover,
    *,
    times: float = 1.0,
    least: float = 0.0,
    most: float = math.inf,
    cuts: bool = True,
) -> None:
    """Prove more of those operators for which the search has found nothing so far.

    That takes `times` as long as the settings say, but not less than the `least` nor more than the `most` seconds; no
    time where the settings give none.  If the property is violated already, it takes no longer than the run has so far.
    """
    now, violated = time.monotonic(), search.found.keys() if isinstance(search, OperatorSearch) else ()
    if context.problem.is_pure_validity and not _is_worthwhile(context.proof, violated):
        return
    share = context.config.prove_timeout * times
    share = min(max(share, least), most) if share else 0.0
    deadline = context.budget.deadline.within(min(share, now - context.budget.began) if violated else share)
    if deadline.has_passed:
        return
    context.report(Progress(stage="prove", done=0.5, text="linear bounds"))
    with context.budget.time_proof():
        try:
            prover.refine(deadline, violated, cuts=cuts)
        finally:
            context.proof = prover.proof
    context.suspects = prover.suspects()
    _check_watched(prover)


class _DepartureError(Exception):
    """ONNX Runtime shows other than what is proved, or does not run it; nothing else would replay either."""

    def __init__(self, inputs: Mapping[str, np.ndarray], *, runs: bool) -> None:
        super().__init__()
        self.inputs, self.runs = inputs, runs


def _check_watched(prover: Prover) -> None:
    if prover.watched is not None and prover.watched.faults:
        raise _DepartureError(prover.watched.inputs, runs=bool(prover.watched.feeds))


def _is_worthwhile(proof: Proof, violated: Collection[tuple[int, str]]) -> bool:
    """Tell whether an operator is open that neither fails itself nor comes after one that does."""
    failing = {node for _, node in violated}
    left = (o for key, o in proof.operators.items() if not o.proved and key not in violated)
    return any(failing.isdisjoint(o.after) for o in left)


def _resolve_branches(problem: Problem, call: NetworkCall, model: TorchModel) -> TorchModel:
    """Treat inputs with a single value as constants if tensors decide shapes, branches or the lengths of loops.

    Then the branches that they choose are searched too, loops are unrolled, and all samples run at once.
    """
    variables = {v.name: v for v in problem.inputs if np.array_equal(v.lower, v.upper)}
    fixed = {
        name: variables[variable].lower
        for name, variable in zip(call.graph.input_names, call.variables, strict=True)
        if variable in variables and variable is not None
    }
    is_plain = model.separable and not is_evaluated_outside(call.graph)
    if is_plain or not fixed or len(fixed) == len(call.graph.inputs) or call.graph.source is None:
        return model
    return convert(call.graph.fix(fixed))


def _conclude(context: SearchContext, search: OperatorSearch | ClauseSearch, interrupted: str) -> Answer:
    budget = context.budget
    if budget.expired and not interrupted and not context.proof.holds:
        interrupted = "timeout"
    searched = time.monotonic() - budget.began - budget.replay_seconds - budget.prove_seconds
    results: tuple[OperatorResult, ...] = ()
    notices: list[str] = []
    if isinstance(search, OperatorSearch):
        results, unconfirmed = search.results(), search.list_unconfirmed()
        shown = (r.counterexample for r in results if r.verdict == "violated")
        found = next((example for example in shown if example is not None), None)
        notices += search.notices()
    else:
        found, unconfirmed = search.counterexample, tuple(search.unconfirmed)
    notices += [notice for call in context.problem.calls for notice in call.graph.notices]
    notices += context.proof.notices
    return Answer(
        verdict="violated" if found is not None else "holds" if context.proof.holds else "unknown",
        operators=results,
        counterexample=found,
        unconfirmed=unconfirmed,
        notices=tuple(dict.fromkeys(notices)),
        seconds={"prove": budget.prove_seconds, "search": searched, "replay": budget.replay_seconds},
        seed=context.config.seed,
        starts=budget.starts,
        steps=budget.steps,
        interrupted=interrupted,
        runtimes=context.proof.runtimes,
        steep=context.proof.steep,
        departure=context.proof.departure,
        assumptions=assumptions_of(context.problem, context.proof.runtimes, context.proof.elsewhere),
    )
