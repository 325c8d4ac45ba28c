"""Random models whose operators fail on whole boxes, and the points of those boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import torch

from ranum_falsify.config import RUNTIMES
from ranum_falsify.domain import Interval
from ranum_falsify.network import spec_of
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.operators.support.conditions import conditions_of
from ranum_falsify.verify.prove.failing import AnalysisUpTo, surely_fails
from tests.domain.boxes import Array, Recipe, box, points
from tests.domain.random_graphs import random_model
from tests.domain.subjects import Place, Subject

__all__ = ["sweep_failing"]


def sweep_failing(seed: int, *, size: int = 20, samples: int = 12) -> tuple[Counter[str], list[str]]:
    """Look for points of boxes that surely fail at which a node does not fail.

    Args:
        seed: Of the model, the box and the points.
        size: Number of operators.
        samples: How many points are run on each runtime.

    Returns:
        How many boxes surely fail, by operator, and what is wrong.
    """
    rng = np.random.default_rng([seed, 0xFA11])
    model, feeds = random_model(rng, size)
    factors = 10.0 ** rng.uniform(-1, 4, 2)
    feeds = {name: (x * rng.choice(factors)).astype(x.dtype) for name, x in feeds.items()}
    subject = Subject(model)
    kind = str(rng.choice(("none", "tiny", "small", "small", "one")))
    lower, upper = box(feeds, {name: Recipe(width=kind) for name in feeds}, rng)
    boxes = [Interval.box(lower[name], upper[name]) for name in subject.graph.input_names]
    runtimes = RUNTIMES if rng.random() < 0.5 else RUNTIMES[:1]
    failing = [
        place
        for place in subject.places
        if surely_fails(AnalysisUpTo(subject.graph, place.op, runtimes=runtimes), boxes, conditions_of(place.op))
    ]
    faults = []
    if failing:
        for point in points(lower, upper, samples, rng):
            for runtime in (name for name in ("onnxruntime", "torch") if name in runtimes):
                try:
                    values = subject.runtimes[runtime](point)
                except Exception:  # a type without kernel, a division of integers by zero
                    continue
                faults += [
                    f"model {seed}, {runtime}: {place.where}"
                    for place in failing
                    if not _is_invalid(place, point | dict(values))
                ]
    return Counter(spec_of(place.op).op_type for place in failing), faults


def _is_invalid(place: Place, values: Mapping[str, Array]) -> bool:
    """Tell whether a node gives NaN from operands without, or infinity from finite ones."""
    read = [x if isinstance(x, torch.Tensor) else to_torch(values[x]) for x in place.operands.values()]
    written = [to_torch(values[name]) for name in place.written]
    operands = torch.cat([x.reshape(-1).double() for x in read])
    results = torch.cat([y.reshape(-1).double() for y in written])
    if bool(results.isnan().any()):
        return not bool(operands.isnan().any())
    return bool(results.isinf().any()) and bool(operands.isfinite().all())
