"""The samples that two models are compared on: what the user gives, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import onnx_ir as ir

from ranum_falsify.errors import ReplayCrashError, ReplayTimeoutError, TransformError
from ranum_falsify.transform.checks.comparing import compare
from ranum_falsify.transform.checks.inputs import InputSpec, draw_inputs, draw_special_inputs, input_specs
from ranum_falsify.transform.checks.landmarks import landmarks_of
from ranum_falsify.transform.checks.runs import Runs
from ranum_falsify.transform.checks.samples import Sample
from ranum_falsify.transform.config import Reference, TransformConfig
from ranum_falsify.transform.guarantee import Guarantee

__all__ = ["Drawn", "make_samples"]

_SIZES = (2, 1, 32, 512)  # of symbolic dimensions: the first with which the model runs
_TRIED = 4  # samples that must run before others are drawn
_MOST_DRAWN, _LEAST_DRAWN = 64, 8  # one of each kind, at least
_BUDGET = 0.4  # seconds of a core for the runs of one model, unless a number of samples is asked for
_SPECIAL = 3


@dataclass(frozen=True)
class Drawn:
    """Samples, and what to know of them."""

    samples: Sequence[Sample]
    notices: Sequence[str] = ()


def make_samples(model: ir.Model, config: TransformConfig, runs: Runs) -> Drawn:
    """Return the samples of a model: the references first.

    Args:
        model: The model before the first pass.
        config: What is asked for.
        runs: Its runs.

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
    return Drawn(samples, notices)


def _draw(model: ir.Model, config: TransformConfig, runs: Runs, *, first: int) -> tuple[list[Sample], Sequence[str]]:
    """Return drawn samples, symbolic dimensions of the first size with which the model runs.

    Args:
        model: The model.
        config: What is asked for.
        runs: The model's runs.
        first: The key of the first.

    Raises:
        TransformError: It runs with no size.
    """
    specs = input_specs(model)
    names = {dim for spec in specs for dim in spec.shape if isinstance(dim, str)}
    _check_names("--dim", config.dims, names)
    _check_names("--box", config.box, {spec.name for spec in specs})
    why = ""
    for size in _SIZES:
        sizes = partial(InputSpec.sized, dims=config.dims, default=size)
        samples, error = _try_samples(_Source(specs, sizes, landmarks_of(model), config, first), runs)
        if not error:
            free = sorted(names - config.dims.keys())
            told = [f"dimensions taken as {size} in samples: {', '.join(free)}"] if free else []
            return samples, told
        why = why or error
        if not names - config.dims.keys():
            break
    raise TransformError(f"no samples can be drawn ({why}); give inputs with --reference, or sizes with --dim")


@dataclass(frozen=True)
class _Source:
    """What samples are drawn from."""

    specs: Sequence[InputSpec]
    sizes: Callable[[InputSpec], tuple[int, ...]]
    landmarks: Sequence[float]
    config: TransformConfig
    first: int

    def draw(self) -> Iterator[Sample]:
        """Yield ordinary samples."""
        count = _MOST_DRAWN if self.config.samples is None else self.config.samples
        drawn = draw_inputs(
            self.specs,
            count,
            box=self.config.box,
            sizes=self.sizes,
            seed=self.config.seed,
            landmarks=self.landmarks,
        )
        for key, inputs in enumerate(drawn, start=self.first):
            yield Sample(key, inputs, {})

    def draw_special(self) -> Iterator[Sample]:
        """Yield samples that are not finite."""
        drawn = draw_special_inputs(self.specs, _SPECIAL, box=self.config.box, sizes=self.sizes, seed=self.config.seed)
        for number, inputs in enumerate(drawn):
            yield Sample(-1 - number, inputs, {}, is_finite=False)


def _try_samples(source: _Source, runs: Runs) -> tuple[list[Sample], str]:
    """Return samples, as many as may be run, and why the model does not run on them, empty where it does."""
    drawing = source.draw()
    samples = list(islice(drawing, _TRIED))
    costs = []
    for sample in samples:
        run = runs.run(sample.inputs, sample.key)
        if run.error:
            runs.forget()
            return [], run.error
        costs.append(run.seconds)
    if source.config.samples is None:
        affordable = int(_BUDGET / max(min(costs), 1e-9))
        drawing = islice(drawing, max(affordable, _LEAST_DRAWN) - _TRIED)
    drawn = [*samples, *drawing]
    special = islice(source.draw_special(), -(-len(drawn) * _SPECIAL // _MOST_DRAWN))
    return [*drawn, *(sample for sample in special if _runs_on(sample, runs))], ""


def _runs_on(sample: Sample, runs: Runs) -> bool:
    """Tell whether the model runs on a sample that few models are made for."""
    try:
        return not runs.run(sample.inputs, sample.key).error
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
    """Return a reference array in the element type of its tensor.

    Raises:
        TransformError: It has another one, or another shape.
    """
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
    if run.error:
        raise TransformError(f"reference: the model does not run on it ({run.error})")
    difference = compare(sample.expected, run.outputs, Guarantee(kind="tolerance"), config.tolerance)
    if difference is not None:
        raise TransformError(
            f"reference: the model, before any pass, does not give output {difference.output!r} ({difference}); "
            "give outputs of this model, or widen verify.tolerance"
        )


def _check_deterministic(sample: Sample, runs: Runs) -> None:
    first, again = runs.run(sample.inputs, sample.key), runs.run(sample.inputs)
    if compare(first.outputs, again.outputs, Guarantee(kind="equality"), TransformConfig().tolerance) is not None:
        raise TransformError("the model draws random numbers, so that no two runs can be compared; remove the draws")
