"""Soundness of rules and of analyses by sampling: what runtimes compute from inputs in a box lies within the bounds.

`faults_in` draws points of a box, then moves towards the bounds: to the vertices that gradients point to, to mixtures
of the samples that came closest, and to their neighbours in the last place.  For every node it checks that

- values lie within the bounds if no node before it got invalid input, and have the shape that the bounds state;
- a proved node gives neither NaN nor infinity;
- a condition that is claimed to hold, of validity or of the gradient, has no negative margin on any sample.

`check_case` does so for a case of the operator tables (`tests/operators/cases`).
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from ranum_falsify.config import Runtime
from ranum_falsify.domain import Interval
from ranum_falsify.errors import ModelError
from ranum_falsify.network.registry import schema_of
from ranum_falsify.verify.prove.analyses import find_unknown_halves
from tests.domain.boxes import Array, Box, Feeds, Recipe, box, is_float, points, recipes
from tests.domain.search import Search, Tally, faults_in
from tests.domain.subjects import SessionOf, Setting, Subject, Verdict
from tests.operators.harness import OperatorCase, Spread, model_of

__all__ = ["Subject", "Tally", "Verdict", "check_case", "faults_in", "moved", "retyped", "sweep_case"]


def retyped(case: OperatorCase, dtype: Any) -> OperatorCase | None:
    """Return a case with its float32 operands in another type; None if it has none or ONNX does not allow it."""
    schema = schema_of(case.op_type, case.domain, case.domain_opset)
    assert schema is not None
    if case.op_type == "BitCast":  # another type has another size
        return None
    kind = f"tensor({np.dtype(dtype).name if np.dtype(dtype) != np.float64 else 'double'})"
    inputs: list[Any] = []
    for i, x in enumerate(case.inputs):
        if x is None or np.dtype(x.dtype) != np.float32:
            inputs.append(x)
            continue
        if kind not in schema.inputs[min(i, len(schema.inputs) - 1)].types:
            return None
        inputs.append(replace(x, dtype=dtype) if isinstance(x, Spread) else np.asarray(x).astype(dtype))
    return replace(case, inputs=inputs) if any(a is not b for a, b in zip(inputs, case.inputs, strict=True)) else None


def moved(case: OperatorCase, opset: int) -> OperatorCase | None:
    """Return a case in a model of another opset; None if that has another version of the operator, or none."""
    here = schema_of(case.op_type, case.domain, case.domain_opset)
    there = schema_of(case.op_type, case.domain, case.domain_opset if case.domain else opset)
    if here is None or there is None or there.since_version != here.since_version:
        return None
    return replace(case, opset=opset)


def sweep_case(
    case: OperatorCase,
    *,
    seed: int = 0,
    boxes: int = 1,
    samples: int = 12,
    rounds: int = 2,
    given: Sequence[Recipe] | None = None,
    sessions: Mapping[Runtime, SessionOf] = MappingProxyType({}),
    further: Sequence[Runtime] = (),
) -> Tally:
    """Check several boxes around the operands of one case.

    Args:
        case: The case.
        seed: Seed of the operands, the boxes and the points.
        boxes: How many boxes are drawn.
        samples: See :func:`faults_in`.
        rounds: See :func:`faults_in`.
        given: Recipes of the operands' bounds, used in turn; drawn if not given.
        sessions: See :class:`tests.domain.subjects.Subject`.
        further: See :meth:`tests.domain.subjects.Setting.drawn`.
    """
    rng = np.random.default_rng([seed, zlib.crc32(case.id.encode())])
    with np.errstate(all="ignore"):
        model, arrays = model_of(case, case.arrays(seed))
    feeds = {name: _without_nan(x) for name, x in arrays.items()}
    subject, tally = Subject(model, sessions), Tally()
    if further and find_unknown_halves(subject.graph, further):
        return tally  # nothing is proved of it there
    wide = None if further else _widened_subject(case, seed)
    for number in range(boxes):
        chosen = recipes(feeds, rng)
        if given:
            chosen = {name: given[i % len(given)] for i, name in enumerate(feeds)}
        bounds = box(feeds, chosen, rng)
        setting = Setting() if given else replace(Setting.drawn(rng, further), linear=False, keep=True)
        found = faults_in(subject, bounds, samples=samples, rounds=rounds, rng=rng, setting=setting)
        if wide is not None:
            found.add(_unrounded_faults(subject, wide, bounds, samples, rng))
        found.faults = [f"{case.id}, seed {seed}, box {number}: {fault}" for fault in found.faults[:2]]
        tally.add(found)
    return tally


def _widened_subject(case: OperatorCase, seed: int) -> Subject | None:
    """Return a case of half precision as ONNX Runtime runs it on the CPU inside a network: in float32.

    It runs neighbouring operators in float32 without rounding the tensors between them, even without optimisations.
    """
    arrays = case.arrays(seed)
    kinds = {x.dtype for x in arrays if x is not None and is_float(x)}
    # Operators that name the type of their output are others in float32.
    if (
        kinds != {np.dtype(np.float16)}
        or {"to", "dtype", "output_datatype"} & case.attributes.keys()
        or case.op_type == "CastLike"
    ):
        return None
    with np.errstate(all="ignore"):
        wider = [x.astype(np.float32) if x is not None and x.dtype == np.float16 else x for x in arrays]
        model, _ = model_of(case, wider)
    try:
        subject = Subject(model)
    except ModelError:  # ONNX allows the operator in half precision alone
        return None
    subject.runtimes = {"onnxruntime-unrounded": subject.runtimes["onnxruntime"]}
    return subject


def _unrounded_faults(subject: Subject, wide: Subject, bounds: Box, samples: int, rng: np.random.Generator) -> Tally:
    """Check bounds in half precision on results that were not rounded to it, of operands that were not either."""
    try:
        verdict = subject.analyse(*bounds)
    except Exception:  # reported already
        return Tally()
    limit = float(np.finfo(np.float16).max)
    trial = copy.copy(wide)

    def run(feeds: Feeds) -> dict[str, Array]:
        values: dict[str, Array] = wide.runtimes["onnxruntime-unrounded"](feeds)
        with np.errstate(all="ignore"):
            return {
                name: np.where(np.abs(y) > limit, np.copysign(np.inf, y), y).astype(np.float32) if is_float(y) else y
                for name, y in values.items()
            }

    widened = {name: None if x is None else _widened(x) for name, x in verdict.bounds.items()}
    lower, upper = ({k: x.astype(np.float32) if is_float(x) else x for k, x in end.items()} for end in bounds)
    trial.runtimes = {"onnxruntime-unrounded": run}
    search = Search(trial, Verdict(widened, verdict.held), lower, upper, rng)
    for feeds in points(lower, upper, samples, rng):
        search.run({k: _within_half(x) if is_float(x) else x for k, x in feeds.items()})
    return search.tally


def _within_half(x: Array) -> Array:
    limit = float(np.finfo(np.float16).max)
    return np.where(np.isfinite(x), np.clip(x, -limit, limit), x).astype(x.dtype)


def _widened(x: Interval) -> Interval:
    return Interval(x.lower.float(), x.upper.float(), x.shape) if x.dtype is torch.float16 else x


def _without_nan(x: Array) -> Array:
    return np.where(np.isnan(x), np.zeros_like(x), x) if is_float(x) else x


def check_case(case: OperatorCase, *, seed: int = 0, samples: int = 12) -> None:
    """Assert that bounds enclose, and proofs hold, in a box around a case's operands."""
    faults = sweep_case(case, seed=seed, samples=samples).faults
    assert not faults, "\n".join(faults)
