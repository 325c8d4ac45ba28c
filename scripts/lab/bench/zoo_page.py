"""The page `benchmarks/zoo.md`, written from what `bench_zoo.py` measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lab.bench.zoo_developers import developers
from lab.bench.zoo_runs import PLACES

__all__ = ["page"]

_HEAD = """# {count} real defects

Numerical defects of {programs} real programs, rebuilt by `ranum-falsify zoo`. `scripts/bench_zoo.py` measures them and
writes this page from `benchmarks/zoo.json`; nothing in it is typed by hand.

- **Detected**: one interval analysis over all inputs in their ranges, with all weights free, leaves the documented
  operator open. *On data*: so it is, over the program's own data, where the zoo lets inputs range more widely.
- **Twin**: the same analysis of the repaired model, in which it is to prove every operator.
- **Unit tests**: of {runs} runs from different seeds, how many found inputs and weights that make the documented
  operator invalid on ONNX Runtime. *Alone*: no operator before it is invalid too.
- **Shows as**: what is not finite where not the operator's output is; whether the model's outputs are finite.
- **Spans**: how many of them have a box around them in which every point is proved to trigger, how far it reaches
  to each side, as a share of the ranges, and what share of all elements it holds fixed.
- **Random**: as many runs with points drawn at random, for as long as a run may take ({timeout:g} s).

Machine: {machine}. {versions}. Command: `{command}`.

"""

_PUBLISHED = """## Totals, and published ones beside them

A *unit test* chooses inputs and weights at which an operator fails; a *system test* chooses data with which training
leads there. Detection of all models here is one shot: building, reading and analysing each once.

| tool | detected | s of the processor | unit tests | seconds per run | system tests | seconds per run | source |
|---|---|---|---|---|---|---|---|
{ours}
| RANUM | 79 of 79 | about 3 | | | 733 of 790 | 17.3 | ICSE 2023 |
| random sampling, by RANUM's authors | | | | | 649 of 790 | 334 | ICSE 2023 |
| GRIST | 78 of 79 | | 766 of 790 | | | | RANUM's scripts |
| DEBAR | 48 of 79 | | | | | | ICSE 2023 |
| Soft Assertion Fuzzer | 79 of 79 | 0.646 a defect | | | | | FSE 2025 |

Machines and model files differ: compare orders of magnitude, not digits.  RANUM counts a model as detected if it flags
any operator of it; this page asks for the documented one.

"""

_COLUMNS = (
    *("id", "program", "operator", "detected", "on data", "also open", "analysis ms (x inference)", "twin"),
    *("unit tests (alone)", "shows as", "spans (reach; fixed)", "s per run", "random"),
)


def page(measured: Mapping[str, Any], system_tests: str = " | ") -> str:
    """Return the page as Markdown.

    Args:
        measured: The record.
        system_tests: How many of them are made, and in how many seconds, as two cells of a table.
    """
    models: Sequence[Mapping[str, Any]] = measured["models"]
    defects = [defect for model in models for defect in model["defects"]]
    facts = measured["facts"]
    head = _HEAD.format(count=len(defects), programs=len({m["number"] for m in models}), **facts)
    published = _PUBLISHED.format(ours="\n".join(_totals(models, defects, system_tests)))
    sections = [
        *_detection(models),
        *_ranges(models),
        *_twins(models),
        *_emulated(models),
        "## By defect\n",
        *_table(models),
        *developers(models),
        *_fuzzed(measured),
    ]
    return head + published + "\n".join(sections) + "\n"


def _totals(
    models: Sequence[Mapping[str, Any]], defects: Sequence[Mapping[str, Any]], system_tests: str
) -> Iterator[str]:
    detected = sum(m["detection"]["verdicts"][d["id"]] == "detected" for m in models for d in m["defects"])
    shot = sum(m["detection"]["faulty"]["one_shot_s"] for m in models)
    found = f"**{detected} of {len(defects)}** | {shot:.1f}"
    tests, drawn = (_cells_of([d.get(part) for d in defects]) for part in ("tests", "random"))
    yield f"| **ranum-falsify** | {found} | {tests} | {system_tests} | this page |"
    yield f"| random sampling, here | | | {drawn} | | | this page |"


def _cells_of(given: Sequence[Mapping[str, Any] | None]) -> str:
    """Return how many runs made a unit test, and their seconds, as two cells of a table."""
    tests = [test for test in given if test]
    seconds = [second for test in tests for second in test["seconds"]]
    if not seconds:
        return " | "
    triggered = f"{sum(t['triggered'] for t in tests)} of {sum(t['runs'] for t in tests)}"
    return f"{triggered} | median {statistics.median(seconds):.2f}, mean {statistics.mean(seconds):.2f}"


def _detection(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    faulty, twins = ([m["detection"][side] for m in models] for side in ("faulty", "repaired"))
    numbers = {m["number"] for m in models}
    unproved = {m["number"] for m, twin in zip(models, twins, strict=True) if _list_flagged(twin)}
    operators, flagged = sum(t["operators"] for t in twins), sum(len(_list_flagged(t)) for t in twins)
    seconds, shot, of_twins = (
        sum(a[key] for a in side)
        for side, key in ((faulty, "analysis_s"), (faulty, "one_shot_s"), (twins, "analysis_s"))
    )
    ratios = [a["analysis_s"] / a["inference_s"] for a in faulty]
    yield "## Detection\n"
    yield f"- models: {len(models)} of {len(numbers)} programs"
    yield f"- analysis of all models: {seconds:.2f} s (medians of 5); of all twins {of_twins:.2f} s"
    yield (
        f"- one shot of all models, which builds, reads and reduces each, and analyses it once: {shot:.2f} s of "
        "processor time"
    )
    yield (
        f"- beside one ONNX Runtime inference: {seconds / sum(a['inference_s'] for a in faulty):.2f} times as long in "
        f"total, {statistics.median(ratios):.0f} times in the median model, most of which are tiny"
    )
    yield f"- twins: {len(numbers - unproved)} of {len(numbers)} programs entirely proved"
    yield (
        f"- flagged in the twins: {flagged} of {operators} operators; a twin is repaired until it is proved, so that "
        "this says nothing of models at large"
    )
    yield from _precision(models)
    yield ""


def _precision(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how many operators that the analysis leaves open in the programs' own models can be made to fail."""
    tried = [(m["id"], x) for m in models for x in m.get("precision", ())]
    if not tried:
        return
    found, by_hand = (sum(x[key] for _, x in tried) for key in ("triggered", "by_hand"))
    names = ", ".join(f"{i} `{x['node']}`" for i, x in tried if x["by_hand"])
    yield (
        f"- precision: of {len(tried)} operators open in the unrepaired models, {found} are confirmed to fail by a "
        f"search of 10 s from two seeds, and {by_hand} by hand ({names or 'none'}); of the other "
        f"{len(tried) - found - by_hand}, nobody knows"
    )


def _ranges(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how many defects are open on each runtime, over the zoo's ranges and over the programs' data."""
    known = [(d, m["ranges"]) for m in models for d in m["defects"] if "ranges" in m]
    if not known:
        return
    runtimes = [r for r in ("onnxruntime", "torch", "exact") if any(r in k["open"][d["id"]]["zoo"] for d, k in known)]
    yield "## Ranges and runtimes\n"
    yield f"| documented operators open | {' | '.join(runtimes)} |"
    yield "|---" * (len(runtimes) + 1) + "|"
    for title, key in (("over the zoo's ranges", "zoo"), ("over the programs' data", "data")):
        counts = (sum(r in k["open"][d["id"]][key] for d, k in known) for r in runtimes)
        yield f"| {title} | {' | '.join(f'{count} of {len(known)}' for count in counts)} |"
    widened = [d["id"] for d, k in known if k["widened"]]
    apart = [d["id"] for d, k in known if len(k["open"][d["id"]]["zoo"]) < len(runtimes)]
    yield ""
    yield (
        "With the program's data, weights within their ranges cannot reach the defect, so that the zoo lets inputs "
        f"range more widely: {', '.join(widened) or 'none'}.\n"
    )
    yield f"Proved valid in PyTorch and in exact arithmetic, so that ONNX Runtime alone fails: {', '.join(apart)}.\n"


def _twins(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield for how many models the twin is proved, by runtime."""
    known = [model["twins"] for model in models if "twins" in model]
    if not known:
        return
    yield "## Twins and processors\n"
    yield "What runs as ARM64 or CUDA covers x86-64, too.\n"
    yield f"| | {' | '.join(PLACES)} |"
    yield "|---" * (len(PLACES) + 1) + "|"
    yield f"| proved | {' | '.join(f'{sum(p in of for of in known)} of {len(known)}' for p in PLACES)} |\n"


def _emulated(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what ONNX Runtime makes of counterexamples and twins on processors of ARM64, by family."""
    known = [model["emulated"] for model in models if "emulated" in model]
    families = list(dict.fromkeys(family for of in known for family in of))
    if not families:
        return
    defects = {f: {k: d for of in known if f in of for k, d in of[f]["defects"].items()} for f in families}
    twins = {f: [of[f]["twin"] for of in known if f in of] for f in families}
    runs = {f: [twin["inputs"] for twin in twins[f]] for f in families}
    failing = {f: [k for k, d in defects[f].items() if d["fail"] or d["beside"]] for f in families}
    others = {f: [k for k in defects[f] if k not in failing[f]] for f in families}
    rows = {
        "defects of which a counterexample fails there": [f"{len(failing[f])} of {len(defects[f])}" for f in families],
        "counterexamples that fail there": [_count_failing(defects[f].values()) for f in families],
        "twins without a number that is outside of its bounds or not finite": [
            f"{sum(not twin['faults'] for twin in twins[f])} of {len(twins[f])}" for f in families
        ],
        "inputs that they ran on; the fewest, the median": [
            f"{sum(runs[f])}; {min(runs[f])}, {statistics.median(runs[f]):.0f}" for f in families
        ],
    }
    yield (
        "On ARM64, as `qemu-aarch64` emulates it, ONNX Runtime runs counterexamples that were found on x86-64, and the "
        "twins on ends, corners and other points of their boxes, weights included, with and without optimisations, "
        "while some seconds allow.\n"
    )
    yield f"| | {' | '.join(families)} |"
    yield "|---" * (len(families) + 1) + "|"
    yield from (f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())
    yield ""
    for family in (f for f in families if others[f]):
        yield f"Valid with {family} on all counterexamples, and beside them: {', '.join(others[family])}.\n"


def _count_failing(defects: Iterable[Mapping[str, int]]) -> str:
    known = list(defects)
    return f"{sum(d['fail'] for d in known)} of {sum(d['tests'] for d in known)}"


def _list_flagged(analysis: Mapping[str, Any]) -> list[str]:
    return [*analysis["open"], *analysis["after"]]


def _fuzzed(measured: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section on the fuzzer's programs."""
    models = [model for model in measured.get("fuzzed", ()) if "detection" in model]
    if not models:
        return
    detected = sum(m["detection"]["verdicts"][d["id"]] == "detected" for m in models for d in m["defects"])
    yield "\n## Programs of the Soft Assertion Fuzzer\n"
    yield (
        "Of the fuzzer's 15 further programs, ONNX expresses 14; the other's defect is how it draws its weights. "
        f"Detected: {detected} of {len(models)}. Published: 13 of the 15 by the fuzzer, 3 each by RANUM, GRIST, "
        "Atheris, PyFuzz and Hypothesis. What the fuzzer feeds has no plausible range: *on data* tells which defects "
        "plausible data reach.\n"
    )
    yield from _precision(models)
    yield ""
    yield from _table(models)


def _table(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
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
        f"| {_on_data(model, defect)} | {', '.join(others)} | {1e3 * faulty['analysis_s']:.1f}{ratio} "
        f"| {'proved' if not left else 'open: ' + ', '.join(left)} "
        f"| {_runs(tests)} | {_shown(model, defect)} | {_spans(tests)} | {_seconds(tests)} "
        f"| {'' if random is None else random['triggered']} |"
    )


def _on_data(model: Mapping[str, Any], defect: Mapping[str, Any]) -> str:
    if "ranges" not in model:
        return ""
    runtimes = model["ranges"]["open"][defect["id"]]["data"]
    return "no" if not runtimes else "yes" if len(runtimes) > 1 else f"{runtimes[0]} alone"


def _shown(model: Mapping[str, Any], defect: Mapping[str, Any]) -> str:
    """Return what of a unit test is not finite, where the outputs are."""
    found = next((x for x in model.get("precision", ()) if x["node"] == defect["node"]), {"finite": False})
    tests = defect.get("tests") or {"kinds": [], "flushed": 0, "triggered": 0}
    shown = ["a derivative"] if tests["kinds"] == ["gradient"] else []
    if tests["flushed"]:
        shown.append(f"denormals flushed in {tests['flushed']}")
    return ", ".join([*shown, *["outputs finite"] * found["finite"]])


def _runs(tests: Mapping[str, Any] | None) -> str:
    if tests is None:
        return ""
    return f"{tests['triggered']} ({tests['alone']})"


def _spans(tests: Mapping[str, Any] | None) -> str:
    if tests is None or tests["radius"] is None:
        return "" if tests is None else "0"
    return f"{tests['spans']} ({tests['radius']:.2g}; {100 * tests['fixed']:.3g} %)"


def _seconds(tests: Mapping[str, Any] | None) -> str:
    return "" if tests is None else f"{statistics.median(tests['seconds']):.2f}"
