"""`fix`: repairs of a model whose operators can receive invalid input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import get_args

import onnx

from ranum_falsify.api.checking import mend
from ranum_falsify.api.entry_points import map_models, or_of_module
from ranum_falsify.api.kernels import check_kernels
from ranum_falsify.api.loading import BoundProblem, load
from ranum_falsify.api.models import ModelLike
from ranum_falsify.api.plain_torch import PlainTorch
from ranum_falsify.api.properties import PropertyLike, property_of
from ranum_falsify.config import RUNTIMES, FixConfig, Runtime
from ranum_falsify.errors import UsageError
from ranum_falsify.network import read
from ranum_falsify.network.string_inputs import string_inputs
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.repair.repair import Kind, Repair
from ranum_falsify.repair.repairing import Repairing, Repairs
from ranum_falsify.repair.subject import RepairSubject
from ranum_falsify.results.progress import FollowLike, follow
from ranum_falsify.verify.search.search import Progress

_ANY = "any"


@PlainTorch()
@or_of_module(mend)
def fix(
    model: ModelLike | Mapping[str, ModelLike],
    property: PropertyLike,
    *,
    by: str | Sequence[str] = _ANY,
    at: str | Sequence[str] = _ANY,
    nodes: Sequence[str] | None = None,
    timeout: float = FixConfig.timeout,
    samples: int = FixConfig.samples,
    n_starts: int = FixConfig.n_starts,
    seed: int = 0,
    runtime: Runtime | Sequence[Runtime] | None = None,
    dims: Mapping[str, int] | None = None,
    strict: bool = False,
    self_check: bool = True,
    progress: FollowLike = None,
) -> list[Repair]:
    """Find repairs of a model after which no operator receives invalid input.

    Of a PyTorch module, `fix(module, args, **options)` with what `check` takes returns `Mended`: its lines that can
    fail, in other texts, with which `check` proves the module. It takes as long as it needs, and the module is not
    changed.

    Args:
        model: The model, or by name the one model of the property.
        property: A loaded property, a path, or a text; it asks for valid operands alone.
        by: Ways to repair: `rewrite`, `guard`, `clip`, several of them, or `any`.
        at: Where clips may go: `operand`, `input`, `weight`, names of nodes, several of them, or `any`.
        nodes: The operators to repair, by the names of their ONNX nodes; all that are not proved by default.
        timeout: Seconds for all but reading.
        samples: Inputs to run the models on, at most, to see by how much outputs change; 0 for none.
        n_starts: Starting points of the searches for counterexamples.
        seed: Seed of every random choice.
        runtime: The runtimes that proofs must cover; all by default.
        dims: Sizes of symbolic dimensions, of a model that is not loaded yet.
        strict: Whether a model that is not loaded yet is refused if it has operators that are not supported.
        self_check: Whether the installed kernels are checked before anything is proved.
        progress: Whether to show how far the work has got, or a function that is called with it now and then; by
            default, notebooks show it.

    Returns:
        The repairs, the best first; none where none was found in time.

    Raises:
        RanumFalsifyError: There is nothing to repair, or the model, the property or an option is invalid; one line
            says what to do.
    """
    config = FixConfig(
        by=_choose("by", by, get_args(Kind)),
        at=_names(at) if at != _ANY else FixConfig.at,
        nodes=None if nodes is None else tuple(nodes),
        timeout=timeout,
        samples=samples,
        n_starts=n_starts,
        seed=seed,
        runtimes=RUNTIMES if runtime is None else _choose("runtime", runtime, RUNTIMES),
    )
    for name, value, least in (("samples", samples, 0), ("n_starts", n_starts, 0), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name}={value!r}: is no whole number of at least {least}")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise UsageError(f"timeout={timeout!r}: is no positive number of seconds")
    prop = property_of(property)
    loaded = load(prop, map_models(model, prop, dims, strict=strict))
    with follow(progress) as report:
        return list(find_repairs(loaded, config, self_check=self_check, progress=report).repairs)


def find_repairs(
    loaded: BoundProblem,
    config: FixConfig,
    *,
    self_check: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> Repairs:
    """Return the repairs of what was loaded, with what is known of it.

    Raises:
        UsageError: There is nothing to repair, or the property is about something else than valid operands.
        ReplayError: ONNX Runtime does not run the model.
    """
    if len(loaded.models) != 1:
        raise UsageError(f"fix: the property is about {len(loaded.models)} networks; state the property of one")
    if texts := [name for graph in loaded.graphs.values() if graph.source for name in string_inputs(graph.source)]:
        raise UsageError(
            f"fix: input {texts[0]!r} holds strings, and models with such inputs are not repaired; "
            "repair the part that comes after the encoding of the strings"
        )
    if self_check:
        check_kernels()
    deadline = Deadline.after(config.timeout)
    subject = RepairSubject(loaded.problem, partial(_reload, loaded), config.runtimes, deadline)
    return Repairing(subject, config, progress or (lambda _: None)).run()


def _reload(loaded: BoundProblem, model: onnx.ModelProto) -> Problem:
    """Return the property over a changed model, which is read as the original was."""
    ((name, original),) = loaded.models.items()
    options = original.graph.options
    return loaded.reduced_over(
        {name: read(model, dims=options.dims, assumed=options.assumed, strict=options.strict, sample=options.sample)}
    )


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _choose(option: str, given: str | Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return those of the known names that are given, in their order."""
    names = _names(given)
    for name in names:
        if name not in (*known, _ANY):
            raise UsageError(f"{option}={name!r}: is unknown; {', '.join(known)} exist")
    return tuple(name for name in known if name in names or _ANY in names)
