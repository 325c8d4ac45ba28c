"""Attributes as runtimes read them: where they replace denormal numbers by 0, those of nodes are replaced, too."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation

from ranum_falsify.domain.error_bounds import tiny
from ranum_falsify.domain.infinities import Value
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.site import IntervalRule, Site
from ranum_falsify.lazy import cached_property

_LEAST = tiny(torch.float32)
"""ONNX stores attributes in float32, whatever the type of the operands is."""


def readings_of(op: Operation) -> tuple[Operation, ...]:
    """Return a node as runtimes may read it: itself, and with 0 in place of denormal attributes if it has any."""
    if not has_denormals(op):
        return (op,)
    flushed = copy_afresh(op)
    flushed.__dict__.update({name: _flush(value) for name, value in vars(flushed).items()})
    return op, flushed


def copy_afresh(op: Operation) -> Operation:
    """Return a copy of a node without what it keeps of its fields, which is made of them once more."""
    found, of = copy.copy(op), type(op)
    found.__dict__ = {
        name: x for name, x in vars(op).items() if not isinstance(getattr(of, name, None), cached_property)
    }
    return found


def has_denormals(op: Operation) -> bool:
    """Tell whether an attribute of a node is a denormal number."""
    return any(map(_is_denormal, vars(op).values()))


def _is_denormal(value: Any) -> bool:
    if isinstance(value, float):
        return 0 < abs(value) < _LEAST
    # Lists are of one kind; forests have long ones.
    if not isinstance(value, tuple) or not value or not isinstance(value[0], float):
        return False
    sizes = np.abs(value)
    return bool(((sizes > 0) & (sizes < _LEAST)).any())


def _flush(value: Any) -> Any:
    if not _is_denormal(value):
        return value
    return tuple(map(_flush, value)) if isinstance(value, tuple) else 0.0


def apply_rule(rule: IntervalRule, site: Site, operands: Sequence[Value]) -> tuple[Interval, ...] | None:
    """Return what a rule says of each output of a node, however its attributes are read; None where a shape varies."""
    found: list[tuple[Interval, ...]] = []
    for op in readings_of(site.op):
        result = rule(site if op is site.op else replace(site, op=op), *operands)
        if result is None:
            return None
        found.append(result if isinstance(result, tuple) else (result,))
    return tuple(reduce(join, of_one) for of_one in zip(*found, strict=True))


def join(a: Interval, b: Interval) -> Interval:
    """Return bounds on the results of two readings of a node, with what either may come to."""
    return replace(a.hull(b), nan=a.nan or b.nan, overflows=a.overflows or b.overflows)
