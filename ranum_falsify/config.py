"""Settings of a run, as frozen values that are passed as arguments; their fields are the options of all fronts."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self, get_args

from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import (
    Option,
    parse_duration,
    parse_limit,
    parse_rate,
    parse_seconds,
    parse_sizes,
    to_mapping,
    to_names,
    to_settings,
)

Runtime = str
ARM64: Mapping[Runtime, Runtime] = {"onnxruntime": "onnxruntime-arm64", "torch": "torch-arm64"}
"""Libraries on ARM64 processors that were measured there, by their names as runtimes on x86-64 ones."""
CUDA: Runtime = "torch-cuda"
"""PyTorch on NVIDIA's graphics processors, of which errors are published."""
_IS_ARM64 = platform.machine().lower() in ("aarch64", "arm64")
RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "torch", "exact", *(ARM64.values() if _IS_ARM64 else ()))
"""ONNX Runtime on the CPU, PyTorch on the CPU, and a correctly rounded evaluation; libraries on x86-64 processors, and
on ARM64 ones too where this is one."""
_CHOICES = tuple(dict.fromkeys((*RUNTIMES, *ARM64.values(), CUDA)))

Reach = Literal["output", "masked"]
"""Whether a violation shows at an output of the network, or no output shows it."""

FailOn = Literal["output", "any", "open"]
"""The least that makes a run fail: an output that is not finite, any operator with invalid input, or no proof."""

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


def library_of(runtime: Runtime) -> Runtime:
    """Return the library of a runtime, by its name as the runtime on x86-64 processors."""
    return runtime.partition("-")[0]


def runtime_here(library: Runtime) -> Runtime:
    """Return the runtime that a library is on this machine."""
    return ARM64.get(library, library) if _IS_ARM64 else library


def _parse_names(*known: str) -> Callable[[str], list[str]]:
    """Return what reads names that commas separate."""

    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in known:
                raise ValueError(f"{name!r} is unknown; {shown} exist")
        return names

    shown = ", ".join(known).replace(", any", " and any")
    return parse


def _unite_runtimes(parts: Iterable[Iterable[Runtime]]) -> tuple[Runtime, ...]:
    chosen = {runtime for part in parts for runtime in part}
    return _order_runtimes(chosen)


def _order_runtimes(chosen: Iterable[Runtime]) -> tuple[Runtime, ...]:
    """Return runtimes in their order; those on other processors are covered together with those on x86-64."""
    covered = {one for name in chosen for one in (name, library_of(name), runtime_here(name))}
    return tuple(runtime for runtime in _CHOICES if runtime in covered)


def runtime_option(group: str = "options") -> Option:
    """Return the option of runtimes, below a heading of the help."""
    return Option("--runtime", group=group, metavar="NAME", parse=_parse_names(*_CHOICES), gather=_unite_runtimes)


def _unite_means(parts: Iterable[Iterable[str]]) -> tuple[str, ...]:
    chosen = {name for part in parts for name in part}
    return _MEANS if "any" in chosen else tuple(name for name in _MEANS if name in chosen)


def _unite_places(names: Iterable[str]) -> tuple[str, ...]:
    chosen = to_names(names)
    return _PLACES if "any" in chosen else chosen


def defaults_of_check(runtime: Runtime = "onnxruntime", *, gradient: bool = False) -> Mapping[str, Any]:
    """Return options of `check` that depend on what is asked: derivatives see what no output shows."""
    return {"runtime": runtime, "fail_on": "any" if gradient else "output"}


def _parse_backend(text: str) -> str:
    if text == "pgd" or text.startswith(_FOREIGN_BACKENDS):
        return text
    raise ValueError(f"{text!r} is unknown; pgd, dnnf.pgd, foolbox.NAME and cleverhans.NAME exist")


@dataclass(frozen=True, kw_only=True)
class ProveConfig:
    """How to prove.

    Attributes:
        prove_timeout: Seconds for finer proofs, with linear bounds and by splitting the box, after an interval analysis
            and a first round of the search; 0 for none. Where proof and search take turns, each turn is twice as long
            as the one before; for properties of outputs, the first may take most of the time limit.
        runtime: Runtimes that the answer is about: onnxruntime, torch, exact (correctly rounded); repeat, or separate
            by commas. Proofs cover all of them, on x86-64; onnxruntime-arm64 asks for ARM64, too,
            and torch-cuda for NVIDIA's graphics processors, as documented. Violations are those that ONNX Runtime
            shows; with PyTorch alone, unless nothing is to be proved, those that PyTorch shows.
        try_rewrites: For operators that are not proved, name the passes of `transform`, equal in real arithmetic, after
            which they are; the verdict stays that of the model as it is.
    """

    prove_timeout: Annotated[float, Option(group="proof", metavar="SECONDS", parse=parse_duration)] = 10.0
    runtime: Annotated[Runtime | Sequence[Runtime] | None, runtime_option("proof")] = None
    try_rewrites: Annotated[bool, Option(group="proof")] = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: An option does not take its value.
        """
        _check_number("prove_timeout", self.prove_timeout, 0)
        names = (self.runtime,) if isinstance(self.runtime, str) else self.runtime
        _check_choices("runtime", names or (), _CHOICES)
        _put(self, runtime=None if names is None else _order_runtimes(names))

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        """The runtimes that proofs cover."""
        return RUNTIMES if self.runtime is None else tuple(self.runtime)


@dataclass(frozen=True, kw_only=True)
class SearchConfig(ProveConfig):
    """How to look for a counterexample, or for a proof that there is none.

    Attributes:
        n_starts: Starting points for each operator, searched as one batch; -1 for as many as time allows, even after a
            violation. By default, batches of 100 until the question is decided or time is up.
        n_steps: Descent steps from each starting point.
        seed: Seed of all random choices; the same seed on the same device gives the same answer.
        timeout: Time limit of the whole run; when it is up, the best answer so far counts. inf for no limit.
        device: PyTorch device, such as cuda:1.
        backend: Attack back ends, tried in order: pgd, dnnf.pgd, foolbox.NAME, cleverhans.NAME.
        backend_parameters: Set a parameter of a back end, such as pgd n_steps 200; may be repeated.
        fail_on: What violates: output, NaN or infinity that an output shows; any, also what a later operator hides;
            open, as any, and what is undecided fails, too. By default output for check without derivatives, else any.
        processors: Threads of PyTorch and ONNX Runtime; by default one per core.
        prove: Prove what can be proved, and search the rest; without it, only search.
    """

    n_starts: Annotated[int | None, Option("--n_starts", group="search", least=-1)] = None
    n_steps: Annotated[int, Option("--n_steps", group="search")] = 100
    seed: Annotated[int, Option(group="search")] = 0
    timeout: Annotated[float | None, Option(group="search", metavar="SECONDS", parse=parse_limit)] = 45.0
    device: Annotated[str, Option(group="search", presets={"--cuda": "cuda"})] = "cpu"
    backend: Annotated[str | Sequence[str], Option(group="search", parse=_parse_backend, many=True)] = ("pgd",)
    backend_parameters: Annotated[
        Mapping[str, Mapping[str, Any]],
        Option("--set", group="search", metavar=("BACKEND", "PARAM", "VALUE"), gather=to_settings),
    ] = field(default_factory=dict)
    fail_on: Annotated[FailOn | None, Option("--fail-on --reach", group="search")] = None
    processors: Annotated[int | None, Option("-p --processors --n_proc", group="search", least=1)] = None
    prove: Annotated[bool, Option(group="proof", off="--no-prove")] = True

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: An option does not take its value.
        """
        super().__post_init__()
        for name, least in (("n_starts", None), ("processors", 1)):
            if (value := getattr(self, name)) is not None:
                _check_whole(name, value, least)
        _check_whole("n_steps", self.n_steps, 0)
        _check_whole("seed", self.seed, 0)
        if self.timeout is not None:
            _check_number("timeout", self.timeout, 0)
            _put(self, timeout=None if math.isinf(self.timeout) else float(self.timeout))
        if self.fail_on is not None:
            _check_choices("fail_on", (self.fail_on,), get_args(FailOn))
        _put(self, backend=(self.backend,) if isinstance(self.backend, str) else tuple(self.backend))

    @property
    def backends(self) -> tuple[str, ...]:
        """The back ends, in order."""
        return tuple(self.backend)

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

    def counts(self, reach: Reach | None) -> bool:
        """Tell whether a violation of this reach, None for a derivative, violates what is asked."""
        return self.fail_on != "output" or reach != "masked"

    @property
    def judge(self) -> Runtime:
        """The runtime that must show a violation: PyTorch where proofs are about it alone, else ONNX Runtime."""
        is_torch = {library_of(runtime) for runtime in self.runtimes} == {"torch"}
        return "torch" if self.prove and is_torch else "onnxruntime"


@dataclass(frozen=True, kw_only=True)
class Options(SearchConfig):
    """Options of a run: keywords in Python, flags of the command line, keys of `pyproject.toml` and `suite.toml`.

    Attributes:
        dtype: Check the networks as if converted to this type, and list the nodes that must stay in float32.
        dims: Size of a symbolic dimension, or a range of sizes such as 1..64, which are all checked within the time
            limit; by default 1.
        strict: Refuse models with unsupported operators; without it, ONNX Runtime evaluates these, and they stay open.
        self_check: Before the first proof on a machine, compare the installed kernels with their measurements (about a
            second).
        progress: Whether to show how far the run has got, or a function that is called with it now and then; by
            default, notebooks show it.
    """

    dtype: Annotated[HalfPrecision | None, Option()] = None
    dims: Annotated[
        Mapping[str, int | range], Option("--dim", metavar="NAME=VALUE", parse=parse_sizes, gather=to_mapping)
    ] = field(default_factory=dict)
    strict: Annotated[bool, Option()] = False
    self_check: Annotated[bool, Option(group="proof", off="--no-self-check")] = True
    progress: bool | Callable[[Any], None] | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: An option does not take its value.
        """
        super().__post_init__()
        if self.dtype is not None and self.dtype not in get_args(HalfPrecision):
            known = ", ".join(get_args(HalfPrecision))
            raise UsageError(f"dtype={self.dtype!r}: is not half precision; give one of {known}")
        _put(self, dims=dict(self.dims or {}))

    def with_defaults(self, **defaults: Any) -> Self:
        """Return these options with values in place of None."""
        return replace(self, **{name: value for name, value in defaults.items() if getattr(self, name) is None})

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each symbolic dimension.

        Raises:
            UsageError: One is a range.
        """
        ranges = [name for name, size in self.dims.items() if isinstance(size, range)]
        if ranges:
            raise UsageError(f"dims: {ranges[0]!r} is a range, where one size is needed; give a whole number")
        return {name: size for name, size in self.dims.items() if not isinstance(size, range)}


def _put(config: Any, **values: Any) -> None:
    """Put values into a new frozen settings object in the form that they are read in."""
    for name, value in values.items():
        object.__setattr__(config, name, value)


def _check_whole(name: str, value: Any, least: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}={value!r}: is not a whole number; give an integer")
    _check_number(name, value, least)


def _check_number(name: str, value: Any, least: float | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UsageError(f"{name}={value!r}: is not a number; give one")
    if least is not None and value < least:
        raise UsageError(f"{name}={value!r}: is out of range; at least {least:g} is needed")


def _check_choices(name: str, values: Iterable[Any], known: Sequence[str]) -> None:
    for value in values:
        if value not in known:
            raise UsageError(f"{name}={value!r}: is unknown; give one of {', '.join(known)}")


@dataclass(frozen=True, kw_only=True)
class ConfirmConfig:
    """How to make unit tests.

    Attributes:
        runs: Tests per operator, each with a seed of its own.
        seed: Seed of the first run; the others count up from it.
        timeout: Seconds for the search of one run, and again for its span.
        nodes: Test only the operator of this ONNX name, proved or not; may be repeated. By default, all that are not
            proved.
        descend: Let gradients lead the search; --random draws points instead, for comparison.
        span: Prove a span around each test: a box in which every point triggers.
        device: PyTorch device, such as cuda:1.
        processors: Threads of PyTorch and ONNX Runtime; by default one per core.
    """

    runs: Annotated[int, Option(group="search", least=1)] = 10
    seed: Annotated[int, Option(group="search")] = 0
    timeout: Annotated[float, Option(group="search", metavar="SECONDS", parse=parse_seconds)] = 10.0
    nodes: Annotated[tuple[str, ...] | None, Option("--node", group="search", metavar="NAME", gather=to_names)] = None
    descend: Annotated[bool, Option(group="search", off="--random")] = True
    span: Annotated[bool, Option(group="search", off="--no-span")] = True
    device: Annotated[str, Option(group="search")] = "cpu"
    processors: Annotated[int | None, Option("-p --processors --n_proc", group="search", least=1)] = None


@dataclass(frozen=True, kw_only=True)
class FixConfig:
    """How to repair a model.

    Attributes:
        by: Ways to repair: rewrite, guard, clip, or any; repeat, or separate by commas.
        at: Places for clips: operand, input, weight, any, or an ONNX node, whose output is clipped; may be repeated.
        nodes: Repair only the operator of this ONNX name; may be repeated. By default, all that are not proved.
        timeout: Time limit of everything but reading.
        samples: Largest number of inputs to run both models on, to measure how much outputs change.
        n_starts: Starting points of the search for counterexamples, before and after the repair.
        seed: Seed of all random choices.
        runtimes: Runtimes that proofs must cover: onnxruntime, torch, exact; repeat, or separate by commas.
    """

    by: Annotated[
        tuple[str, ...], Option(group="repair", metavar="WAY", parse=_parse_names(*_MEANS, "any"), gather=_unite_means)
    ] = _MEANS
    at: Annotated[tuple[str, ...], Option(group="repair", metavar="PLACE", gather=_unite_places)] = _PLACES
    nodes: Annotated[tuple[str, ...] | None, Option("--node", group="repair", metavar="NAME", gather=to_names)] = None
    timeout: Annotated[float, Option(group="repair", metavar="SECONDS", parse=parse_seconds)] = 60.0
    samples: Annotated[int, Option(group="repair")] = 256
    n_starts: Annotated[int, Option("--n_starts", group="repair")] = 20
    seed: Annotated[int, Option(group="repair")] = 0
    runtimes: Annotated[tuple[Runtime, ...], runtime_option("repair")] = RUNTIMES


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a network is trained from the weights in its file, by data that lead into the defect.

    Attributes:
        training: Search for training data, after which the trained model fails, instead of unit tests.
        optimizer: The optimiser of the training.
        learning_rate: Its learning rate.
        steps: Number of training steps; of more than 10, one batch is trained on in full, step after step.
        batches: Number of different batches, which the steps take in turn.
        clamp: Put trained weights back into the property's ranges after each step.
    """

    training: Annotated[bool, Option(group="training")] = False
    optimizer: Annotated[Literal["sgd", "momentum", "adam", "rmsprop", "adagrad"], Option(group="training")] = "sgd"
    learning_rate: Annotated[float, Option(group="training", metavar="RATE", parse=parse_rate)] = 1.0
    steps: Annotated[int, Option("--training-steps", group="training", least=1)] = 1
    batches: Annotated[int, Option(group="training", least=1)] = 1
    clamp: Annotated[bool, Option(group="training")] = False
