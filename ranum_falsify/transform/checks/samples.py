"""The outputs of two models on samples, and whether operators receive invalid input there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ranum_falsify.network.messages import show_range
from ranum_falsify.replay.replayer import Finding
from ranum_falsify.search.result import KIND_NAMES
from ranum_falsify.transform.checks.comparing import Difference, Tolerance, compare
from ranum_falsify.transform.checks.metrics import metric_faults
from ranum_falsify.transform.checks.runs import Runs, SampleRun
from ranum_falsify.transform.guarantee import Guarantee

__all__ = ["Limits", "Sample", "SampleFault", "Sampled", "compare_on_samples"]

_PERTURBED = 8
_MOST_USUAL = 100  # times the relative tolerance


@dataclass(frozen=True)
class Sample:
    """Inputs to compare two models on.

    Attributes:
        key: Its number among all samples, None if it is none of them.
        inputs: Arrays by input.
        expected: What the user says comes out, empty where that is the old model's matter.
        is_given: Whether the user gave it.
        is_finite: Whether it is for all guarantees; others hold only where inputs are finite.
    """

    key: int | None
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    is_given: bool = False
    is_finite: bool = True


@dataclass(frozen=True)
class Limits:
    """How far outputs may be apart.

    Attributes:
        tolerance: For passes with the guarantee `tolerance`.
        metrics: Least and greatest value by metric, for those with the guarantee `metric`.
    """

    tolerance: Tolerance
    metrics: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class SampleFault:
    """What a sample showed that the guarantee does not allow.

    Attributes:
        what: In one line.
        inputs: The sample, None where no single one shows it.
    """

    what: str
    inputs: Mapping[str, np.ndarray] | None = None


@dataclass(frozen=True)
class Sampled:
    """What came of comparing two models on samples.

    Attributes:
        compared: How many samples were compared.
        skipped: How many were not, because the old model does not run on them, or fails there itself.
        largest: The largest difference of an output, 0 where they are equal, allowed or not.
        fault: What the guarantee does not allow, None where all is well.
        outputs: Those that were compared: all but sequences, texts, and numbers that NumPy does not have.
    """

    compared: int
    skipped: int = 0
    largest: float = 0.0
    fault: SampleFault | None = None
    outputs: frozenset[str] = frozenset()


def compare_on_samples(
    old: Runs, new: Runs, samples: Sequence[Sample], guarantee: Guarantee, limits: Limits
) -> Sampled:
    """Compare two models on samples; of all faults, the one with the largest difference is told."""
    compared = skipped = 0
    largest = 0.0
    worst: tuple[float, SampleFault] | None = None
    pairs: list[tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]] = []
    for sample in samples:
        if not sample.is_finite and (worst is not None or not guarantee.everywhere):
            continue
        before = old.run(sample.inputs, sample.key)
        if before.error or (before.findings and not guarantee.everywhere):
            skipped += 1
            continue
        after = new.run(sample.inputs, sample.key)
        compared += 1
        if after.error:
            what = f"the new model does not run where the old one does ({after.error})"
            return Sampled(compared, skipped, fault=SampleFault(what, sample.inputs))
        largest = max(largest, _distance(before, after))
        fault = _fault(old, sample, before, after, guarantee, limits)
        if fault is not None and (worst is None or fault[0] > worst[0]):
            worst = fault[0], SampleFault(fault[1], sample.inputs)
        pairs.append(({**before.outputs, **sample.expected}, after.outputs))
    if worst is not None:
        return Sampled(compared, skipped, largest, worst[1])
    if guarantee.kind == "metric" and pairs:
        faults = metric_faults(pairs, limits.metrics)
        if faults:
            return Sampled(compared, skipped, largest, SampleFault(faults[0]))
    return Sampled(compared, skipped, largest, outputs=frozenset(name for before, _ in pairs for name in before))


def _distance(before: SampleRun, after: SampleRun) -> float:
    """Return the largest difference of an output; zeros of either sign are equal, and so are NaN."""
    difference = compare(before.outputs, after.outputs, Guarantee(kind="equality", signed_zero=False), Tolerance())
    return 0.0 if difference is None else difference.size


def _fault(
    old: Runs, sample: Sample, before: SampleRun, after: SampleRun, guarantee: Guarantee, limits: Limits
) -> tuple[float, str] | None:
    """Return how far a sample is off, and what it shows; None where it is all that was promised."""
    if after.findings and not before.findings:
        return np.inf, _invalid(after.findings[0])
    if guarantee.kind == "metric":
        missing = before.outputs.keys() - after.outputs.keys()
        return (np.inf, f"output {min(missing)!r} is missing") if missing else None
    for expected, guarantee_there in _expectations(sample, before, guarantee):
        difference = compare(expected, after.outputs, guarantee_there, limits.tolerance)
        if difference is not None and guarantee_there.kind == "tolerance" and not sample.is_given:
            for leeway in _leeways(old, sample.inputs, before, limits.tolerance):
                difference = compare(expected, after.outputs, guarantee_there, limits.tolerance, leeway)
                if difference is None:
                    break
        if difference is not None:
            return difference.size, _as_text(difference)
    return None


def _expectations(
    sample: Sample, before: SampleRun, guarantee: Guarantee
) -> Iterator[tuple[Mapping[str, np.ndarray], Guarantee]]:
    """Yield what must come out, and how exactly: what the user expects was computed elsewhere, so not to the bit."""
    yield before.outputs, guarantee
    if sample.expected:
        yield sample.expected, Guarantee(kind="tolerance")


def _invalid(finding: Finding) -> str:
    ranges = ", ".join(f"{name} {show_range(*limits)}" for name, limits in finding.operands.items())
    return (
        f"operator {finding.node!r} ({finding.op_type}) receives invalid input where the old model receives none: "
        f"it gives {KIND_NAMES[finding.kind]}" + (f" at {ranges}" if ranges else "")
    )


def _as_text(difference: Difference) -> str:
    return f"output {difference.output!r} not as expected: {difference}"


def _leeways(
    old: Runs, inputs: Mapping[str, np.ndarray], before: SampleRun, tolerance: Tolerance
) -> Iterator[dict[str, np.ndarray]]:
    """Yield how much further each element of the outputs may be away, because the old model is not exact itself.

    Where sums cancel, and where small numbers are lost on the way, the rounding of the old model is large beside its
    outputs; no tolerance relative to them says what is right.  The new model may be off by what a change of the inputs
    by the relative tolerance does, and by a small multiple of the error of the old one, as far as double precision
    tells it: of its error there, and of its usual and greatest error, because single elements may be right by chance.

    Each is more than the one before, and costs a run.
    """
    spread = {name: np.zeros(array.shape) for name, array in before.outputs.items()}
    for moved in _neighbours(inputs, tolerance):
        for name, array in old.run(moved).outputs.items():
            if array.shape == spread[name].shape:
                spread[name] = np.fmax(spread[name], _change(before.outputs[name], array))
        yield spread
    leeway = dict(spread)
    for name, exact in old.wide(inputs).items():
        if name in leeway and exact.shape == leeway[name].shape:
            error, size = _change(before.outputs[name], exact), np.abs(np.where(np.isfinite(exact), exact, 0.0))
            usual = float(np.median(error[size > 0] / size[size > 0])) if (size > 0).any() else 0.0
            most = _MOST_USUAL * tolerance.relative(before.outputs[name].dtype)
            # Elements of one output are sums of the same tensors, and so are their errors.
            noise = max(8 * float(np.median(error)), 2 * float(np.max(error))) if error.size else 0.0
            alike = min(noise, 8 * most * float(np.max(size, initial=0.0)))
            leeway[name] = leeway[name] + 2 * error + 8 * min(usual, most) * size + alike
    yield leeway


def _change(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return by how much elements differ; 0 where one is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        change = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return np.where(np.isfinite(change), change, 0.0)


def _neighbours(inputs: Mapping[str, np.ndarray], tolerance: Tolerance) -> Iterator[dict[str, np.ndarray]]:
    """Yield inputs whose floats differ by the relative tolerance, either way at random."""
    floats = {name for name, array in inputs.items() if array.dtype.kind == "f"}
    for number in range(_PERTURBED if floats else 0):
        rng = np.random.default_rng(number)
        yield {
            name: _move(array, tolerance.relative(array.dtype), rng) if name in floats else array
            for name, array in inputs.items()
        }


def _move(array: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    with np.errstate(over="ignore"):
        moved = (array * (1 + share * rng.choice((-1.0, 1.0), array.shape))).astype(array.dtype)
    return np.where(np.isfinite(moved), moved, array)
