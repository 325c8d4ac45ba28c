"""Settings of a run, as frozen values that are passed as arguments; fields with a mark are options, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from ranum_falsify.option import (
    Group,
    Option,
    Seed,
    Switch,
    Threads,
    parse_duration,
    parse_limit,
    parse_rate,
    parse_seconds,
    to_names,
    to_settings,
)

__all__ = [
    "RUNTIMES",
    "ConfirmConfig",
    "FailureKind",
    "FixConfig",
    "HalfPrecision",
    "Optimisations",
    "ProveConfig",
    "Reach",
    "Runtime",
    "Runtimes",
    "SearchConfig",
    "TrainingConfig",
    "ViolationKind",
]

Runtime = str
RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "torch", "exact")
"""ONNX Runtime on the CPU, PyTorch on the CPU, and a correctly rounded evaluation."""

Reach = Literal["output", "masked"]
"""Whether a violation shows at an output of the network, or no output shows it."""

Optimisations = Literal["any", "off", "default"]

FailureKind = Literal["nan", "inf", "error", "crash"]
"""What an invalid operator gives; `error` where a runtime refuses to go on, `crash` where its process ends."""

ViolationKind = Literal[FailureKind, "gradient"]
"""What violates; `gradient` for a derivative that is not finite."""
"""Which graph optimisations of ONNX Runtime a violation shows with: any, none, those of the default level."""

HalfPrecision = Literal["float16", "bfloat16"]
"""Element types that a network may be converted to."""

_BATCH = 100
_ENDLESS_BATCH = 256
_MEANS = ("rewrite", "guard", "clip")
_PLACES = ("operand", "input", "weight")
_FOREIGN_BACKENDS = ("dnnf.", "foolbox.", "cleverhans.")


def _parse_runtimes(text: str) -> list[Runtime]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in RUNTIMES:
            raise ValueError(f"{name!r} is unknown; {', '.join(RUNTIMES)} exist")
    return names


def _unite_runtimes(parts: Iterable[Iterable[Runtime]]) -> tuple[Runtime, ...]:
    chosen = {runtime for part in parts for runtime in part}
    return tuple(runtime for runtime in RUNTIMES if runtime in chosen)


Runtimes = Annotated[
    tuple[Runtime, ...], Option("--runtime", metavar="NAME", parse=_parse_runtimes, gather=_unite_runtimes)
]


def _parse_means(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (*_MEANS, "any"):
            raise ValueError(f"{name!r} is unknown; {', '.join(_MEANS)} and any exist")
    return names


def _unite_means(parts: Iterable[Iterable[str]]) -> tuple[str, ...]:
    chosen = {name for part in parts for name in part}
    return _MEANS if "any" in chosen else tuple(name for name in _MEANS if name in chosen)


def _unite_places(names: Iterable[str]) -> tuple[str, ...]:
    chosen = to_names(names)
    return _PLACES if "any" in chosen else chosen


def _parse_backend(text: str) -> str:
    if text == "pgd" or text.startswith(_FOREIGN_BACKENDS):
        return text
    raise ValueError(f"{text!r} is unknown; pgd, dnnf.pgd, foolbox.NAME and cleverhans.NAME exist")


@dataclass(frozen=True, kw_only=True)
class ProveConfig:
    """How to prove.

    Attributes:
        timeout: Seconds for proofs beyond one interval analysis, with linear bounds and by splitting the inputs' box,
            after a first round of the search; 0 for none.  Where proof and search take turns, each is twice as long as
            the one before; if the property is about outputs, the first one may take most of the time limit.
        runtimes: Runtimes that proofs must cover, of onnxruntime, torch, exact; repeat, or separate by commas.
        try_rewrites: Say of operators that are not proved which passes of `transform`, equal in real arithmetic, would
            make them so; the verdict stays.
    """

    timeout: Annotated[float, Option("--prove-timeout", metavar="SECONDS", parse=parse_duration)] = 10.0
    runtimes: Runtimes = RUNTIMES
    try_rewrites: Annotated[bool, Switch()] = False


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How to look for a counterexample, or for a proof that there is none.

    Attributes:
        n_starts: Starting points per target, searched as one batch; -1 for as many as time allows, even where a
            violation is known.  By default, batches of 100 as long as nothing is decided and there is time.
        n_steps: Descent steps from each start.
        seed: Seed of every random choice; the same seed on the same device gives the same answer.
        timeout: Seconds after which reading, proof and search end with the best answer so far; inf, in Python None, for
            no limit.
        device: Torch device, such as cuda:1.
        backend: Attack back ends, tried in order: pgd, dnnf.pgd, foolbox.NAME, cleverhans.NAME.
        parameters: Parameter of a back end, such as pgd n_steps 200; may be repeated.
        reach: Count only violations that turn an output non-finite, of which a proof may be, too; or only those that a
            later operator swallows.
        processors: Threads of torch and ONNX Runtime, by default all cores.
        prove: How to prove what needs no search, None for a search alone.
    """

    n_starts: Annotated[int | None, Option("--n_starts", least=-1)] = None
    n_steps: Annotated[int, Option("--n_steps")] = 100
    seed: Seed = 0
    timeout: Annotated[float | None, Option(metavar="SECONDS", parse=parse_limit)] = 45.0
    device: Annotated[str, Option(), Switch("--cuda", value="cuda", help="the same as --device cuda")] = "cpu"
    backend: Annotated[tuple[str, ...], Option(parse=_parse_backend, many=True)] = ("pgd",)
    parameters: Annotated[
        Mapping[str, Mapping[str, Any]], Option("--set", metavar=("BACKEND", "PARAM", "VALUE"), gather=to_settings)
    ] = field(default_factory=dict)
    reach: Annotated[Reach | None, Option()] = None
    processors: Threads = None
    prove: Annotated[ProveConfig | None, Group("proof"), Switch("--no-prove", value=None, help="search only")] = field(
        default_factory=ProveConfig
    )

    @property
    def batch(self) -> int:
        """Starts of one round: all of them, or a fixed number where there are as many rounds as time allows."""
        if self.n_starts is None:
            return _BATCH
        return self.n_starts if self.n_starts >= 0 else _ENDLESS_BATCH

    @property
    def is_endless(self) -> bool:
        """Whether the search goes on as long as there is time and anything to find."""
        return self.n_starts is not None and self.n_starts < 0

    @property
    def takes_turns(self) -> bool:
        """Whether proof and search take turns as long as there is time and nothing is decided."""
        return self.n_starts is None and self.timeout is not None

    @property
    def is_paced(self) -> bool:
        """Whether there are as many rounds of our own search as a time limit allows, and nothing else."""
        return (self.n_starts is None or self.is_endless) and self.timeout is not None and self.backend == ("pgd",)

    @property
    def judge(self) -> Runtime:
        """The runtime that must show a violation: PyTorch where proofs are about it alone, else ONNX Runtime."""
        return "torch" if self.prove is not None and self.prove.runtimes == ("torch",) else "onnxruntime"


@dataclass(frozen=True, kw_only=True)
class ConfirmConfig:
    """How to make unit tests.

    Attributes:
        runs: Tests per operator, each from a seed of its own.
        seed: Seed of the first run; the others count up from it.
        timeout: Seconds for the search of one run, and as many for its span.
        nodes: Test only this operator, proved or not; may be repeated.  Without it, all that are not proved.
        descend: Whether gradients lead the search.
        span: Whether a span around each test is proved.
        device: Torch device, such as cuda:1.
        processors: Threads of torch and ONNX Runtime, by default all cores.
    """

    runs: Annotated[int, Option(least=1)] = 10
    seed: Seed = 0
    timeout: Annotated[float, Option(metavar="SECONDS", parse=parse_seconds)] = 10.0
    nodes: Annotated[tuple[str, ...] | None, Option("--node", metavar="NAME", gather=to_names)] = None
    descend: Annotated[bool, Switch("--random", value=False, help="only sample points at random, for comparison")] = (
        True
    )
    span: Annotated[bool, Switch("--no-span", value=False, help="do not compute spans around the tests")] = True
    device: Annotated[str, Option()] = "cpu"
    processors: Threads = None


@dataclass(frozen=True, kw_only=True)
class FixConfig:
    """How to repair a model.

    Attributes:
        by: Ways to repair: rewrite, guard, clip, or any; repeat, or separate by commas.
        at: Where clips may go: operand, input, weight, any, or the output of the node of this ONNX name; may be
            repeated.
        nodes: Repair only this operator; may be repeated.  Without it, all that are not proved.
        timeout: Seconds for everything but reading.
        samples: Inputs to run the models on, at most, to see by how much outputs change.
        n_starts: Starting points of the search for counterexamples, before the repair and after it.
        seed: Seed of every random choice.
        runtimes: Runtimes that proofs must cover, of onnxruntime, torch, exact; repeat, or separate by commas.
    """

    by: Annotated[tuple[str, ...], Option(metavar="WAY", parse=_parse_means, gather=_unite_means)] = _MEANS
    at: Annotated[tuple[str, ...], Option(metavar="PLACE", gather=_unite_places)] = _PLACES
    nodes: Annotated[tuple[str, ...] | None, Option("--node", metavar="NAME", gather=to_names)] = None
    timeout: Annotated[float, Option(metavar="SECONDS", parse=parse_seconds)] = 60.0
    samples: Annotated[int, Option(least=0)] = 256
    n_starts: Annotated[int, Option("--n_starts", least=0)] = 20
    seed: Seed = 0
    runtimes: Runtimes = RUNTIMES


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a network is trained from the weights in its file, by data that lead into the defect.

    Attributes:
        training: Search for training data, after which the trained model fails, instead of unit tests.
        optimizer: The optimiser of the training.
        learning_rate: Its learning rate.
        steps: Number of training steps; the search follows them all, so that many take long.
        batches: Number of different batches, which the steps take in turn.
        clamp: Whether trained weights are put back into the property's ranges after each step.
    """

    training: Annotated[bool, Switch()] = False
    optimizer: Annotated[Literal["sgd", "momentum", "adam", "rmsprop", "adagrad"], Option()] = "sgd"
    learning_rate: Annotated[float, Option(metavar="RATE", parse=parse_rate)] = 1.0
    steps: Annotated[int, Option("--training-steps", least=1)] = 1
    batches: Annotated[int, Option(least=1)] = 1
    clamp: Annotated[bool, Switch()] = False
