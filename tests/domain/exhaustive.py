"""Elementwise rows on all numbers of small types: bounds of points, and conditions at each, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import torch

from ranum_falsify.errors import RanumFalsifyError
from tests.domain.boxes import Array, is_float
from tests.domain.search import Tally
from tests.domain.subjects import Setting, Subject
from tests.domain.trials import Trial
from tests.operators.forms.schemas import schema_at
from tests.operators.forms.walk import Slot, changed
from tests.operators.harness import OperatorCase, Spread, constants_of, model_of

__all__ = ["SMALL_TYPES", "exhaust", "small_forms"]

SMALL_TYPES = ("int8", "uint8", "float16")
"""ONNX Runtime takes no bfloat16 from NumPy."""
_BESIDE = {"QuantizeLinear", "DequantizeLinear", "CastLike"}
"""Rows that are elementwise but for operands that may have another shape."""
_WRITTEN = Setting(rewritten=False)
_MOST_ALONE = 24
"""Points at which ONNX Runtime gives NaN or infinity that are analysed alone, spread over all."""
_MOST_BESIDE = 3


def numbers_of(dtype: np.dtype, *, special: bool = False) -> Array:
    """Return all numbers of a small type except NaN, or, of floating types, those at which functions turn."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.arange(limits.min, limits.max + 1).astype(dtype)
    everything: Array = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(dtype)
    everything = everything[~np.isnan(everything)]
    if not special:
        return everything
    ends: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    sizes = [0.0, float(ends.smallest_subnormal), float(ends.tiny), float(ends.max), np.inf, 1.0, 0.5, 2.0, 3.0]
    sizes += [0.1, 1.0 / 3.0, 10.0, 88.0, 1.0 + float(ends.eps), 1.0 - float(ends.epsneg), 2.5, 255.0]
    return np.array([sign * size for size in sizes for sign in (1.0, -1.0)]).astype(dtype)


def small_forms(cases: Sequence[OperatorCase], kind: str) -> Iterator[tuple[OperatorCase, list[int]]]:
    """Yield the cases of a row in a small type, one for each set of attributes, and which operands have that type."""
    seen = set[str]()
    for case in cases:
        if not (case.spec.elementwise or case.op_type in _BESIDE):
            continue
        for form, places in _typed(case, kind):
            key = f"{form.attributes} {form.opset} {len(form.inputs)} {places} {form.outputs}"
            if key not in seen:
                seen.add(key)
                yield form, places


def _typed(case: OperatorCase, kind: str) -> Iterator[tuple[OperatorCase, list[int]]]:
    schema = schema_at(case.op_type, case.domain, case.domain_opset)
    variables = dict.fromkeys(f.variable for f in schema.inputs if np.dtype(kind) in f.types) if schema else {}
    assert schema is not None
    for variable in variables:
        formal = next(f for f in schema.inputs if f.variable == variable)
        form = changed(case, Slot("input", formal.name, f"type {kind}"), np.random.default_rng(0)) or case
        given = [(i, x) for i, x in enumerate(form.inputs) if x is not None]
        places = [i for i, x in given if schema.formal(i).variable == variable and np.dtype(x.dtype) == kind]  # type: ignore[union-attr]
        places = [i for i in places if i not in constants_of(form)]
        others = [x for i, x in given if i not in places]
        if 1 <= len(places) <= _MOST_BESIDE and all(int(np.prod(x.shape)) == 1 for x in others):
            yield form, places


def _columns(kind: str, count: int, *, finite: bool) -> list[Array]:
    """Return operands, as vectors of one length, whose elements are all combinations of numbers."""
    dtype = np.dtype(kind)
    whole = dtype.kind in "iu"
    parts = [numbers_of(dtype)]
    if count > 1:
        parts += [numbers_of(dtype, special=not (whole and count == 2))] * (count - 1)
    if count > 2:
        some = numbers_of(dtype, special=True)
        parts = [some[:: max(1, len(some) // 32)]] * count
    if not whole:
        parts = [part[np.isfinite(part)] if finite else part for part in parts]
    if not finite and not whole:
        parts = [numbers_of(dtype, special=True)] * count
    return [np.ascontiguousarray(grid).reshape(-1) for grid in np.meshgrid(*parts, indexing="ij")]


def exhaust(form: OperatorCase, places: Sequence[int], kind: str) -> Tally:
    """Check a form on all numbers of a type.

    Args:
        form: The form.
        places: Operands that take all numbers; several take all combinations, where they are not too many.
        kind: The type's name.
    """
    total = Tally()
    for finite in (True, False) if np.dtype(kind).kind not in "iu" else (True,):
        columns = _columns(kind, len(places), finite=finite)
        inputs: list[Any] = list(form.inputs)
        for place, column in zip(places, columns, strict=True):
            inputs[place] = column
        rng = np.random.default_rng(0)
        inputs = [x.draw(rng).reshape(-1)[:1].reshape(()) if isinstance(x, Spread) else x for x in inputs]
        total.add(_check(replace(form, inputs=inputs)))
    total.faults = [f"{form.id} {dict(form.attributes)} in {kind}: {fault}" for fault in total.faults[:2]]
    return total


def _check(form: OperatorCase) -> Tally:
    with np.errstate(all="ignore"):
        model, feeds = model_of(form, form.arrays())
    try:
        subject = Subject(model, strict=True)
    except RanumFalsifyError:
        return Tally()
    return _check_points(subject, feeds)


def _check_points(subject: Subject, feeds: dict[str, Array]) -> Tally:
    tally = Tally()
    for name, runtime in subject.runtimes.items():
        if not name.startswith("onnxruntime"):
            continue
        try:
            values = runtime(feeds)
        except Exception:
            continue
        tally.add(_compare(subject, feeds, values, name))
    return tally


def _compare(subject: Subject, feeds: dict[str, Array], values: dict[str, Array], name: str) -> Tally:
    """Check all points at once, those that are valid once more, and some of those that are not alone."""
    tally = _trial(subject, feeds, values, name)
    y = np.asarray(values[subject.graph.output_names[0]])
    if not is_float(y) or tally.faults:
        return tally
    read = [x for x in feeds.values() if is_float(x)]
    sound = [np.broadcast_to(np.isfinite(x), y.shape) for x in read if x.size in (1, y.size)]
    bad = np.isnan(y) | (np.isinf(y) & np.all(sound, axis=0)) if sound else np.isnan(y) | np.isinf(y)
    tally.add(_trial_of(subject, feeds, name, np.flatnonzero(~bad)))
    alone = np.flatnonzero(bad)
    for place in alone[:: max(1, len(alone) // _MOST_ALONE)][: 2 * _MOST_ALONE]:
        tally.add(_trial_of(subject, feeds, name, np.array([place])))
    return tally


def _trial_of(subject: Subject, feeds: dict[str, Array], name: str, places: Array) -> Tally:
    """Check some of the points, as a model of fewer."""
    if not len(places):
        return Tally()
    size = max(x.size for x in feeds.values())
    some = {key: x.reshape(-1)[places] if x.size == size else x for key, x in feeds.items()}
    model = subject.graph.source
    assert model is not None
    shorter = type(model)()
    shorter.CopyFrom(model)
    for info in shorter.graph.input:
        if some[info.name].ndim:
            info.type.tensor_type.shape.dim[0].dim_value = len(places)
    smaller = Subject(shorter, strict=True)
    try:
        values = smaller.runtimes[name](some)
    except Exception:
        return Tally()
    return _trial(smaller, some, values, name)


def _trial(subject: Subject, feeds: dict[str, Array], values: dict[str, Array], name: str) -> Tally:
    try:
        verdict = subject.analyse(feeds, feeds, _WRITTEN)
    except Exception as error:
        return Tally(boxes=1, faults=[f"analysis: {type(error).__name__}: {error}"])
    with torch.no_grad():
        faults = [f"{name}: {fault}" for fault in Trial(subject, verdict, feeds, values).faults()]
    size = max(x.size for x in feeds.values())
    tally = Tally(boxes=1, outputs=1, proved=len(subject.proved(verdict)), samples=size, faults=faults[:1])
    tally.runs[name] += 1
    return tally
