"""The samples that two models are compared on: what the user gives, and what is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import onnx_ir as ir

from ranum_falsify.errors import ReplayCrashError, ReplayTimeoutError, TransformError
from ranum_falsify.rewrite.checks.comparing import compare
from ranum_falsify.rewrite.checks.inputs import (
    KINDS,
    InputSpec,
    draw_inputs,
    draw_special_inputs,
    input_specs,
    landmarks_of,
)
from ranum_falsify.rewrite.checks.runs import Runs
from ranum_falsify.rewrite.checks.samples import Sample
from ranum_falsify.rewrite.config import Reference, TransformConfig
from ranum_falsify.rewrite.verify import Guarantee

_SIZES = (2, 1, 3, 7)  # of symbolic dimensions: all with which the model runs
_LARGE = (32, 512)  # if it runs with none of these: the first with which it does
_APART = (3, 1)  # of one dimension, where the others have the first size
_MOST_APART = 8
_TRIED = 4  # samples that must run before others are drawn; two of each size, where there are several
_MOST_DRAWN, _LEAST_DRAWN = 64, 8  # one of each kind, at least
_BUDGET = 0.4  # seconds of a core for the runs of one model, unless a number of samples is asked for
_SPECIAL = 3


@dataclass(frozen=True)
class Drawn:
    """Samples, and what to know of them.

    Attributes:
        samples: The samples, those that the user gives first.
        typical: The one whose shapes proof and search take.
        notices: What to know.
    """

    samples: Sequence[Sample]
    typical: Sample
    notices: Sequence[str] = ()


def make_samples(model: ir.Model, config: TransformConfig, runs: Runs) -> Drawn:
    """Return the samples of a model: the references first.

    Raises:
        TransformError: There are none, references do not fit, or the model draws random numbers.
    """
    notices: list[str] = []
    given = [_sample(key, reference, model) for key, reference in enumerate(config.references)]
    for sample in given:
        _check_reference(sample, runs, config)
    drawn: list[Sample] = []
    if config.samples != 0:
        try:
            drawn, notice = _draw(model, config, runs, first=len(given))
            notices += notice
        except TransformError as error:
            if not given:
                raise
            notices.append(f"only the references are compared: {error}")
    samples = [*given, *drawn]
    if not samples:
        raise TransformError("there is nothing to verify passes on; ask for samples, or give inputs with --reference")
    _check_deterministic(samples[0], runs)
    return Drawn(samples, (drawn or given)[0], notices)


def _draw(model: ir.Model, config: TransformConfig, runs: Runs, *, first: int) -> tuple[list[Sample], Sequence[str]]:
    """Return drawn samples, symbolic dimensions of several sizes with which the model runs."""
    specs = input_specs(model)
    names = {dim for spec in specs for dim in spec.shape if isinstance(dim, str)}
    _check_names("--dim", config.dims, names)
    _check_names("--box", config.box, {spec.name for spec in specs})
    free = sorted(names - config.dims.keys())
    source = _Source(specs, landmarks_of(model), config, first)
    why = ""
    attempts: list[Sequence[_Sizes]] = [_choose_sizes(free), *([dict.fromkeys(free, size)] for size in _LARGE)]
    # Operators that refuse a sample may refuse its size, or, if they do with all sizes, its values.
    for lenient, choices in product((False, True), attempts if free else attempts[:1]):
        trial = _Trial(source, runs)
        trial.run(choices, lenient=lenient)
        if trial.taken:
            sizes = sorted({size for choice in trial.taken for size in choice.values()})
            told = f"dimensions taken as {', '.join(map(str, sizes))} in samples: {', '.join(free)}"
            return trial.complete(), [told] if free else []
        why = why or trial.refusal
        runs.forget()
    raise TransformError(f"no samples can be drawn ({why}); give inputs with --reference, or sizes with --dim")


_Sizes = Mapping[str, int]
"""Sizes of symbolic dimensions, by name."""


def _choose_sizes(free: Sequence[str]) -> list[_Sizes]:
    """Return sizes to try: of all dimensions the same, then one apart."""
    alike = [dict.fromkeys(free, size) for size in _SIZES[: len(_SIZES) if free else 1]]
    apart = [dict.fromkeys(free, _SIZES[0]) | {name: size} for size in _APART for name in free]
    return [*alike, *(apart[:_MOST_APART] if len(free) > 1 else [])]


@dataclass(frozen=True)
class _Source:
    """What samples are drawn from."""

    specs: Sequence[InputSpec]
    landmarks: Sequence[float]
    config: TransformConfig
    first: int

    @property
    def count(self) -> int:
        """How many samples there are at most."""
        return _MOST_DRAWN if self.config.samples is None else self.config.samples

    def obstacle(self, sizes: _Sizes) -> str:
        """Why there are no inputs of these sizes, empty where there are: bounds by element have sizes of their own."""
        for spec in self.specs:
            shape = self._shape(spec, sizes)
            for bound in self.config.box.get(spec.name, ()):
                if not _broadcasts(np.shape(bound), shape):
                    return f"the bounds of input {spec.name!r} have shape {list(np.shape(bound))}, not {list(shape)}"
        return ""

    def draw(self, number: int, sizes: _Sizes) -> Sample:
        """Return an ordinary sample."""
        box, seed = self.config.box, self.config.seed
        shape = partial(self._shape, sizes=sizes)
        inputs = draw_inputs(self.specs, number, box=box, sizes=shape, seed=seed, landmarks=self.landmarks)
        return Sample(self.first + number, inputs, {})

    def draw_special(self, number: int, sizes: _Sizes) -> Sample | None:
        """Return a sample that is not finite, None where the box allows none."""
        shape = partial(self._shape, sizes=sizes)
        inputs = draw_special_inputs(self.specs, number, box=self.config.box, sizes=shape, seed=self.config.seed)
        return None if inputs is None else Sample(-1 - number, inputs, {}, is_finite=False)

    def _shape(self, spec: InputSpec, sizes: _Sizes) -> tuple[int, ...]:
        return spec.sized({**sizes, **self.config.dims})


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


class _Trial:
    """Samples of several sizes, some of which are run to see whether the model runs with these.

    Attributes:
        taken: The sizes with which it does.
        refusal: Why it did not first, where it did not.
    """

    def __init__(self, source: _Source, runs: Runs) -> None:
        self._source = source
        self._runs = runs
        self._samples: list[Sample] = []
        self._number = 0
        self._costs: dict[int, float] = {}
        self._ended: set[int] = set()
        self.taken: list[_Sizes] = []
        self.refusal = ""

    def run(self, choices: Sequence[_Sizes], *, lenient: bool) -> None:
        """Run a few samples of each size, in turns, as long as there is time for so many."""
        left = dict(enumerate(choices))
        drawn: dict[int, list[Sample]] = {place: [] for place in left}
        for turn in range(max(2, _TRIED // len(choices))):
            if turn and self._is_slow and len(choices) > 1:
                break
            for place, sizes in [*left.items()]:
                if sum(map(len, drawn.values())) >= self._most:
                    break
                refusal = self._source.obstacle(sizes) or self._try(place, sizes, drawn)
                if refusal:
                    del left[place], drawn[place]
                    self._costs.pop(place, None)
                    self.refusal = self.refusal or refusal
        able = {place: samples for place, samples in drawn.items() if samples and (lenient or place in self._ended)}
        self.taken = [choices[place] for place in able]
        self._samples = [sample for samples in able.values() for sample in samples]

    def complete(self) -> list[Sample]:
        """Return these samples and others, as many as may be run, and such as are not finite."""
        while len(self._samples) < self._most:
            self._samples.append(self._source.draw(self._number, self._turn(self._number)))
            self._number += 1
        count = -(-len(self._samples) * _SPECIAL // _MOST_DRAWN)
        special = (self._source.draw_special(number, self._turn(number)) for number in range(count))
        return [*self._samples, *(sample for sample in special if sample is not None and self._is_run(sample))]

    @property
    def _most(self) -> int:
        """How many samples there may be, judging by what runs cost so far."""
        if self._source.config.samples is not None or not self._costs:
            return self._source.count
        cost = sum(self._costs.values()) / len(self._costs)
        return min(max(int(_BUDGET / max(cost, 1e-9)), _LEAST_DRAWN), self._source.count)

    @property
    def _is_slow(self) -> bool:
        """Whether there is no time for more samples than there must be."""
        return self._source.config.samples is None and bool(self._costs) and self._most <= _LEAST_DRAWN

    def _turn(self, number: int) -> _Sizes:
        """Return the sizes of a sample: where there is time for it, each kind of sample comes in each size."""
        if self._is_slow:
            return self.taken[0]
        return self.taken[(number + number // KINDS) % len(self.taken)]

    def _try(self, place: int, sizes: _Sizes, drawn: Mapping[int, list[Sample]]) -> str:
        """Run a sample, and return why the model does not run on it, empty where it does."""
        sample = self._source.draw(self._number, sizes)
        self._number += 1
        try:
            run = self._runs.run(sample.inputs, sample.key)
        except (ReplayCrashError, ReplayTimeoutError) as error:
            if not any(drawn.values()):
                raise
            return str(error)
        if run.plain.error:
            return run.plain.error
        drawn[place].append(sample)
        self._costs[place] = min(run.seconds, self._costs.get(place, run.seconds))
        stop = run.plain.stop
        if stop is None:
            self._ended.add(place)
        else:
            self.refusal = self.refusal or f"operator {stop.node!r} ({stop.op_type}) does not run"
        return ""

    def _is_run(self, sample: Sample) -> bool:
        """Tell whether the model runs on a sample that few models are made for."""
        try:
            return not self._runs.run(sample.inputs, sample.key).plain.error
        except (ReplayCrashError, ReplayTimeoutError):
            return False


def _check_names(option: str, given: Mapping[str, object], known: set[str]) -> None:
    unknown = sorted(given.keys() - known)
    if unknown:
        there = ", ".join(sorted(filter(None, known))) or "none"
        raise TransformError(f"{option}: the model's inputs have no {unknown[0]!r}; there are: {there}")


def _sample(key: int, reference: Reference, model: ir.Model) -> Sample:
    inputs = [value for value in model.graph.inputs if not value.is_initializer()]
    return Sample(
        key,
        _name_arrays("input", reference.inputs, inputs),
        _name_arrays("output", reference.outputs, list(model.graph.outputs)),
        is_given=True,
    )


def _name_arrays(
    kind: str, arrays: Sequence[np.ndarray] | Mapping[str, np.ndarray], values: Sequence[ir.Value]
) -> dict[str, np.ndarray]:
    """Return reference arrays by name, after checking that they fit."""
    names = [value.name or "" for value in values]
    if not isinstance(arrays, Mapping):
        if arrays and len(arrays) != len(names):
            raise TransformError(
                f"reference: {len(arrays)} {kind}s are given, the model has {len(names)} ({', '.join(names)})"
            )
        arrays = dict(zip(names, arrays, strict=False))
    fitting = {}
    for name, array in arrays.items():
        if name not in names:
            raise TransformError(f"reference: the model has no {kind} {name!r}; there are {', '.join(names)}")
        fitting[name] = _fit(kind, array, values[names.index(name)])
    if kind == "input" and len(arrays) < len(names):
        missing = next(name for name in names if name not in arrays)
        raise TransformError(f"reference: input {missing!r} is missing; give all inputs")
    return fitting


def _fit(kind: str, array: np.ndarray, value: ir.Value) -> np.ndarray:
    """Return a reference array in the element type of its tensor."""
    shape = value.shape
    fits = shape is None or (
        len(shape) == array.ndim
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(shape, array.shape, strict=True))
    )
    wanted = value.dtype.numpy() if value.dtype is not None else array.dtype
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)  # .npy files do not name bfloat16
    if not fits or array.dtype != wanted:
        raise TransformError(
            f"reference: {kind} {value.name!r} is {wanted}{shape}, the array given is {array.dtype}{list(array.shape)}"
        )
    return array


def _check_reference(sample: Sample, runs: Runs, config: TransformConfig) -> None:
    """Check that the model, before any pass, does what the user says it does."""
    run = runs.run(sample.inputs, sample.key)
    if run.plain.error:
        raise TransformError(f"reference: the model does not run on it ({run.plain.error})")
    difference = compare(sample.expected, run.plain.outputs, Guarantee(kind="tolerance"), config.tolerance)
    if difference is not None:
        raise TransformError(
            f"reference: the model, before any pass, does not give output {difference.output!r} ({difference}); "
            "give outputs of this model, or widen verify.tolerance"
        )


def _check_deterministic(sample: Sample, runs: Runs) -> None:
    first, again = runs.run(sample.inputs, sample.key), runs.run(sample.inputs)
    if (
        compare(first.plain.outputs, again.plain.outputs, Guarantee(kind="equality"), TransformConfig().tolerance)
        is not None
    ):
        raise TransformError("the model draws random numbers, so that no two runs can be compared; remove the draws")
