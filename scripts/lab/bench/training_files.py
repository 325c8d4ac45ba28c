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

_PROGRAM = (sys.executable, "-m", "ranum_falsify")


def compare(model: ZooModel, defect: Defect, timeout: float) -> dict[str, Any]:
    """Return what both commands find for a defect, and their seconds of processor time, from start to end.

    Args:
        model: A model that its program trains.
        defect: One of its defects.
        timeout: Seconds of each search.
    """
    training = model.training
    assert training is not None, "the program trains it"
    rule = ["--optimizer", training.optimizer.lower(), "--learning-rate", f"{training.learning_rate:g}"]
    limit = ["--timeout", f"{timeout:g}"]
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        built = [*_PROGRAM, "zoo", "build", model.id, "--documented", "--batch", str(training.batch), "--out", out]
        assert run_in(ROOT, built)[1] == 0, f"{model.id} is built"
        files = [out / f"{model.id}.py", "--network", "N", out / f"{model.id}.onnx", "--node", defect.node]
        report, other = out / "training.json", out / "train.json"
        steps = ["--training-steps", str(STEPS)]
        confirm = [*_PROGRAM, "confirm", *files, "--training", *rule, *steps, *limit, "--json", report]
        train = [*_PROGRAM, "zoo", "train", defect.id, "--level", "real", "--runs", "1", *limit, "--json", other]
        seconds, seconds_of_zoo = run_in(ROOT, confirm)[0], run_in(ROOT, train)[0]
        (operator,) = json.loads(report.read_text(encoding="utf-8"))["operators"]
        (runs,) = json.loads(other.read_text(encoding="utf-8"))["defects"]
    return {
        "rule": " ".join(rule),
        "batch": training.batch,
        "outcome": operator["outcome"],
        "strategy": operator["strategy"],
        "steps": operator["steps"],
        "processor_seconds": round(seconds, 2),
        "zoo": {"trained": runs["trained"], "steps": runs["steps"], "processor_seconds": round(seconds_of_zoo, 2)},
    }
