"""Run what a question asks for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from ranum_falsify.api.cache import keep_inputs
from ranum_falsify.api.kernels import check_kernels
from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.api.plain_torch import PlainTorch
from ranum_falsify.api.sources import find_sources
from ranum_falsify.api.timekeeper import TimeUp, time_limit
from ranum_falsify.config import ProveConfig, SearchConfig
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.prove.assumptions import assumptions_of
from ranum_falsify.verify.prove.precision import KeepList, Node, float32_nodes
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.verify.search.result import Answer, OperatorResult
from ranum_falsify.verify.search.search import Progress

_PATIENCE = 0.5
"""Seconds beyond the timeout, at which nothing that goes on looks at the clock, before an alarm ends it."""

_SHARE = 0.25
"""Share of the timeout that is kept for each part of the answer that comes after the verdict."""

Config = TypeVar("Config", bound=SearchConfig)

Refute = Callable[[OperatorResult], str | None]
"""Tells of an operator that PyTorch shows to be invalid in the graph why it is not counted, None if it is."""


def take_time(config: Config, seconds: float) -> Config:
    """Return settings with less time."""
    return config if config.timeout is None else replace(config, timeout=max(config.timeout - seconds, 0.0))


def kernel_notices(config: SearchConfig, self_check: bool) -> tuple[str, ...]:
    """Check the installed kernels where proofs rest on them; return what users should know of them."""
    return (*PlainTorch.notices(), *(check_kernels().notices if self_check and config.prove else ()))


def answer(
    loaded: BoundProblem,
    config: SearchConfig,
    *,
    notices: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
    refute: Refute = lambda _: None,
) -> Answer:
    """Prove or search, as `decide.falsify` does, and add what is known of the files.

    An alarm ends what goes on beyond the timeout: the search looks at the clock only between its steps.

    Args:
        loaded: What must hold.
        config: How to look.
        notices: What else users should know.
        progress: Called now and then with how far the run has got.
        refute: See `decide.falsify`.
    """
    try:
        with time_limit(None if config.timeout is None else config.timeout + _PATIENCE):
            result = _decide(loaded, config, progress, refute)
    except TimeUp:  # where nothing was being proved or searched any more
        runtimes = config.runtimes if config.prove else ()
        assumptions = assumptions_of(loaded.problem, runtimes)
        result = Answer(verdict="unknown", interrupted="timeout", assumptions=assumptions)
    assert result.assumptions is not None
    return replace(
        result,
        operators=tuple(_locate(result.operators, loaded)),
        assumptions=replace(result.assumptions, sources=loaded.sources, default_inputs=loaded.default_inputs),
        seconds={**loaded.seconds, **result.seconds},
        notices=tuple(dict.fromkeys((*notices, *loaded.notices, *result.notices, *_keep_departure(result)))),
    )


def _locate(operators: Sequence[OperatorResult], loaded: BoundProblem) -> Iterator[OperatorResult]:
    """Yield operators with the lines of Python that their models note, as PyTorch's exporter writes them."""
    known = {name: find_sources(graph.source) for name, graph in loaded.graphs.items() if graph.source is not None}
    only = next(iter(known.values())) if len(known) == 1 else {}
    for operator in operators:
        source = known.get(operator.network, only).get(operator.node)  # a part of a network has another name
        yield operator if source is None else replace(operator, source=source)


def _keep_departure(result: Answer) -> Iterator[str]:
    """Write the inputs on which ONNX Runtime left proved bounds; yield where they are."""
    path = keep_inputs(result.departure) if result.departure else None
    if path is not None:
        yield f"the inputs of the run that leaves proved bounds are in {path}, for numpy.load"


def _decide(
    loaded: BoundProblem, config: SearchConfig, progress: Callable[[Progress], None] | None, refute: Refute
) -> Answer:
    began = time.monotonic()
    reserved = _reserve(loaded, config)
    within = config if config.timeout is None else replace(config, timeout=config.timeout - reserved)
    result = falsify(loaded.problem, within, progress=progress, elsewhere=True, refute=refute)
    if config.prove and config.try_rewrites and loaded.problem.is_pure_validity:
        result = _try_rewrites(
            loaded, result, config, Deadline(math.inf if config.timeout is None else began + config.timeout)
        )
    return result


def _try_rewrites(loaded: BoundProblem, result: Answer, config: ProveConfig, deadline: Deadline) -> Answer:
    """Return an answer in which operators that are not proved say after which passes they are."""
    wanted = {(operator.network, operator.node) for operator in result.operators if operator.verdict != "proved"}
    if not wanted:
        return result
    from ranum_falsify.rewrite.proving import prove_after_rewriting  # imports onnxscript

    began = time.monotonic()
    found = prove_after_rewriting(
        loaded.problem,
        config,
        wanted,
        deadline=deadline.within(config.prove_timeout or ProveConfig().prove_timeout),
    )
    operators = (
        replace(operator, proved_after_rewriting=tuple(found.passes.get((operator.network, operator.node), ())))
        for operator in result.operators
    )
    late = () if found.is_complete else ("there was no time to try all rewrites; --prove-timeout gives more",)
    seconds = {**result.seconds, "prove": result.seconds.get("prove", 0.0) + time.monotonic() - began}
    return replace(result, operators=tuple(operators), notices=(*result.notices, *late), seconds=seconds)


def _reserve(loaded: BoundProblem, config: SearchConfig) -> float:
    """Return how much of the time is for what comes after the answer: `keep_list`, and proofs after rewriting."""
    if not config.prove or config.timeout is None:
        return 0.0
    parts = (loaded.sources.dtype is not None) + (config.try_rewrites and loaded.problem.is_pure_validity)
    return min(config.prove_timeout, _SHARE * config.timeout) * parts


def keep_list(loaded: BoundProblem, config: SearchConfig) -> KeepList | None:
    """Return the nodes that must stay in float32 for all operators to be proved that can be.

    Args:
        loaded: The property; None is returned unless it is of converted networks.
        config: How to prove, and what is left of the timeout; `prove_timeout` is the time for this list too.

    Returns:
        None where there is no time.
    """
    if not config.prove or loaded.sources.dtype is None or config.timeout == 0:
        return None
    left = math.inf if config.timeout is None else config.timeout
    deadline = Deadline.after(min(config.prove_timeout, left))
    with suppress(TimeUp), time_limit(None if config.timeout is None else left + _PATIENCE):
        return float32_nodes(loaded.graphs, lambda keep: _list_open(loaded, config, keep), deadline=deadline)
    return None


def _list_open(loaded: BoundProblem, config: ProveConfig, keep: Collection[Node]) -> frozenset[Node]:
    by_network = {name: {node for network, node in keep if network == name} for name in loaded.graphs}
    proof = Prover(loaded.reduced(by_network), config).analyse()
    return frozenset((operator.network, operator.node) for operator in proof.operators.values() if operator.open)
