"""The measurements of `bench_repairs.py` on hazardous models: their best repairs beside their formulas."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import mpmath
import numpy as np
import onnx

import ranum_falsify as rf
from lab.bench.hazardous_models import DIGITS, HazardousModel
from ranum_falsify.network.tensors import torch_threads
from ranum_falsify.verify.replay.replayer import Replayer

__all__ = ["compare", "draws", "property_of", "repaired"]

_PROPERTY = """
from dnnv.properties import *
from ranum_falsify.properties import *

N = Network("N")
{quantifiers}Implies(And({limits}), no_invalid_input(N({names}))){ends}
"""
_DRAWS = 240
_FLOOR = 1e-3
"""Differences are relative to the number that is meant, or to this share of the greatest of its output."""
_WRONG = 1e-2
"""Outputs of the original that are as far from what it means are not right."""
_WORSE = 2.0
"""How many times farther than the original's an output may be, where that is farther than rounding takes it."""


def property_of(case: HazardousModel) -> str:
    """Return the property that asks for valid operands over the box of a model."""
    names = [value.name for value in case.model.graph.input]
    return _PROPERTY.format(
        quantifiers="".join(f"Forall({name}, " for name in names),
        limits=", ".join("{0!r} <= {2}, {2} <= {1!r}".format(*case.limits(name), name) for name in names),
        names=", ".join(names),
        ends=")" * len(names),
    )


def repaired(case: HazardousModel, *, number: int = _DRAWS, timeout: float = 60.0) -> dict[str, Any]:
    """Return the best repair of a model, and how far its outputs are from what the model means."""
    began = time.process_time()
    with torch_threads(1):
        found = rf.fix(case.model, property_of(case), timeout=timeout, self_check=False)
    used = time.process_time() - began
    record: dict[str, Any] = {"id": case.id, "kind": case.kind, "name": case.name, "cpu_s": used, "repairs": len(found)}
    if not found:
        return record
    best = found[0]
    return record | {
        "standing": best.standing,
        "changes": [change.text for change in best.changes],
        "stated_loss": best.loss,
        **compare(case, best.model, number),
    }


def draws(case: HazardousModel, number: int) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield inputs of a model: all over its box, near its ends, tiny, whole, equal, and 0."""
    rng = np.random.default_rng(0)
    for n in range(number):
        yield {
            value.name: _draw(rng, case, value, n + (7 * place if n % 2 else 0))
            for place, value in enumerate(case.model.graph.input)
        }


def _draw(rng: np.random.Generator, case: HazardousModel, value: onnx.ValueInfoProto, number: int) -> np.ndarray:
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    low, high = case.limits(value.name)
    sign = np.where(rng.random(shape) < 0.5, 1.0, -1.0)
    even = low + rng.random(shape) * (high - low)
    least = float(np.log10(np.finfo(dtype).tiny))
    size = 10 ** (least + rng.random(shape) * (math.log10(max(abs(low), abs(high))) - least))
    common = 10 ** (least + rng.random() * (math.log10(max(abs(low), abs(high))) - least))
    made = (
        even,
        sign * size,
        np.clip(np.zeros(()), low, high) + sign * common * rng.random(shape),
        np.where(rng.random(shape) < 0.5, even, sign * size),
        np.full(shape, rng.choice([low, high, even.flat[0], common])),
        np.where(rng.random(shape) < 0.5, low, high),
        even * np.where(rng.random(shape) < 0.5, 0.0, 1.0),
        even / 10,
        np.round(even),
        even.flat[0] * (1 + 1e-3 * rng.standard_normal(shape)),
    )[number % 10]
    ends = np.array([low, high]).astype(dtype)
    drawn: np.ndarray = np.clip(made.astype(dtype), *ends)
    return drawn


def compare(case: HazardousModel, model: onnx.ModelProto, number: int = _DRAWS) -> dict[str, Any]:
    """Return how far the outputs of a repaired model are from what the original means.

    Returns:
        `infinite`: how many outputs are not finite; `lost`: the greatest relative error where the original is right,
        with and without denormal numbers, 0 where that is no more than twice the original's own or than rounding;
        `off`: the greatest relative error where the original is not valid, and has a meaning; `original`: the
        original's own greatest error.
    """
    old, new = _session(case.model), _session(model)
    found = {"infinite": 0, "lost": 0.0, "off": 0.0, "original": 0.0}
    # Of ONNX Runtime's sessions the first one decides for its process what becomes of denormal numbers.
    with mpmath.workdps(DIGITS), np.errstate(all="ignore"), Replayer(case.model, flush=True) as flushed:
        for inputs in draws(case, number):
            was, now = old.run(None, inputs)[0], new.run(None, inputs)[0]
            found["infinite"] += int((~np.isfinite(now)).sum())
            meant = case.meaning(*(_exact(array) for array in inputs.values()))
            _add(found, was, next(iter(flushed.outputs(inputs).values())), now, np.broadcast_to(meant, was.shape))
    return found


def _add(found: dict[str, Any], was: np.ndarray, under: np.ndarray, now: np.ndarray, meant: np.ndarray) -> None:
    limits = np.finfo(was.dtype)
    exact = np.array([float(one) for one in meant.flat]).reshape(meant.shape)
    known = np.isfinite(exact) & (abs(exact) <= float(limits.max))
    largest = float(abs(exact[known]).max(initial=0.0))
    scale = np.maximum(np.maximum(abs(exact), _FLOOR * largest), 1e4 * float(limits.tiny))
    before, below, after = (_distance(one, meant) / scale for one in (was, under, now))
    valid = known & np.isfinite(was) & np.isfinite(under)
    before = np.maximum(before, np.where(valid, below, 0.0))
    rounding = max(1e-5, 16 * float(limits.eps))
    right = valid & (before < _WRONG)
    worse = right & (after > rounding) & (after > _WORSE * before[right].max(initial=0.0))
    found["original"] = max(found["original"], float(before[valid].max(initial=0.0)))
    found["lost"] = max(found["lost"], float(after[worse].max(initial=0.0)))
    found["off"] = max(found["off"], float(after[known & ~valid].max(initial=0.0)))


def _distance(found: np.ndarray, meant: np.ndarray) -> np.ndarray:
    """Return how far numbers are from those that are meant, infinitely where they are not finite."""
    pairs = zip(found.flat, meant.flat, strict=True)
    apart = [float(abs(mpmath.mpf(float(x)) - m)) if np.isfinite(x) else math.inf for x, m in pairs]
    return np.array(apart).reshape(found.shape)


def _session(model: onnx.ModelProto) -> Any:
    import onnxruntime as ort  # after the package, which turns its telemetry off

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


_exact = np.vectorize(lambda number: mpmath.mpf(float(number)), otypes=[object])
