"""Answer one question after the other, and print the processor time of each: a process of `scripts/bench_watch.py`.

It runs in whichever checkout `PYTHONPATH` names first: each line of its input is a model, or `zoo:ID` for the repaired
twin of a defect; each line of its output is a JSON list of the verdict and the seconds, those of child processes among
them.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import psutil
import torch

import ranum_falsify as rf
from ranum_falsify.config import SearchConfig
from ranum_falsify.verify.decide import falsify
from ranum_falsify.zoo.catalogue import model_of
from ranum_falsify.zoo.detect import problem_of

__all__: list[str] = []

_LIMITS: Mapping[str, Any] = {"timeout": 10.0, "n_starts": 8, "n_steps": 8}


def seconds() -> float:
    """Return the processor time of this process and its children."""
    process = psutil.Process()
    times = [p.cpu_times() for p in (process, *process.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))


def ask(subject: str) -> tuple[str, float, float]:
    """Return the verdict on a subject, and its processor and wall time."""
    problem = None
    if subject.startswith("zoo:"):
        model = model_of(subject.removeprefix("zoo:"))
        problem = problem_of(model, model.architecture(safe=True), safe=True)
    began, clock = seconds(), time.perf_counter()
    if problem is None:
        verdict: str = rf.check(subject, box=(0, 1), self_check=False, **_LIMITS).verdict
    else:
        verdict = falsify(problem, SearchConfig(**_LIMITS)).verdict
    return verdict, seconds() - began, time.perf_counter() - clock


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for line in sys.stdin:
        try:
            print(json.dumps(ask(line.strip())), flush=True)
        except rf.RanumFalsifyError as error:
            print(json.dumps([f"error: {error}", 0.0, 0.0]), flush=True)
