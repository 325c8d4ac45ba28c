"""The report of `transform` and `simplify`: lines for people; one object as JSON, the same keys whatever came of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranum_falsify.results.plain import versions
from ranum_falsify.results.text import plural
from ranum_falsify.rewrite.outcome import PassReport

if TYPE_CHECKING:
    from ranum_falsify.rewrite.registry import PassSpec

_MOST_SHOWN = 5


def report_pass(report: PassReport, verbose: bool) -> Iterator[str]:
    """Yield what a pass did."""
    if report.is_modified:
        what = "changed the graph" if report.replaced is None else f"replaced {report.replaced}"
        yield f"{report.name}: {what}; {report.guarantee}: {', '.join(report.verified)}; {report.seconds:.2f} s"
    elif report.found is not None:
        yield f"{report.name}: found {report.found}"
    else:
        yield f"{report.name}: nothing to do"
    shown = report.refusals if verbose else report.refusals[:_MOST_SHOWN]
    yield from (f"  left: {refusal.node} ({refusal.op_type}): {refusal.reason}" for refusal in shown)
    if len(report.refusals) > len(shown):
        yield f"  left: {len(report.refusals) - len(shown)} more; -v shows all"


def summarise(
    output: Path, counts: Mapping[str, int], notices: Iterable[str], beside: Sequence[Path] = ()
) -> Iterator[str]:
    """Yield what was written, and what to know of it."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{name} {count}" for name, count in ordered)
    yield f"written: {output}: {plural(sum(counts.values()), 'node')}" + (f" ({listed})" if listed else "")
    yield from (f"written: {path}" for path in beside)
    yield from (f"notice: {notice}" for notice in notices)


def list_passes(passes: Sequence[PassSpec]) -> Iterator[str]:
    """Yield what there is to know of each pass."""
    for spec in passes:
        argument = f"=N (N: {spec.argument})" if spec.argument else ""
        yield f"{spec.name}{argument}"
        yield from (f"  {line}" for line in spec.description)
        yield f"  guarantee: {spec.guarantee if spec.is_promising else 'none, so that it cannot run'}"
        if spec.takes or spec.gives:
            yield f"  {', '.join(spec.takes) or 'any'} -> {', '.join(spec.gives) or 'nothing new'}"
        if spec.needs:
            yield f"  needs: {spec.needs}"


FORMAT = 1
"""Number of the form of these reports; see docs/transform.md."""


def transform_report(passes: Sequence[PassReport], **known: Any) -> dict[str, Any]:
    """Return the report."""
    found = {"output": None, "vnnlib": None, "passes": [_pass(report) for report in passes], "failure": None}
    return {**found, "operators": {}, "outside": {}, "notices": [], **known, "versions": versions()}


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
