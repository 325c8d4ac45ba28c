"""The page `BENCHMARKS.md`, written from what `bench_zoo.py` measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["page"]

_HEAD = """# {count} real defects

Numerical defects of {programs} real programs, rebuilt by `ranum-falsify zoo`. `scripts/bench_zoo.py` measures them and
writes this page from `BENCHMARKS.json`; nothing in it is typed by hand.

- **Detected**: one interval analysis over all inputs in their ranges, with all weights free, leaves the documented
  operator open.
- **Twin**: the same analysis of the repaired model, in which it is to prove every operator.
- **Unit tests**: of {runs} runs from different seeds, how many found inputs and weights that make the documented
  operator invalid on ONNX Runtime. *Alone*: no operator before it is invalid too.
- **Spans**: how many of them have a box around them in which every point is proved to trigger, and how far it reaches
  to each side, as a share of the ranges.
- **Random**: as many runs with points drawn at random, for as long as a run may take ({timeout:g} s).

Machine: {machine}. {versions}. Command: `{command}`.

"""

_PUBLISHED = """## Totals, and published ones beside them

| tool | detected | unit tests that trigger | seconds per run | source |
|---|---|---|---|---|
{ours}
| RANUM | 79 of 79 in about 3 s | 733 of 790 | 17.3 | ICSE 2023 |
| random sampling, by RANUM's authors | | 649 of 790 | 334 | ICSE 2023 |
| DEBAR | 48 of 79 | | | ICSE 2023 |
| GRIST | 78 of 79 | | | ICSE 2023 |

The published runs end with a trained system that fails, and the machines and model files differ: compare orders of
magnitude, not digits.

"""

_COLUMNS = (
    *("id", "program", "operator", "detected", "also open", "analysis ms (x inference)", "twin"),
    *("unit tests (alone)", "spans (reach)", "s per run", "random"),
)


def page(measured: Mapping[str, Any]) -> str:
    """Return the page as Markdown."""
    models: Sequence[Mapping[str, Any]] = measured["models"]
    defects = [defect for model in models for defect in model["defects"]]
    facts = measured["facts"]
    head = _HEAD.format(count=len(defects), programs=len({m["number"] for m in models}), **facts)
    published = _PUBLISHED.format(ours="\n".join(_totals(models, defects)))
    return head + published + "\n".join((*_detection(models), *_table(models))) + "\n"


def _totals(models: Sequence[Mapping[str, Any]], defects: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    detected = sum(m["detection"]["verdicts"][d["id"]] == "detected" for m in models for d in m["defects"])
    analysis = sum(m["detection"]["faulty"]["analysis_s"] for m in models)
    yield _runs_row(
        "**ranum-falsify**",
        f"**{detected} of {len(defects)}** in {analysis:.2f} s",
        [d["tests"] for d in defects if d.get("tests")],
    )
    yield _runs_row("random sampling, here", "", [d["random"] for d in defects if d.get("random")])


def _runs_row(tool: str, detected: str, tests: Sequence[Mapping[str, Any]]) -> str:
    seconds = [second for test in tests for second in test["seconds"]]
    if not seconds:
        return f"| {tool} | {detected} | | | this page |"
    triggered = f"{sum(t['triggered'] for t in tests)} of {sum(t['runs'] for t in tests)}"
    time = f"median {statistics.median(seconds):.2f}, mean {statistics.mean(seconds):.2f}"
    return f"| {tool} | {detected} | {triggered} | {time} | this page |"


def _detection(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    faulty, twins = ([m["detection"][side] for m in models] for side in ("faulty", "repaired"))
    numbers = {m["number"] for m in models}
    unproved = {m["number"] for m, twin in zip(models, twins, strict=True) if _list_flagged(twin)}
    operators, flagged = sum(t["operators"] for t in twins), sum(len(_list_flagged(t)) for t in twins)
    seconds, first, of_twins = (
        sum(a[key] for a in side)
        for side, key in ((faulty, "analysis_s"), (faulty, "first_analysis_s"), (twins, "analysis_s"))
    )
    ratios = [a["analysis_s"] / a["inference_s"] for a in faulty]
    yield "## Detection\n"
    yield f"- models: {len(models)} of {len(numbers)} programs"
    yield f"- analysis of all models: {seconds:.2f} s (the first of each {first:.2f} s); of all twins {of_twins:.2f} s"
    yield (
        f"- beside one ONNX Runtime inference: {seconds / sum(a['inference_s'] for a in faulty):.2f} times as long in "
        f"total, {statistics.median(ratios):.0f} times in the median model, most of which are tiny"
    )
    yield f"- twins: {len(numbers - unproved)} of {len(numbers)} programs entirely proved"
    yield f"- false alarms: {flagged} of the {operators} operators of the twins ({100 * flagged / operators:.1f} %)\n"


def _list_flagged(analysis: Mapping[str, Any]) -> list[str]:
    return [*analysis["open"], *analysis["after"]]


def _table(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "## By defect\n"
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "|---" * len(_COLUMNS) + "|"
    for model in models:
        for defect in model["defects"]:
            yield _row(model, defect)


def _row(model: Mapping[str, Any], defect: Mapping[str, Any]) -> str:
    found = model["detection"]
    faulty, repaired = found["faulty"], found["repaired"]
    others = [node for node in faulty["open"] if node != defect["node"]]
    ratio = f" ({faulty['analysis_s'] / faulty['inference_s']:.1f})" if faulty["inference_s"] else ""
    left = _list_flagged(repaired)
    tests, random = defect.get("tests"), defect.get("random")
    return (
        f"| {defect['id']} | {model['program']} | {defect['operator']} `{defect['node']}` "
        f"| {'yes' if found['verdicts'][defect['id']] == 'detected' else found['verdicts'][defect['id']]} "
        f"| {', '.join(others)} | {1e3 * faulty['analysis_s']:.1f}{ratio} "
        f"| {'proved' if not left else 'open: ' + ', '.join(left)} "
        f"| {_runs(tests)} | {_spans(tests)} | {_seconds(tests)} "
        f"| {'' if random is None else random['triggered']} |"
    )


def _runs(tests: Mapping[str, Any] | None) -> str:
    if tests is None:
        return ""
    flushed = ", denormals flushed" if tests["flushed"] else ""
    return f"{tests['triggered']} ({tests['alone']}{flushed})"


def _spans(tests: Mapping[str, Any] | None) -> str:
    if tests is None or tests["radius"] is None:
        return "" if tests is None else "0"
    return f"{tests['spans']} ({tests['radius']:.2g})"


def _seconds(tests: Mapping[str, Any] | None) -> str:
    return "" if tests is None else f"{statistics.median(tests['seconds']):.2f}"
