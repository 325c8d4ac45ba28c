"""Soundness of rules by sampling: what a runtime computes from inputs in a box must lie within the bounds.

`check_case` takes a case of the operator tables (`tests/operators/cases`), draws boxes around its operands, analyses
the one-node model and runs it on points of the box: corners, ends of single elements, neighbours in the last place,
zeros, denormals and points between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from tests.operators.harness import OperatorCase, _model

from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.network import Graph, read, spec_of
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.validity import Finite

__all__ = ["Feeds", "boxes", "check_case", "points", "proved_nodes", "runners"]

Feeds = Mapping[str, np.ndarray]

_WIDTHS = (0.0, 1e-6, 1e-2, 1.0, 8.0)


def boxes(feeds: Feeds, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return lower and upper bounds around arrays: of one width or of many, about the values or up to zero."""
    lower, upper = {}, {}
    for name, x in feeds.items():
        if x.dtype.kind not in "fiu" or (x.dtype.kind != "f" and rng.random() < 0.5):
            lower[name], upper[name] = x, x
            continue
        width = np.asarray(rng.choice(_WIDTHS, size=x.shape if rng.random() < 0.5 else ()))
        centre = np.full_like(x, x.reshape(-1)[0]) if x.size and rng.random() < 0.3 else x
        with np.errstate(over="ignore"):
            low = (centre - width * rng.random(x.shape)).astype(x.dtype)
            high = (centre + width * rng.random(x.shape)).astype(x.dtype)
        if rng.random() < 0.3:
            low, high = np.minimum(low, 0).astype(x.dtype), np.maximum(high, 0).astype(x.dtype)
        lower[name], upper[name] = np.minimum(low, high), np.maximum(low, high)
    return lower, upper


def points(lower: Feeds, upper: Feeds, count: int, rng: np.random.Generator) -> Iterator[dict[str, np.ndarray]]:
    """Yield points of a box."""
    for number in range(count):
        point = {}
        for name, low in lower.items():
            high = upper[name]
            kind = rng.integers(6) if number > 1 else number
            if kind == 0:
                x = low
            elif kind == 1:
                x = high
            elif kind == 2:
                x = np.where(rng.random(low.shape) < 0.5, low, high)
            elif kind == 3 and low.dtype.kind == "f":
                x = np.where(rng.random(low.shape) < 0.5, np.nextafter(low, high), np.nextafter(high, low))
            elif kind == 4 and low.dtype.kind == "f":
                special = rng.choice(np.array([0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0]), size=low.shape)
                x = np.clip(special, low, high)
            else:
                share = rng.random(low.shape if rng.random() < 0.7 else ())
                x = low + (high.astype(np.float64) - low) * share
            point[name] = np.clip(np.asarray(x).astype(low.dtype), low, high)
        yield point


def runners(model: onnx.ModelProto, graph: Graph) -> dict[str, Any]:
    """Return the runtimes of a model: `fn(feeds) -> outputs`, by name."""

    def session(level: Any) -> Any:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda feeds: made.run(None, dict(feeds))

    levels = onnxruntime.GraphOptimizationLevel
    return {
        "onnxruntime": session(levels.ORT_DISABLE_ALL),
        "onnxruntime-optimised": session(levels.ORT_ENABLE_ALL),
        "torch": lambda feeds: graph(*feeds.values(), squeeze=False),
    }


def proved_nodes(graph: Graph, lower: Feeds, upper: Feeds) -> tuple[tuple[Interval | None, ...], dict[str, bool]]:
    """Analyse a graph over a box; return the bounds of its outputs, and which nodes are proved valid."""
    proved = {op.name: False for op in graph.nodes}

    def observe(visited: Visited) -> None:
        spec = spec_of(visited.op)
        outputs = {"output" if i == 0 else f"output_{i}": y for i, y in enumerate(visited.outputs)}
        operands = {k: v for k, v in spec.named(visited.operands).items() if isinstance(v, Interval)}
        conditions = [*spec.valid, *([Finite()] if spec.overflow and visited.outputs[0].is_floating else [])]
        proved[visited.op.name] = all(c.holds(visited.op, operands | outputs) for c in conditions)  # type: ignore[attr-defined]

    inputs = [Interval.box(lower[name], upper[name]) for name in graph.input_names]
    return IntervalAnalysis(graph).run(inputs, observe), proved


def check_case(case: OperatorCase, *, seed: int = 0, samples: int = 12) -> None:
    """Assert that bounds enclose, and proofs hold, on sampled points of a box around a case's operands."""
    rng = np.random.default_rng(seed)
    model, feeds = _model(case, case.arrays(seed))
    graph = read(model)
    if any(spec_of(op).is_random(op) for op in graph.nodes):
        samples = 2
    lower, upper = boxes(feeds, rng)
    bounds, proved = proved_nodes(graph, lower, upper)
    run = runners(model, graph)
    for feed in points(lower, upper, samples, rng):
        for name, runtime in run.items():
            try:
                outputs = runtime(feed)
            except Exception:  # integer division by zero, an index out of range: no result to bound
                continue
            for y, bound in zip(outputs, bounds, strict=True):
                if bound is not None:
                    _check(np.asarray(y), bound, feed, all(proved.values()), f"{case.id}, seed {seed}, {name}")


def _check(y: np.ndarray, bound: Interval, feed: Feeds, proved: bool, what: str) -> None:
    assert tuple(y.shape) == bound.shape, f"{what}: shape {y.shape}, bounds of {bound.shape}"
    value = to_torch(y)
    if not value.numel():
        return
    invalid = torch.zeros(value.shape, dtype=torch.bool)
    if value.is_floating_point():
        finite = all(bool(np.isfinite(x.astype(np.float64)).all()) for x in feed.values())
        invalid = value.isnan() | (value.isinf() & finite)
        assert not (proved and bool(invalid.any())), f"{what}: proved, but {value} of {feed}"
    inside = bound.encloses(value) | invalid
    assert bool(inside.all()), f"{what}: {value[~inside][:4]} outside {bound}: {bound.lower} {bound.upper}, of {feed}"
