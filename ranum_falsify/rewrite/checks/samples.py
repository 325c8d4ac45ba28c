"""The outputs of two models on samples, and whether operators receive invalid input there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ranum_falsify.network.messages import show_range
from ranum_falsify.rewrite.checks.comparing import Difference, Tolerance, compare, metric_faults
from ranum_falsify.rewrite.checks.runs import LEVELS, Level, LevelRun, Runs, SampleRun
from ranum_falsify.rewrite.config import TransformConfig
from ranum_falsify.rewrite.verify import Guarantee
from ranum_falsify.verify.replay.replayer import Finding
from ranum_falsify.verify.search.result import KIND_NAMES

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
        largest: The largest difference of an output at one level, 0 where they are equal, allowed or not.
        fault: What the guarantee does not allow, None where all is well.
        outputs: Those that were compared: all but sequences, texts, and numbers that NumPy does not have.
        notices: What ONNX Runtime's optimiser makes of the old model itself, as far as it counted.
    """

    compared: int
    skipped: int = 0
    largest: float = 0.0
    fault: SampleFault | None = None
    outputs: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()


def compare_on_samples(
    old: Runs, new: Runs, samples: Sequence[Sample], guarantee: Guarantee, config: TransformConfig
) -> Sampled:
    """Compare two models on samples, at each level of optimisations; of all faults, the largest difference is told."""
    skipped, largest = 0, 0.0
    worst: tuple[float, SampleFault] | None = None
    compared: list[_Comparison] = []
    for sample in samples:
        if not sample.is_finite and (worst is not None or not guarantee.everywhere):
            continue
        before = old.run(sample.inputs, sample.key)
        if before.plain.error or (before.plain.findings and not guarantee.everywhere):
            skipped += 1
            continue
        one = _Comparison(old, sample, before, new.run(sample.inputs, sample.key), guarantee, config)
        compared.append(one)
        largest = max(largest, one.distance)
        fault = one.fault
        if fault is not None and (worst is None or fault[0] > worst[0]):
            worst = fault[0], SampleFault(fault[1], sample.inputs)
            if worst[0] == np.inf:
                break
    count = len(compared)
    if worst is not None:
        return Sampled(count, skipped, largest, worst[1])
    what, notices = _judge_metrics(compared, config) if guarantee.kind == "metric" else ("", ())
    if what:
        return Sampled(count, skipped, largest, SampleFault(what))
    outputs = frozenset(name for one in compared for name in (*one.before.plain.outputs, *one.sample.expected))
    notices += tuple(notice for one in compared for notice in one.notices)
    return Sampled(count, skipped, largest, outputs=outputs, notices=tuple(dict.fromkeys(notices)))


@dataclass(frozen=True)
class _Comparison:
    """What two models did on one sample.

    At the default level, outputs may be those that the old model has there or those that it has without optimisations:
    where these differ, it is ONNX Runtime's optimiser that changed the old model, and not the pass.
    """

    old: Runs
    sample: Sample
    before: SampleRun
    after: SampleRun
    guarantee: Guarantee
    config: TransformConfig

    @property
    def distance(self) -> float:
        """The largest difference of an output; zeros of either sign are equal, and so are NaN."""
        pairs = ((self.before.levels[level], self.after.levels[level]) for level in LEVELS)
        found = (
            compare(was.outputs, now.outputs, Guarantee(kind="equality", signed_zero=False), Tolerance())
            for was, now in pairs
            if not now.error
        )
        return max((difference.size for difference in found if difference is not None), default=0.0)

    @property
    def fault(self) -> tuple[float, str] | None:
        """How far the sample is off, and what it shows; None where it is all that was promised."""
        plain, default = (self._fault_at(level) for level in LEVELS)
        if plain is None and default is not None:
            return default[0], f"{default[1]}; only with ONNX Runtime's default graph optimisations"
        return plain

    @property
    def notices(self) -> Iterator[str]:
        """What ONNX Runtime's optimiser makes of outputs, where they are not what the guarantee says to the letter."""
        was, now = self.before.levels["default"], self.after.levels["default"]
        if was.error and not now.error:
            yield f"at its default level, ONNX Runtime runs the new model alone: {was.error}"
        for name, array in was.outputs.items() if self.guarantee.kind != "metric" else ():
            if self._off(array, now, name, self.guarantee) < 0:
                continue
            own = compare({name: self.before.plain.outputs[name]}, was.outputs, _NEAR, self._tolerance)
            if own is not None and self._source(name, "default") == "plain":
                yield _OWN_FAULT.format(name=name, own=own)
            elif self.guarantee.kind == "equality":
                yield _ROUNDED.format(name=name)

    def expected(self, level: Level) -> Mapping[str, np.ndarray]:
        """Return what must come out: at the default level what the old model gives without, if it does not run."""
        was = self.before.levels[level]
        return {**(self.before.plain if was.error else was).outputs, **self.sample.expected}

    def _fault_at(self, level: Level) -> tuple[float, str] | None:
        was, now = self.before.levels[level], self.after.levels[level]
        if now.error:
            what = f"the new model does not run where the old one does ({now.error})"
            return None if was.error else (np.inf, what)
        if now.findings and not (was.findings or self.before.plain.findings):
            return np.inf, _invalid(now.findings[0])
        if self.guarantee.kind == "metric":
            missing = self.before.plain.outputs.keys() - now.outputs.keys()
            return (np.inf, f"output {min(missing)!r} is missing") if missing else None
        difference = self._difference(level) or self._difference_from_given(level)
        return (
            None
            if difference is None
            else (difference.size, (f"output {difference.output!r} not as expected: {difference}"))
        )

    def _difference(self, level: Level) -> Difference | None:
        """Return the largest difference that the guarantee does not allow."""
        promise = self._promise(level)
        sources = {name: self._source(name, level) for name in self.before.plain.outputs}
        expected = {name: self.before.levels[source].outputs[name] for name, source in sources.items()}
        actual = self.after.levels[level].outputs
        difference = compare(expected, actual, promise, self._tolerance)
        if difference is None or promise.kind != "tolerance" or self.sample.is_given:
            return difference
        for leeway in _leeways(self.old, self.sample.inputs, self.before, sources, self._tolerance):
            difference = compare(expected, actual, promise, self._tolerance, leeway)
            if difference is None:
                break
        return difference

    @property
    def _tolerance(self) -> Tolerance:
        """How far outputs may be apart; where they promise to be equal, so are NaN."""
        given = self.config.tolerance
        return replace(given, equal_nan=True) if self.guarantee.kind == "equality" else given

    def _promise(self, level: Level) -> Guarantee:
        """Return how exact outputs must be: what is equal to the bit may be fused otherwise, and then rounded."""
        return _NEAR if level == "default" and self.guarantee.kind == "equality" else self.guarantee

    def _source(self, name: str, level: Level) -> Level:
        """Return the level whose output of the old model must come out: where they differ, the nearer one."""
        was, now, promise = self.before.levels[level].outputs, self.after.levels[level], self._promise(level)
        if level == "plain" or name not in was:
            return "plain"
        off = self._off(was[name], now, name, promise)
        if off < 0:
            return level
        return "plain" if self._off(self.before.plain.outputs[name], now, name, promise) < off else level

    def _off(self, expected: np.ndarray, now: LevelRun, name: str, guarantee: Guarantee) -> float:
        """Return by how much an output is off, -1 where it is what the guarantee allows."""
        difference = compare({name: expected}, now.outputs, guarantee, self._tolerance)
        return -1.0 if difference is None else difference.size

    def _difference_from_given(self, level: Level) -> Difference | None:
        """Return the largest difference from what the user expects, which was computed elsewhere: not to the bit."""
        was, now = self.before.levels[level], self.after.levels[level]
        tolerance = self.config.tolerance
        met = {
            name: array
            for name, array in self.sample.expected.items()
            if compare({name: array}, was.outputs, _NEAR, tolerance) is None
        }
        return compare(met, now.outputs, _NEAR, tolerance)


_NEAR = Guarantee(kind="tolerance")
_ROUNDED = (
    "output {name!r} is equal to the bit without graph optimisations, and within the tolerance as ONNX Runtime's "
    "optimiser rounds"
)
_OWN_FAULT = (
    "at its default level, ONNX Runtime does not compute output {name!r} of the old model as without optimisations "
    "({own}); that of the new model is as without"
)


def _judge_metrics(compared: Sequence[_Comparison], config: TransformConfig) -> tuple[str, tuple[str, ...]]:
    """Return which metric is out of its limits at some level, empty where none is, and notices."""
    for level in LEVELS:
        able = [one for one in compared if not one.after.levels[level].error]
        pairs = [(one.expected(level), one.after.levels[level].outputs) for one in able]
        faults = metric_faults(pairs, config.metrics) if pairs else []
        if not faults:
            continue
        if level == "plain":
            return faults[0], ()
        pairs = [(one.expected("plain"), one.after.levels[level].outputs) for one in able]
        if metric_faults(pairs, config.metrics):
            return f"{faults[0]}; only with ONNX Runtime's default graph optimisations", ()
        return "", ("metrics at ONNX Runtime's default level are from the old model's outputs without optimisations",)
    return "", ()


def _invalid(finding: Finding) -> str:
    ranges = ", ".join(f"{name} {show_range(*limits)}" for name, limits in finding.operands.items())
    return (
        f"operator {finding.node!r} ({finding.op_type}) receives invalid input where the old model receives none: "
        f"it gives {KIND_NAMES[finding.kind]}" + (f" at {ranges}" if ranges else "")
    )


def _leeways(
    old: Runs,
    inputs: Mapping[str, np.ndarray],
    before: SampleRun,
    sources: Mapping[str, Level],
    tolerance: Tolerance,
) -> Iterator[dict[str, np.ndarray]]:
    """Yield how much further each element of the outputs may be away, because the old model is not exact itself.

    Where sums cancel, and where small numbers are lost on the way, the rounding of the old model is large beside its
    outputs; no tolerance relative to them says what is right.  The new model may be off by what a change of the inputs
    by the relative tolerance does, and by a small multiple of the error of the old one, as far as double precision
    tells it: of its error there, and of its usual and greatest error, because single elements may be right by chance.
    Errors are those without optimisations; one that the optimiser makes gives no leave.

    Each is more than the one before, and costs a run.
    """
    spread = {name: np.zeros(before.levels[source].outputs[name].shape) for name, source in sources.items()}
    for moved in _neighbours(inputs, tolerance):
        there = old.run(moved)
        for name, source in sources.items():
            array = there.levels[source].outputs.get(name)
            if array is not None and array.shape == spread[name].shape:
                spread[name] = np.fmax(spread[name], _change(before.levels[source].outputs[name], array))
        yield spread
    leeway = dict(spread)
    for name, exact in old.wide(inputs).items():
        if name in leeway and exact.shape == leeway[name].shape:
            plain = before.plain.outputs[name]
            error, size = _change(plain, exact), np.abs(np.where(np.isfinite(exact), exact, 0.0))
            usual = float(np.median(error[size > 0] / size[size > 0])) if (size > 0).any() else 0.0
            most = _MOST_USUAL * tolerance.relative(plain.dtype)
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
