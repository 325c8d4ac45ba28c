"""The page `benchmarks/figures.md`, written from what scripts measured with `--record`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.bench.tables import markdown

__all__ = ["page"]

_HEAD = """# Figures

Each script prints its table, so that you can repeat it on your machine; with `--record` it keeps the rows in \
`figures.json`, from which `scripts/write_pages.py` writes this page. The 79 defects of the [zoo](../docs/zoo.md) have \
a page to themselves, [zoo.md](zoo.md), one for what rewrites and guards make of them, [repairs.md](repairs.md), and \
one for their clips, [clips.md](clips.md).
"""

_SECTIONS: Sequence[tuple[str, Mapping[str, str]]] = (
    (
        "Benchmarks of VNN-COMP",
        {
            "vnncomp": "`scripts/bench_vnncomp.py` decides the instances of a folder of VNN-COMP 2023 and compares "
            "with the verdicts that the competition's tools agreed on: *wrong* are those that contradict them. "
            "Counterexamples replay on ONNX Runtime.",
            "vnncomp, search": "The search alone, without finer proofs:",
            "robustness": "The same script decides questions of robustness about classifiers of handwritten digits "
            "that `scripts/make_robustness.py` trains; nobody knows their answers beforehand:",
            "bounds": "`scripts/bench_bounds.py` compares bounds of their margins over whole boxes with those of "
            "auto_LiRPA 0.3, which optimises slopes of all layers by default (alpha-CROWN) and leaves rounding out; "
            "both have one core. The width of a margin is the way from its value at the picture to its lower bound.",
        },
    ),
    (
        "Half precision",
        {
            "precision": "`scripts/bench_precision.py` asks the models of `scripts/fetch_models` for invalid "
            "operators, in float32 and as if converted to float16, on signals and images in [-1, 1]; tokens and rates "
            "are as in ordinary use.",
        },
    ),
    (
        "The cost of an analysis",
        {
            "domain": "`scripts/bench_domain.py` divides the time of the interval analysis, with the proof of every "
            "condition, of the model as written and as ONNX Runtime rewrites it, by that of one ONNX Runtime "
            "inference at batch 1 (medians of paired runs). Then follow the most memory that the process takes in "
            "addition, also as a share of the weights, the ratio to the analysis of the model as written alone, and "
            "what ONNX Runtime's optimiser and the reading of its result cost once per model.\n\n"
            "Uniform bounds stay merged and are cheap; bounds that differ from element to element take twice the "
            "arithmetic of an inference and many passes over memory.",
        },
    ),
    (
        "The cost of a search",
        {
            "search": "`scripts/bench_falsify.py` divides the time of a search by that of a bare PyTorch loop of "
            "forward and backward passes of the same model written by hand:",
            "search, DNNF": "It divides DNNF's own pgd by the search, too, of which few steps are measured and scaled:",
        },
    ),
    (
        "Models that another verifier reads only after lowering",
        {
            "lowering": "`scripts/bench_lowering.py` gives small models, as PyTorch exports them, to auto_LiRPA 0.3 "
            "(by way of onnx2pytorch 0.6.0), as they are and after the passes of `transform --for vnncomp`. A model "
            "counts as read where the output is that of ONNX Runtime on the model as it was, and lies within the "
            "bounds that auto_LiRPA computes.",
        },
    ),
    (
        "From start to first step",
        {
            "start": "`scripts/bench_startup.py` measures what comes before the first step of a search, in seconds:",
            "start, commands": "With another checkout, it compares commands, from the start of their process to its "
            "end: seconds of the processor, child processes included.",
        },
    ),
)


def page(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page."""
    parts = [_HEAD]
    for title, tables in _SECTIONS:
        found = {name: text for name, text in tables.items() if name in known}
        parts += [f"## {title}\n"] * bool(found)
        for name, text in found.items():
            rows = known[name]["rows"]
            parts.append(f"{text}\n\n{markdown(known[name]['columns'], [row['cells'] for row in rows])}\n")
            parts.append(f"{_sources(rows)}\n")
    return "\n".join(parts)


def _sources(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what measured a table, and where."""
    commands = dict.fromkeys(f"`{row['command']}`" for row in rows)
    places = dict.fromkeys(f"{row['machine']}; {row['versions']}" for row in rows)
    return f"Measured by {', '.join(commands)}: {'. '.join(places)}."
