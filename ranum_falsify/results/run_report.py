"""The report of a run as one typed value: JSON reports are made from it, and read into it for every other form."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ranum_falsify.errors import UsageError
from ranum_falsify.network.fingerprint import Fingerprint
from ranum_falsify.results.counterexample import Saved
from ranum_falsify.results.grounds import Grounds, grounds_of
from ranum_falsify.results.precision import Float32, float32_of
from ranum_falsify.results.versions import versions
from ranum_falsify.suite.record import InstanceRecord
from ranum_falsify.verify.search.result import Answer, OperatorRecord, OperatorResult, SizeOutcome, Verdict

if TYPE_CHECKING:
    from ranum_falsify.verify.prove.precision import KeepList

FORMAT: Literal[1] = 1
"""Number of the form of JSON reports, which grows when a key changes its meaning or goes; see docs/json.md."""

STAGES = ("read", "reduce", "prove", "search", "replay")

Files: TypeAlias = Mapping[str, str]
"""The file of each input, relative to the report."""


@dataclass(frozen=True, kw_only=True)
class ReportedOperator(OperatorRecord[Files]):
    """What is known of one operator, with the files of the inputs that violate it."""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """What a run found, as `--json` writes it; docs/json.md explains it.

    Attributes:
        format: See `FORMAT`.
        verdict: The verdict.
        runtimes: What proofs cover; where violated, who confirmed it.
        operators: The operators in question, by names that are unique in the report.
        counterexample: Files of the first counterexample; None where none was written.
        seconds: Time by stage.
        seed: Seed of the search.
        starts: Starting points tried.
        steps: Descent steps done.
        ended_early: Why the run ended early; None where it did not.
        sizes: Where `--dim` gives ranges, the verdict of each combination.
        steep: Where the property holds and does not ask for derivatives: the operators that may have infinite ones.
        notices: What users should know.
        unconfirmed: What PyTorch saw and ONNX Runtime did not confirm.
        assumptions: What all of it rests on; None where reading took too long.
        versions: Versions of this program, Python and the packages.
        illustration: What a page draws; None where no page is asked for.
        float32: With `--dtype`, what must stay in float32.
    """

    format: Literal[1]
    verdict: Verdict
    runtimes: tuple[str, ...]
    operators: tuple[ReportedOperator, ...]
    counterexample: Files | None
    seconds: Mapping[str, float]
    seed: int
    starts: int
    steps: int
    ended_early: str | None
    steep: tuple[str, ...]
    notices: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    assumptions: Grounds | None
    versions: Mapping[str, str]
    # Keys that came later: reports without them can be read.
    sizes: tuple[SizeOutcome, ...] = ()
    illustration: Mapping[str, Any] | None = None
    float32: Float32 | None = None

    @property
    def violated(self) -> list[ReportedOperator]:
        """The operators that are violated."""
        return [operator for operator in self.operators if operator.verdict == "violated"]

    @property
    def models(self) -> Mapping[str, Fingerprint]:
        """The models, by the names of the networks."""
        return {} if self.assumptions is None else self.assumptions.networks


def make_report(
    result: Answer,
    saved: Saved,
    folder: Path,
    *,
    kept: KeepList | None = None,
    illustration: Mapping[str, Any] | None = None,
) -> RunReport:
    """Return the report of an answer.

    Args:
        result: What was found.
        saved: The files of the counterexamples.
        folder: Where the report will lie; file names are relative to it.
        kept: What must stay in float32.
        illustration: What a page draws.
    """
    several = len({operator.network for operator in result.operators}) > 1
    return RunReport(
        format=FORMAT,
        verdict=result.verdict,
        runtimes=_judges(result) if result.verdict == "violated" else result.runtimes,
        operators=tuple(_operator(operator, result, saved, folder, several) for operator in result.operators),
        counterexample=_make_relative(saved.of(result.counterexample), folder),
        seconds={stage: round(result.seconds.get(stage, 0.0), 6) for stage in STAGES},
        seed=result.seed,
        starts=result.starts,
        steps=result.steps,
        ended_early=result.interrupted or None,
        sizes=result.sizes,
        steep=result.steep,
        notices=result.notices,
        unconfirmed=result.unconfirmed,
        assumptions=grounds_of(result.assumptions),
        versions=versions(),
        illustration=illustration,
        float32=float32_of(kept),
    )


def _judges(result: Answer) -> tuple[str, ...]:
    """Return who confirmed violations."""
    oracles = {"torch" if one.oracle == "module" else str(one.oracle) for one in result.operators if one.oracle}
    return tuple(sorted(oracles or {"onnxruntime"}))


def _operator(operator: OperatorResult, result: Answer, saved: Saved, folder: Path, several: bool) -> ReportedOperator:
    violated_on = operator.runtimes or ((operator.oracle,) if operator.oracle else ())
    changed = {
        # Names are unique within a network only.
        "node": f"{operator.network}:{operator.node}" if several else operator.node,
        "runtimes": result.runtimes if operator.verdict == "proved" else violated_on,
        "counterexample": _make_relative(saved.of(operator.counterexample), folder),
    }
    return ReportedOperator(**(vars(operator) | changed))


def _make_relative(files: Mapping[str, Path] | None, folder: Path) -> Files | None:
    if files is None:
        return None
    return {name: Path(os.path.relpath(path, folder)).as_posix() for name, path in files.items()}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of reports, which `docs/report.schema.json` holds."""
    found = msgspec.json.schema(RunReport)
    for part in found["$defs"].values():
        part["description"] = inspect.cleandoc(part["description"])
        for field in part.get("properties", {}).values():
            if field.get("default") == {}:
                del field["default"]  # some versions of msgspec do not write it
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def report_of(record: InstanceRecord) -> RunReport | None:
    """Return the report of an instance, None where it came to none.

    Raises:
        UsageError: It is no report that this version writes.
    """
    if record.report is None:
        return None
    try:
        return msgspec.convert(record.report, RunReport, strict=False)
    except ValueError as error:
        raise UsageError(
            f"the report of {record.instance.id!r} is not in format {FORMAT} ({error}); use the version that wrote it"
        ) from error
