"""The JSON report of `transform` and `simplify`: one object, the same keys whatever came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ranum_falsify.results.versions import versions
from ranum_falsify.rewrite.outcome import PassReport

FORMAT = 1
"""Number of the form of these reports; see docs/transform.md."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A pass that did not keep its promise.

    Attributes:
        name: The pass.
        why: What it did not keep.
        inputs: The files of the input that shows it, by input; empty where none is needed to see it.
        checkpoint: The file of the model before it.
    """

    name: str
    why: str
    inputs: Mapping[str, Path]
    checkpoint: Path


def transform_report(
    passes: Sequence[PassReport],
    *,
    output: Path | None = None,
    vnnlib: Path | None = None,
    operators: Mapping[str, int] | None = None,
    outside: Mapping[str, int] | None = None,
    notices: Sequence[str] = (),
    failure: Failure | None = None,
) -> dict[str, Any]:
    """Return the report.

    Args:
        passes: What each pass did that was verified.
        output: The file of the new model, None where it was not written.
        vnnlib: The file of the property.
        operators: How often each operator occurs in the new model.
        outside: Those that were not wanted.
        notices: What to know of it.
        failure: The pass that did not keep its promise.
    """
    return {
        "output": _text(output),
        "vnnlib": _text(vnnlib),
        "passes": [_pass(report) for report in passes],
        "failure": None if failure is None else _failure(failure),
        "operators": dict(operators or {}),
        "outside": dict(outside or {}),
        "notices": list(notices),
        "versions": versions(),
    }


def _pass(report: PassReport) -> dict[str, Any]:
    return {
        "name": report.name,
        "guarantee": asdict(report.guarantee),
        "modified": report.is_modified,
        "replaced": report.replaced,
        "left": [asdict(refusal) for refusal in report.refusals],
        "verified": list(report.verified),
        "largest_difference": report.largest if math.isfinite(report.largest) else "infinite",
        "found": report.found,
        "seconds": round(report.seconds, 6),
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "name": failure.name,
        "why": failure.why,
        "inputs": {name: str(path) for name, path in failure.inputs.items()},
        "checkpoint": str(failure.checkpoint),
    }


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
