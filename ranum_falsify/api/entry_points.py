"""Run what a question asks for."""

from __future__ import annotations

import difflib
import inspect
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

import torch

from ranum_falsify.api.kernels import check_kernels, keep_inputs
from ranum_falsify.api.loading import BoundProblem, load, load_networks
from ranum_falsify.api.models import Model, ModelLike
from ranum_falsify.api.plain_torch import PlainTorch
from ranum_falsify.api.properties import Property, PropertyLike, network_of, property_of
from ranum_falsify.api.result import Result
from ranum_falsify.api.sizes import UNREAD, ask_each, join_answers, list_sizes
from ranum_falsify.api.sources import find_sources
from ranum_falsify.api.timekeeper import Exit, TimeUp, time_limit
from ranum_falsify.config import Options, ProveConfig, SearchConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.results.progress import follow
from ranum_falsify.verify import decide
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


def _kernel_notices(config: SearchConfig, self_check: bool) -> tuple[str, ...]:
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
    result = decide.falsify(loaded.problem, within, progress=progress, elsewhere=True, refute=refute)
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
    """Return how much of the time is for what comes after the answer: `_keep_list`, and proofs after rewriting."""
    if not config.prove or config.timeout is None:
        return 0.0
    parts = (loaded.sources.dtype is not None) + (config.try_rewrites and loaded.problem.is_pure_validity)
    return min(config.prove_timeout, _SHARE * config.timeout) * parts


def _keep_list(loaded: BoundProblem, config: SearchConfig) -> KeepList | None:
    """Return the nodes that must stay in float32 for all operators to be proved that can be."""
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


F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
S = TypeVar("S", covariant=True)
T = TypeVar("T")


def take(options: Mapping[str, Any], **defaults: Any) -> Options:
    """Return options that were given by keyword.

    Raises:
        TypeError: There is no such option.
        UsageError: An option does not take its value.
    """
    known = [each.name for each in fields(Options)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"options: {', '.join(known)}"
            raise TypeError(f"there is no option {name!r}; {hint}")
    given = Options(**options)
    return given.with_defaults(**defaults)


def show_keywords(function: F) -> F:
    """Show the options of a function that takes them as `**options` in its signature, for `help` and notebooks."""
    own = list(inspect.signature(function).parameters.values())[:-1]
    new = (inspect.Parameter(f.name, f.kind, default=f.default) for f in inspect.signature(Options).parameters.values())
    function.__signature__ = inspect.Signature([*own, *new], return_annotation="Result")  # type: ignore[attr-defined]
    return function


class _OrOfModule(Protocol[P, R, Q, S]):
    """A function of models that is another one of modules."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(self, module: torch.nn.Module, *args: Q.args, **kwargs: Q.kwargs) -> S: ...


def or_of_module(
    of_module: Callable[Concatenate[torch.nn.Module, Q], S],
) -> Callable[[Callable[P, R]], _OrOfModule[P, R, Q, S]]:
    """Make another function answer where the first argument is a PyTorch module."""

    def decorate(of_model: Callable[P, R]) -> _OrOfModule[P, R, Q, S]:
        @wraps(of_model)
        def function(*args: Any, **kwargs: Any) -> Any:
            is_module = isinstance(args[0] if args else kwargs.get("module"), torch.nn.Module)
            return (of_module if is_module else of_model)(*args, **kwargs)

        return function

    return decorate


@PlainTorch()
@show_keywords
def falsify(model: ModelLike | Mapping[str, ModelLike], property: PropertyLike, **options: Any) -> Result:
    """Prove a property of models, or search for a counterexample, as the command line does.

    Args:
        model: The model of the property's only network, or models by the names that it gives its networks. Each is
            loaded, a path, an `onnx.ModelProto`, or bytes.
        property: A loaded property, a path, or a text; see `load_property`.
        **options: See `Options`.

    Raises:
        TypeError: There is no such option.
        RanumFalsifyError: The model, the property or an option is invalid; one line says what to do.
    """
    return ask_all_sizes(take(options), lambda one: _ask(model, property, one))


@PlainTorch()
@show_keywords
def prove(model: ModelLike | Mapping[str, ModelLike], property: PropertyLike, **options: Any) -> Result:
    """Prove a property of models without searching for a counterexample; the verdict is `holds` or `unknown`.

    Args and errors are those of `falsify`.
    """
    given = take(options)
    if not given.prove:
        raise UsageError("prove=False: nothing would be done; call falsify for a search alone")
    return ask_all_sizes(replace(given, n_starts=0), lambda one: _ask(model, property, one))


def _ask(model: ModelLike | Mapping[str, ModelLike], property: PropertyLike, options: Options) -> Result:
    def read() -> BoundProblem:
        prop = property_of(property)
        return load(prop, map_models(model, prop, options.sizes, strict=options.strict), dtype=options.dtype)

    return ask_in_time(read, answer_loaded, options)


def ask_all_sizes(options: Options, ask: Callable[[Options], Result]) -> Result:
    """Ask about every size of the symbolic dimensions that have a range, in the time of one run."""
    sizes = list_sizes(options.dims)

    def ask_one(one: Mapping[str, int], share: float | None) -> Result:
        return ask(replace(options, dims=one, timeout=share))

    results = ask_each(sizes, options.timeout, ask_one, lambda result: result.answer)
    if len(sizes) == 1:
        return results[0]
    position, joined = join_answers(options.dims, sizes, [result.answer for result in results])
    shown = next((result for result in (results[position], *results) if result.read is not None), results[position])
    return replace(shown, answer=joined)


def ask_in_time(
    read: Callable[[], T], ask: Callable[[T, Options], Result], options: Options, exit: Exit | None = None
) -> Result:
    """Read something and ask about it, within the timeout together; unknown where there is no time to read it.

    Args:
        read: Reads it.
        ask: Asks about it, with the options and the time that is left.
        options: The options.
        exit: See `time_limit`.
    """
    found, left = read_in_time(read, options, exit)
    if found is None:
        return Result(answer=replace(UNREAD, seed=options.seed), read=None, config=options)
    return ask(found, left)


def read_in_time(read: Callable[[], T], options: Options, exit: Exit | None = None) -> tuple[T | None, Options]:
    """Return what is read, None if there is no time, and the options with the time that is left; see `ask_in_time`."""
    began = time.monotonic()
    try:
        with time_limit(options.timeout, exit):
            found = read()
    except TimeUp:
        return None, options
    return found, take_time(options, time.monotonic() - began)


def answer_loaded(loaded: BoundProblem, options: Options, refute: Refute = lambda _: None) -> Result:
    """Return the answer to what was loaded."""
    notices = _kernel_notices(options, options.self_check)
    began = time.monotonic()
    with follow(options.progress) as progress:
        found = answer(loaded, options, notices=notices, progress=progress, refute=refute)
    kept = _keep_list(loaded, take_time(options, time.monotonic() - began))
    return Result(answer=found, read=loaded, config=options, kept=kept)


def map_models(
    model: ModelLike | Mapping[str, ModelLike],
    prop: Property,
    dims: Mapping[str, int] | None,
    *,
    strict: bool = False,
) -> Mapping[str, Model]:
    """Return models by the names that a property gives its networks, read unless they were.

    Raises:
        ModelError: A model cannot be read.
        UsageError: One model is given for a property of several networks, or sizes for a model that was read before.
    """
    given = model if isinstance(model, Mapping) else {network_of(prop): model}
    return load_networks(prop, given, {name: dims or {} for name in given}, strict=strict)
