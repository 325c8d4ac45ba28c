"""The page `benchmarks/repairs.md`, written from what `bench_repairs.py` measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.bench.hazardous_page import section
from ranum_falsify.zoo.facts import DEVELOPER_FIXES

__all__ = ["page"]

_SAME = 1e-5
_HEAD = """# Repairs of {count} real defects

`scripts/bench_repairs.py` repairs the programs of the [zoo](../docs/zoo.md), all operators of a program at once, by
rewrites and by guards, and writes this page from `repairs.json`. [Repairs](../docs/repairs.md) says how. Programs count
once for each of their defects.

| repaired by | proved | whole range kept | no output farther from its meaning | outputs differ by at most 1e-5 | \
outputs the same, bit for bit |
|---|---|---|---|---|---|
{rows}

- **Best**: what `fix` offers first; of {best_rewrites} defects a rewrite, of {best_guards} guards, of {best_both} both.
- **Proved**: by the ordinary prover, of the repaired model, for ONNX Runtime and PyTorch.
- **Whole range kept**: of the valid range of every tensor that a guard limits, to three digits, as a mean over its
  elements. Rewrites limit nothing.
- **Outputs**: the largest difference, divided by the largest number of the output, on as many of {samples} inputs as
  run in some seconds, with weights near the initial ones, on which the original is valid and no operand of a documented
  operator is within 1e-3 of what is invalid. Where outputs differ by more than 1e-5, both models are compared with the
  original in double precision: *meaning*. Where it is the original that is wrong, as where 1 - p has lost its digits, a
  rewrite that is right moves outputs, but none away from its meaning; both errors are given then.
- All repairs were found in {seconds:.0f} s of processor time, without the comparison of outputs. {machine}. {versions}.

| defect | rewrite | change of outputs | guards | range kept | change of outputs |
|---|---|---|---|---|---|
{table}

## Beside the developers' own changes

{changed} of the {count} defects have a documented change of developers that a graph can express, or one that is
held equivalent (a star). *Better* is what `fix` would rank first: proved, no output farther from its meaning, the wider
range, gradients, fewer operations. Ours: {ours}; equal: {equal}; theirs: {theirs}.

| defect | whose | change | proved | change of outputs | range kept | gradient | operations | better |
|---|---|---|---|---|---|---|---|---|
{developers}

The others have nothing to compare with:

| defects | why |
|---|---|
{reasons}
"""


def page(known: Mapping[str, Any]) -> str:
    """Return the page."""
    hazardous = section(known.get("hazardous", ()))
    models: Sequence[Mapping[str, Any]] = known.get("models", ())
    if not models:
        return hazardous.lstrip()
    best = Counter[str]()
    for model in models:
        found = model["ways"]["best"]
        best[" ".join(found["kinds"]) if found else ""] += len(model["defects"])
    compared = [theirs for model in models for theirs in model["developers"].values() if theirs is not None]
    better = Counter(theirs["better"] for theirs in compared)
    text = _HEAD.format(
        count=sum(len(model["defects"]) for model in models),
        rows="\n".join(_rows(models)),
        table="\n".join(_table(models)),
        samples=1000,
        seconds=sum(model["cpu_s"] for model in models),
        best_rewrites=best["rewrite"],
        best_guards=best["guard"],
        best_both=best["rewrite guard"],
        changed=len(compared),
        developers="\n".join(_developers(models)),
        reasons="\n".join(_reasons(models)),
        ours=better["ours"],
        equal=better["none"],
        theirs=better["theirs"],
        **known["facts"],
    )
    return text + hazardous


def _rows(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for way, name in {"rewrite": "rewrites", "guard": "guards", "best": "the best"}.items():
        runs = [(len(model["defects"]), model["ways"][way]) for model in models]
        done = [(count, run) for count, run in runs if run is not None and run["standing"] == "proved"]
        compared = [(count, run["outputs"]) for count, run in done if run["outputs"] is not None]
        counts = (
            sum(count for count, _ in done),
            sum(count for count, run in done if round(run["mean_kept"], 3) == 1),
            sum(count for count, outputs in compared if outputs["away"] == 0),
            sum(count for count, outputs in compared if outputs["relative"] <= _SAME),
            sum(count for count, outputs in compared if outputs["equal"] == outputs["samples"]),
        )
        yield f"| {name} | {' | '.join(map(str, counts))} |"


def _table(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for model in models:
        rewrite, guard = (model["ways"][way] for way in ("rewrite", "guard"))
        cells = [", ".join(model["defects"]), _changes(rewrite), _change(rewrite)]
        kept = f"{guard['mean_kept']:.3f}" if guard else "-"
        yield f"| {' | '.join([*cells, _changes(guard), kept, _change(guard)])} |"


def _developers(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for model in models:
        for defect, theirs in model["developers"].items():
            if theirs is None:
                continue
            star = "" if DEVELOPER_FIXES[defect].exact else " *"
            winner = {"ours": "ours", "theirs": "theirs", "none": "equal"}[theirs["better"]]
            status = f"{_changes(theirs)} ({DEVELOPER_FIXES[defect].status}){star}"
            yield f"| {defect} | theirs | {status} | {_costs(theirs)} | |"
            ours = model["ways"]["best"]
            yield f"| | ours | {_changes(ours)} | {_costs(ours)} | {winner} |"


def _costs(run: Mapping[str, Any]) -> str:
    open_ones = f"no: {', '.join(run['left'][:2])}{' and more' if len(run['left']) > 2 else ''}"
    cells = [
        "yes" if run["standing"] == "proved" else open_ones,
        _change(run),
        f"{run['mean_kept']:.3g}",
        "kept" if run["keeps_gradient"] else "stopped beyond a limit",
        f"{run['operations']:+d}",
    ]
    return " | ".join(cells)


def _reasons(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for model in models:
        for defect, theirs in model["developers"].items():
            if theirs is None:
                by_reason.setdefault(DEVELOPER_FIXES[defect].detail, []).append(defect)
    for reason, defects in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        yield f"| {', '.join(defects)} | {reason} |"


def _changes(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return "-"
    return "; ".join(change.replace("|", "\\|") for change in run["changes"])


def _change(run: Mapping[str, Any] | None) -> str:
    outputs = None if run is None else run["outputs"]
    if outputs is None:
        return "-"
    if outputs["equal"] == outputs["samples"]:
        return "none"
    change = f"{outputs['relative']:.1g}" if math.isfinite(outputs["relative"]) else "from 0"
    if outputs["errors"] is None:
        return change
    before, after = outputs["errors"]
    return f"{change} (errors: {before:.1g} before, {after:.1g} after)"
