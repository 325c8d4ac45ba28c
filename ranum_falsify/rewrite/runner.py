"""Passes, run one after the other, each verified before the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from ranum_falsify.errors import TransformError
from ranum_falsify.rewrite.apply import apply_pass
from ranum_falsify.rewrite.catalogue import PassCall, find_pass
from ranum_falsify.rewrite.checks.comparing import check_metric, distance_of
from ranum_falsify.rewrite.checks.difference import DifferenceQuestion, Judgement, decide
from ranum_falsify.rewrite.checks.drawing import make_samples
from ranum_falsify.rewrite.checks.joining import Numbering
from ranum_falsify.rewrite.checks.runs import LEVELS, Runs, WeightFile
from ranum_falsify.rewrite.checks.samples import Sample, Sampled, compare_on_samples
from ranum_falsify.rewrite.checks.structure import passes_checker, structure_faults
from ranum_falsify.rewrite.config import TransformConfig
from ranum_falsify.rewrite.outcome import PassReport, PostconditionError, Transformed, VerificationError

SECONDS = 5.0
"""Time for the proof and the search after each pass, where nobody says how long."""


def transform(
    model: ir.Model,
    passes: Sequence[str],
    config: TransformConfig,
    *,
    folder: Path,
    before_pass: Callable[[int, str, ir.Model], None] | None = None,
    after_pass: Callable[[PassReport], None] | None = None,
) -> Transformed:
    """Run passes in the order given; each is verified, as far as its guarantee goes, before the next runs.

    Args:
        model: The model, which stays as it is.
        passes: Names of passes.
        config: How they are verified.
        folder: Where the model's external data lies.
        before_pass: Called with the number and the name of each pass, and the model that it will get.
        after_pass: Called with what each did.

    Raises:
        PostconditionError: A pass did not keep its promise.
        TransformError: A pass does not exist, or the model cannot be run on any sample.
        ReplayError: ONNX Runtime does not load the model.
    """
    calls = [find_pass(text) for text in passes]
    _check_metrics(calls, config)
    with Verification(model, config, folder) as verification:
        for number, call in enumerate(calls):
            if before_pass is not None:
                before_pass(number, call.text, verification.model)
            report = verification.step(call)
            if after_pass is not None:
                after_pass(report)
        return Transformed(
            model=verification.model,
            reports=verification.reports,
            notices=verification.notices,
            state=verification.state,
        )


def _check_metrics(calls: Sequence[PassCall], config: TransformConfig) -> None:
    for name in config.metrics:
        check_metric(name)
    wanting = [call.text for call in calls if call.spec.guarantee.kind == "metric"]
    if wanting and not config.metrics:
        raise TransformError(
            f"pass {wanting[0]!r} changes outputs, and nothing says by how much it may; "
            "set verify.metrics, such as max_abs_error: [0, 0.01]"
        )


class Verification:
    """A model on its way through passes, and its runs on samples."""

    def __init__(self, model: ir.Model, config: TransformConfig, folder: Path) -> None:
        self.model = model
        self.reports: list[PassReport] = []
        self.notices: list[str] = []
        self.state = dict(config.state)
        self._config = config
        self._folder = folder
        self._weights = WeightFile()
        self._runs = self._start(model)
        self._samples: Sequence[Sample] | None = None
        self._typical: Sample | None = None
        self._numbering = Numbering()
        self._checker = config.model_checker and passes_checker(model)
        if config.model_checker and not self._checker:
            self.notices.append("the ONNX checker refuses the model as it is, so it is not asked about what follows")

    def __enter__(self) -> Verification:
        return self

    def __exit__(self, *_: object) -> None:
        self._runs.close()
        self._weights.close()

    def step(self, call: PassCall) -> PassReport:
        """Run a pass and verify it; where it changes nothing, the model stays the very same.

        Raises:
            PostconditionError: It did not keep its promise.
        """
        report, candidate, runs = self._run(call)
        if candidate is not None and runs is not None:
            self._runs.close()
            self.model, self._runs = candidate, runs
        if report.found is not None:
            self.state[report.name] = report.found
        self.reports.append(report)
        return report

    def check(self, call: PassCall) -> PassReport:
        """Run a pass and verify it, and go back to the model before it.

        Raises:
            PostconditionError: It did not keep its promise.
        """
        report, _, runs = self._run(call)
        if runs is not None:
            runs.close()
        return report

    def _run(self, call: PassCall) -> tuple[PassReport, ir.Model | None, Runs | None]:
        """Run a pass and verify it; return its model and the runs of that, None where it changes nothing."""
        began = time.monotonic()
        applied = apply_pass(call, self.model, self.state)
        verified: Sequence[str] = ()
        largest, runs = 0.0, None
        if applied.model is not None:
            try:
                verified, largest, runs = self._verify(call, applied.model)
            except VerificationError as error:
                raise PostconditionError(call.text, checkpoint=self.model, reports=self.reports) from error
        report = PassReport(
            name=call.text,
            guarantee=call.spec.guarantee,
            is_modified=applied.model is not None,
            replaced=applied.replaced,
            refusals=applied.refusals,
            verified=verified,
            largest=largest,
            seconds=time.monotonic() - began,
            found=applied.found,
        )
        return report, applied.model, runs

    def _verify(self, call: PassCall, candidate: ir.Model) -> tuple[Sequence[str], float, Runs]:
        """Verify what a pass made; return how, the largest difference on samples, and the runs of the new model."""
        faults = structure_faults(self.model, candidate, checker=self._checker, changes_opset=call.spec.changes_opset)
        if faults:
            raise VerificationError("; ".join(faults))
        is_same = self._numbering.is_same(self.model, candidate)
        runs = self._start(candidate)
        decided: Sequence[str] = ()
        try:
            sampled = self._compare(runs, call)
            if not is_same:
                self._check_compared(call, sampled)
            if self._config.verify_timeout != 0 and not is_same:
                decided = self._decide(candidate, runs, call)
        except BaseException:
            runs.close()
            raise
        skipped = f" of {sampled.compared + sampled.skipped}" if sampled.skipped else ""
        how = f"sampled {sampled.compared}{skipped}"
        told = ("structure", "proved", how) if is_same else ("structure", how, *decided)
        return told, sampled.largest, runs

    def _compare(self, runs: Runs, call: PassCall) -> Sampled:
        if self._samples is None:
            drawn = make_samples(self.model, self._config, self._runs)
            self._samples, self._typical = drawn.samples, drawn.typical
            self.notices += drawn.notices
        sampled = compare_on_samples(self._runs, runs, self._samples, call.spec.guarantee, self._config)
        if sampled.fault is not None:
            raise VerificationError(sampled.fault.what, sampled.fault.inputs)
        if not sampled.compared:
            raise TransformError(
                f"pass {call.text!r} cannot be verified: on each of the {sampled.skipped} samples, operators of the "
                "model itself receive invalid input; give inputs that it is meant for with --box or --reference"
            )
        self._note(f"{call.text}: {notice}" for notice in sampled.notices)
        return sampled

    def _note(self, notices: Iterable[str]) -> None:
        self.notices += [notice for notice in notices if notice not in self.notices]

    def _check_compared(self, call: PassCall, sampled: Sampled) -> None:
        """Check that all outputs were compared."""
        for output in self.model.graph.outputs:
            if output.name not in sampled.outputs:
                raise TransformError(
                    f"pass {call.text!r} cannot be verified: output {output.name!r} ({output.type}) cannot be "
                    "compared; leave it out of the model, or turn it into a tensor of numbers"
                )

    def _decide(self, candidate: ir.Model, runs: Runs, call: PassCall) -> Sequence[str]:
        """Search for an input on which the models differ, or prove that there is none; return which of these.

        Where nobody asked for it, and it is not possible, nothing is said of it.
        """
        assert self._typical is not None
        config, guarantee = self._config, call.spec.guarantee

        def judge(inputs: Mapping[str, np.ndarray]) -> Judgement:
            # What seems to differ may be both NaN, or where the old model is not exact itself.
            found = compare_on_samples(self._runs, runs, [Sample(None, inputs, {})], guarantee, config)
            self._note(f"{call.text}: {notice}" for notice in found.notices)
            before, after = self._runs.run(inputs).levels, runs.run(inputs).levels
            apart = (distance_of(before[level].outputs, after[level].outputs, config.tolerance) for level in LEVELS)
            return Judgement(found.fault, max(apart))

        question = DifferenceQuestion(
            old=self.model,
            new=candidate,
            numbering=self._numbering,
            guarantee=guarantee,
            tolerance=config.tolerance,
            box=config.box,
            shapes={name: array.shape for name, array in self._typical.inputs.items()},
            timeout=SECONDS if config.verify_timeout is None else config.verify_timeout,
            seed=config.seed,
            threads=config.threads,
        )
        if question.obstacle and config.verify_timeout is None:
            return []
        if question.dims:
            self._note([f"proof and search take {', '.join(f'{name} = {n}' for name, n in question.dims.items())}"])
        decision = decide(question, judge)
        if decision.fault is not None:
            raise VerificationError(decision.fault.what, decision.fault.inputs)
        return [decision.how]

    def _start(self, model: ir.Model) -> Runs:
        config = self._config
        runs = Runs(
            model,
            self._folder,
            self._weights,
            threads=config.threads,
            timeout=config.timeout,
            providers=config.providers,
        )
        runs.start()
        return runs
