"""The page `REPAIRS.md`, written from what `bench_repairs.py` measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["page"]

_SAME = 1e-5
_HEAD = """# Repairs of {count} real defects

`scripts/bench_repairs.py` repairs the programs of the [zoo](docs/zoo.md), all operators of a program at once, by
rewrites alone, by guards alone, and by both, and writes this page from `REPAIRS.json`. [Repairs](docs/repairs.md) says
how. Programs count once for each of their defects.

| repaired by | proved | whole range kept | outputs change by at most 1e-5 | outputs the same, bit for bit | \
seconds of processor time |
|---|---|---|---|---|---|
{rows}

- **Proved**: by the ordinary prover, of the repaired model, for ONNX Runtime and PyTorch.
- **Whole range kept**: of the valid range of every tensor that a guard limits, to three digits, as a mean over its
  elements. Rewrites limit nothing.
- **Outputs**: the largest difference, divided by the largest number of the output, on as many of {samples} inputs as
  run in 4 s, with weights near the initial ones, on which the original is valid and no operand of a documented operator
  is within 1e-3 of what is invalid. Where the original loses digits, a rewrite that does not differs from it.
- **Seconds**: without the comparison of outputs. {machine}. {versions}.

| defect | rewrite | change of outputs | guards | range kept | change of outputs |
|---|---|---|---|---|---|
{table}
"""


def page(known: Mapping[str, Any]) -> str:
    """Return the page."""
    models: Sequence[Mapping[str, Any]] = known["models"]
    return _HEAD.format(
        count=sum(len(model["defects"]) for model in models),
        rows="\n".join(_rows(models)),
        table="\n".join(_table(models)),
        samples=1000,
        **known["facts"],
    )


def _rows(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = {"rewrite": "rewrites", "guard": "guards", "rewrite,guard": "rewrites, and guards for the rest"}
    for way, name in names.items():
        runs = [(len(model["defects"]), _run(model["ways"], way)) for model in models]
        done = [(count, run) for count, run in runs if run is not None and run["standing"] == "proved"]
        compared = [(count, run["outputs"]) for count, run in done if run["outputs"] is not None]
        counts = (
            sum(count for count, _ in done),
            sum(count for count, run in done if round(run["mean_kept"], 3) == 1),
            sum(count for count, outputs in compared if outputs["relative"] <= _SAME),
            sum(count for count, outputs in compared if outputs["equal"] == outputs["samples"]),
        )
        seconds = sum(run["cpu_s"] for _, run in runs if run is not None)
        yield f"| {name} | {' | '.join(map(str, counts))} | {seconds:.0f} |"


def _run(ways: Mapping[str, Any], way: str) -> Mapping[str, Any] | None:
    """Return what was measured of a way to repair; rewrites alone, where they are enough."""
    found: Mapping[str, Any] | None = ways.get(way, ways.get("rewrite") if way == "rewrite,guard" else None)
    return found


def _table(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for model in models:
        rewrite, guard = (model["ways"].get(way) or {"standing": None} for way in ("rewrite", "guard"))
        cells = [", ".join(model["defects"]), _changes(rewrite), _change(rewrite)]
        kept = f"{guard['mean_kept']:.3f}" if guard["standing"] else "-"
        yield f"| {' | '.join([*cells, _changes(guard), kept, _change(guard)])} |"


def _changes(run: Mapping[str, Any]) -> str:
    if run["standing"] is None:
        return "-"
    text = "; ".join(change.replace("|", "\\|") for change in run["changes"])
    return text if run["standing"] == "proved" else f"{text} ({run['standing']})"


def _change(run: Mapping[str, Any]) -> str:
    outputs = None if run["standing"] is None else run["outputs"]
    if outputs is None:
        return "-"
    return "none" if outputs["equal"] == outputs["samples"] else f"{outputs['relative']:.1g}"
