"""The measurements of `bench_zoo.py` on one model of the zoo, as plain values for its JSON file."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from lab.bench.session import plain_session
from lab.bench.zoo_hand import fails_by_hand
from ranum_falsify.config import ARM64, CUDA, RUNTIMES, ConfirmConfig, Runtime, SearchConfig
from ranum_falsify.properties.problem.targets import targets_of
from ranum_falsify.verify.decide import falsify
from ranum_falsify.witness.maker import Question, TestMaker
from ranum_falsify.witness.unit_test import OperatorTests
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.detect import Analysis, Detection, analyse, analysis_of, detect, problem_of
from ranum_falsify.zoo.model import Defect, ZooModel

__all__ = ["PLACES", "detection", "precision", "ranges", "twins", "unit_tests"]

PLACES: tuple[Runtime, ...] = (*(name for pair in ARM64.items() for name in pair), CUDA)
"""The libraries, each on the processors whose kernels are known."""

_TWIN_SECONDS = 20.0


def detection(model: ZooModel, *, rounds: int, threads: int) -> dict[str, Any]:
    """Return what one interval analysis says about a model and its twin."""
    shot = analyse(model, threads=threads).seconds.one_shot  # before anything is warm, and without drawn weights
    found = detect(model, rounds=rounds, threads=threads, inference=True)
    verdicts = {defect.id: found.faulty.verdict(defect) for defect in model.defects}
    return {
        "verdicts": verdicts,
        "faulty": {**_analysis(found, found.faulty), "one_shot_s": shot},
        "repaired": _analysis(found, found.repaired),
    }


def _analysis(found: Detection, analysis: Analysis) -> dict[str, Any]:
    seconds = analysis.seconds
    return {
        "operators": analysis.operators,
        "open": [flag.node for flag in analysis.open],
        "after": [flag.node for flag in analysis.dependent],
        "analysis_s": seconds.analysis,
        "inference_s": seconds.inference,
        "build_s": seconds.build,
        "read_s": seconds.read + seconds.reduce,
    }


def ranges(model: ZooModel) -> dict[str, Any]:
    """Return on which runtimes the documented operators are open, over the zoo's ranges and over the program's data."""
    built = {False: model.architecture()}
    if built[False].widened:
        built[True] = model.architecture(documented=True)
    opened = {documented: _open_on(model, architecture) for documented, architecture in built.items()}
    return {
        "widened": {name: list(data) for name, data in built[False].widened.items()},
        "open": {d.id: {"zoo": opened[False][d.id], "data": opened[True in opened][d.id]} for d in model.defects},
    }


def _open_on(model: ZooModel, architecture: Architecture) -> dict[str, list[Runtime]]:
    problem = problem_of(model, architecture)
    analyses = {runtime: analysis_of(model, problem, runtimes=(runtime,)) for runtime in RUNTIMES}
    return {d.id: [r for r, a in analyses.items() if a.verdict(d) == "detected"] for d in model.defects}


def twins(model: ZooModel) -> list[Runtime]:
    """Return the runtimes for which a model's twin is proved."""
    problem = problem_of(model, model.architecture(safe=True), safe=True)
    configs = {runtime: SearchConfig(runtime=runtime, n_starts=0, timeout=_TWIN_SECONDS) for runtime in PLACES}
    return [runtime for runtime, config in configs.items() if falsify(problem, config).verdict == "holds"]


def precision(model: ZooModel, *, config: ConfirmConfig) -> list[dict[str, Any]]:
    """Return, for each operator that the analysis of a model leaves open, whether it can be made invalid.

    Args:
        model: The model, as in the program.
        config: How to look for inputs and weights; no further runs after the first that finds some.
    """
    problem = problem_of(model, model.architecture())
    asked = {target.op.name for number, goal in enumerate(problem.goals) for target in targets_of(number, goal)}
    # Operators that only move numbers are open where ONNX Runtime merges them with others.
    names = tuple(flag.node for flag in analysis_of(model, problem).open if flag.node in asked)
    with TestMaker(problem, replace(config, nodes=names)) as maker:
        return [_tried(model, maker, question) for question in maker.questions()]


def _tried(model: ZooModel, maker: TestMaker, question: Question) -> dict[str, Any]:
    began = time.monotonic()
    test = next((run.test for run in maker.runs_of(question) if run.test is not None), None)
    return {
        "node": question.op.name,
        "triggered": test is not None,
        "by_hand": test is None and fails_by_hand(model, question.op.name),
        "gradient": test is not None and test.kind == "gradient",
        "flushed": test is not None and test.flushed,
        "finite": test is not None and _is_finite(maker.problem.calls[0].graph.model, test.feeds),
        "seconds": time.monotonic() - began,
    }


def _is_finite(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> bool:
    """Tell whether ONNX Runtime computes finite outputs, without optimisations, as in unit tests."""
    session = plain_session(model)
    names = {value.name for value in session.get_inputs()}
    return all(np.isfinite(y).all() for y in session.run(None, {n: x for n, x in feeds.items() if n in names}))


def unit_tests(model: ZooModel, defect: Defect, *, config: ConfirmConfig) -> dict[str, Any]:
    """Return how many runs trigger a defect at its documented operator, and how long they take."""
    problem = problem_of(model, model.architecture())
    began = time.monotonic()
    with TestMaker(problem, config) as maker:
        (question,) = maker.questions()
        prepared = time.monotonic() - began
        made = maker.tests_of(question)
    return {"prepare_s": prepared, **_tests(made)}


def _tests(made: OperatorTests) -> dict[str, Any]:
    spans = [test.span for test in made.tests if test.span is not None]
    return {
        "runs": made.runs,
        "triggered": len(made.tests),
        "alone": sum(test.alone for test in made.tests),
        "flushed": sum(test.flushed for test in made.tests),
        "kinds": sorted({test.kind for test in made.tests}),
        "spans": len(spans),
        "radius": statistics.median(span.radius for span in spans) if spans else None,
        "fixed": statistics.median(span.fixed for span in spans) if spans else None,
        "seconds": list(made.seconds),
        "parts": _medians([test.seconds for test in made.tests]),
    }


def _medians(parts: Sequence[Any]) -> dict[str, float]:
    names = parts[0] if parts else ()
    return {name: statistics.median(part[name] for part in parts) for name in names}
