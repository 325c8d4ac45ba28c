"""`confirm --training` on the files that `zoo build` writes, beside `zoo train --level real`: as users type them."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from lab.bench.checkout import ROOT, run_in
from ranum_falsify.zoo.model import Defect, ZooModel
from ranum_falsify.zoo.train import STEPS

__all__ = ["COMPARED", "compare"]

COMPARED = ("2b", "9a", "10", "12", "19", "26", "32", "52", "53", "54")
"""The ten architectures that the level `real` trains into a defect in the least time; of each, its cheapest defect."""


def compare(model: ZooModel, defect: Defect, timeout: float) -> dict[str, Any]:
    """Return what both commands find for a defect, and their seconds of processor time, from start to end.

    Args:
        model: A model that its program trains.
        defect: One of its defects.
        timeout: Seconds of each search.
    """
    training = model.training
    assert training is not None, "the program trains it"
    rule = f"--optimizer {training.optimizer.lower()} --learning-rate {training.learning_rate:g}"
    limit = f"--timeout {timeout:g}".split()
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        network, report, other = out / f"{model.id}.onnx", out / "training.json", out / "train.json"
        _run("zoo", "build", model.id, "--documented", "--batch", str(training.batch), "--out", out)
        asked = ("confirm", network.with_suffix(".py"), "--network", "N", network, "--node", defect.node)
        trained = ("--training", *rule.split(), "--training-steps", str(STEPS))
        seconds = _run(*asked, *trained, *limit, "--json", report)
        seconds_of_zoo = _run("zoo", "train", defect.id, "--level", "real", "--runs", "1", *limit, "--json", other)
        (operator,) = json.loads(report.read_text(encoding="utf-8"))["operators"]
        (runs,) = json.loads(other.read_text(encoding="utf-8"))["defects"]
    return {
        "rule": rule,
        "batch": training.batch,
        "outcome": operator["outcome"],
        "strategy": operator["strategy"],
        "steps": operator["steps"],
        "processor_seconds": round(seconds, 2),
        "zoo": {"trained": runs["trained"], "steps": runs["steps"], "processor_seconds": round(seconds_of_zoo, 2)},
    }


def _run(*words: str | Path) -> float:
    return run_in(ROOT, [sys.executable, "-m", "ranum_falsify", *words])[0]
