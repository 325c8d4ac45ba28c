"""The command `check-proof`: whether a proof file shows what is asked of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np

from ranum_falsify.cli.files import load_files
from ranum_falsify.cli.options.questions import CheckProofOptions
from ranum_falsify.cli.output import say
from ranum_falsify.errors import UsageError, reason_of
from ranum_falsify.network.messages import show_range

if TYPE_CHECKING:
    from ranum_falsify.checker.check import Followed
    from ranum_falsify.checker.question import ModelQuestion, ProofFile, Range

_NOT_COVERED = (
    "not covered: processors other than x86-64, providers other than the CPU's, kernels that do not compute what their "
    "operator says"
)


def run(options: CheckProofOptions) -> int:
    """Run the command."""
    from ranum_falsify.checker.question import ProofFile, ProofRejectedError  # imports onnx
    from ranum_falsify.network.resource_limits import memory_limit

    (model,) = options.networks.values()
    try:
        with memory_limit(options.memory):
            proof = ProofFile.read(options.proof)
            question = _ask(options, model)
            more = proof.compare(question)
            checked = list(_check(question, proof))
    except ProofRejectedError as error:
        say([f"rejected: {error}"])
        return 1
    except OSError as error:
        raise UsageError(f"{error.filename or options.proof}: cannot be read ({reason_of(error)})") from error
    say([*_describe_verdict(checked, question), *_describe_question(question, model)])
    say([*(line for one in checked for line in one.describe()), *(f"note: {one}" for one in more), _NOT_COVERED])
    return 0 if all(one.is_shown for one in checked) else 3


# the question ---------------------------------------------------------------------------------------------------------


def _ask(options: CheckProofOptions, model: Path) -> ModelQuestion:
    from ranum_falsify.checker.question import QuestionError, ask

    if options.property_path is not None:
        ranges, free = _ranges_of_property(options)
    else:
        box = options.box or {}
        ranges, free = {name: one if isinstance(one, tuple) else (one, one) for name, one in box.items()}, options.free
    try:
        return ask(model.read_bytes(), ranges, sizes=options.sizes, runtimes=options.runtimes, free=free)
    except QuestionError as error:
        raise UsageError(f"check-proof: {error}") from error


def _ranges_of_property(options: CheckProofOptions) -> tuple[Mapping[str | EllipsisType, Range], Sequence[str]]:
    """Return what a property says that inputs range over, and the weights among them."""
    problem = load_files(options, options.sizes).problem
    if not problem.is_pure_validity or len(problem.calls) != 1 or len(problem.regions) != 1:
        raise UsageError(f"{options.property_path}: asks for more than valid operators in one box; no proof is of that")
    ((call,), (region,)) = problem.calls, problem.regions
    bounds = {variable.name: (variable.lower, variable.upper) for variable in region}
    ranges: dict[str | EllipsisType, Range] = {
        name: bounds[variable]
        for name, variable in zip(call.graph.input_names, call.variables, strict=True)
        if variable
    }
    return ranges, tuple(call.graph.options.free)


# the answer -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Checked:
    """What came of one form of the model; None where there is none, with the reason."""

    label: str
    found: Followed | None
    reason: str = ""

    @property
    def is_shown(self) -> bool:
        return self.found is not None and not self.found.open

    def describe(self) -> Iterator[str]:
        if self.found is None:
            yield f"{self.label}: not checked, because {self.reason}"
            return
        can_fail = len(self.found.failing)
        parts = f", in {self.found.parts} parts of the box" if self.found.parts > 1 else ""
        shown = f"{can_fail - len(self.found.open)} of {can_fail} operators that can fail are shown not to{parts}"
        yield f"{self.label}: {shown}; operators: {self.found.total}"
        yield from (f"  not shown: {title}: {why}" for title, why in self.found.open.items())


def _check(question: ModelQuestion, proof: ProofFile) -> Iterator[_Checked]:
    from ranum_falsify.checker.check import check_model

    yield _Checked("the model", check_model(question, proof))
    if "onnxruntime" in question.runtimes:
        from ranum_falsify.network.model_file import free_model
        from ranum_falsify.network.optimised import optimise_model  # imports torch
        from ranum_falsify.selfcheck import release_of

        label = f"what ONNX Runtime {release_of('onnxruntime')} makes of it here"
        rewritten, reason = optimise_model(free_model(question.model, tuple(question.free)))
        yield _Checked(label, None if rewritten is None else check_model(question, proof, rewritten), reason)


def _describe_verdict(checked: Sequence[_Checked], question: ModelQuestion) -> Iterator[str]:
    runtimes = ", ".join(question.runtimes)
    if all(one.is_shown for one in checked):
        yield f"accepted for {runtimes}: no operator makes NaN or infinity"
    else:
        yield f"not checked for {runtimes}: operators that can fail are not all shown not to"


def _describe_question(question: ModelQuestion, model: Path) -> Iterator[str]:
    yield f"model: {model} (sha256 {question.sha256[:12]})"
    for name, box in question.inputs.items():
        kind = f"{'weight ' if name in question.free else ''}{name}: {box.dtype.name} {list(box.lower.shape)}"
        if not box.lower.size:
            yield f"box: {kind}"
            continue
        alike = all((end == end.flat[0]).all() for end in (box.lower, box.upper))
        apart = "" if alike else ", in ranges that differ from element to element"
        fixed = int(np.count_nonzero(box.lower == box.upper))
        apart += f", {fixed} of {box.lower.size} fixed" if 0 < fixed < box.lower.size else ""
        yield f"box: {kind} {show_range(box.lower.min().item(), box.upper.max().item())}{apart}"
    for name, size in question.sizes.items():
        yield f"size: {name} = {size}" + (
            f", assumed; --dim {name}=SIZE asks about another" if name in question.assumed else ""
        )
