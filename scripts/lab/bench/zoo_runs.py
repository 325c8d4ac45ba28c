"""The measurements of `bench_zoo.py` on one model of the zoo, as plain values for its JSON file."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from ranum_falsify.config import ConfirmConfig
from ranum_falsify.confirm.maker import TestMaker
from ranum_falsify.confirm.unit_test import OperatorTests
from ranum_falsify.zoo.detect import Analysis, Detection, detect, problem_of
from ranum_falsify.zoo.model import Defect, ZooModel

__all__ = ["detection", "unit_tests"]


def detection(model: ZooModel, *, rounds: int, threads: int) -> dict[str, Any]:
    """Return what one interval analysis says about a model and its twin."""
    found = detect(model, rounds=rounds, threads=threads, inference=True)
    verdicts = {defect.id: found.faulty.verdict(defect) for defect in model.defects}
    return {
        "verdicts": verdicts,
        "faulty": _analysis(found, found.faulty),
        "repaired": _analysis(found, found.repaired),
    }


def _analysis(found: Detection, analysis: Analysis) -> dict[str, Any]:
    seconds = analysis.seconds
    return {
        "operators": analysis.operators,
        "open": [flag.node for flag in analysis.open],
        "after": [flag.node for flag in analysis.dependent],
        "analysis_s": seconds.analysis,
        "first_analysis_s": seconds.analyses[0],
        "inference_s": seconds.inference,
        "build_s": seconds.build,
        "read_s": seconds.read + seconds.reduce,
    }


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
