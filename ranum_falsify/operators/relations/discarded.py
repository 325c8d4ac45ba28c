"""Computed constants that matter: a network may make infinity or NaN, and then choose other numbers.

`Where(x < 8, x, Log(x / 8))` of a stored x that has a zero discards what is infinite, as the position buckets of T5 do.
Elements are followed through operators that work element by element, and through choices by stored conditions; another
operator that reads an invalid element is taken to write nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TypeGuard

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input

from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.attributes import apply_rule
from ranum_falsify.domain.site import Site
from ranum_falsify.network import spec_of
from ranum_falsify.network.nesting import nodes_with_branches
from ranum_falsify.operators.relations.path_conditions import is_number_given
from ranum_falsify.operators.support.conditions import is_bounded_valid

Mask = np.ndarray
"""Elements that may be invalid, booleans of a constant's shape."""


def list_doubtful(analysis: IntervalAnalysis) -> tuple[str, ...]:
    """Return the names of the operators that make constants and are not proved, unless what is invalid is discarded."""
    unproved = {id(visited.op): visited for visited in analysis.folded if not is_bounded_valid(visited)}
    if not unproved:
        return ()
    masks: dict[int, Mask] = {}
    for op, arrays in analysis.graph.folded:
        for array, mask in zip(arrays, _follow(analysis, op, arrays, masks, unproved.get(id(op))), strict=True):
            masks[id(array)] = mask
    makers = [op for op, _ in analysis.graph.folded]
    chosen = {id(x) for op in makers for x in spec_of(op).operands_of(op)}
    read = {id(x) for op in nodes_with_branches(analysis.graph) for x in spec_of(op).operands_of(op)}
    # What no maker reads goes to somebody else.
    if not any(mask.any() for key, mask in masks.items() if key in read or key not in chosen):
        return ()
    return tuple(visited.op.name for visited in unproved.values())


def takes_no_nan(site: Site, field: object) -> bool:
    """Tell whether an operator hands on no NaN of an operand, `x` of `Where(IsNaN(x), 0, x)`, or knows it from numbers.

    What it writes is then of the operand's other values alone, or is false for NaN.  So is that of
    `Where(x > 0, Log(x), 0)`: the operand is no NaN where it is taken.
    """
    op = site.op
    if _is(op, "IsInf"):
        return True
    if _is(op, "CastLike"):  # of the other operand, only the type counts
        return spec_of(op).operands_of(op)[0] is not field
    if not _is(op, "Where"):
        return False
    condition, when, otherwise = spec_of(op).operands_of(op)
    taken = [truth for branch, truth in ((when, True), (otherwise, False)) if branch is field]
    return field is not condition and all(
        _is_never(site, condition, truth)
        or _rules_out_nan(condition, field, truth)
        or is_number_given(site, condition, field, truth=truth)
        for truth in taken
    )


def chooses(op: Operation) -> bool:
    """Tell whether an operator takes elements of others as a condition says, which rests on no relation of these."""
    return _is(op, "Where")


def forgets_before_nan(op: Operation) -> bool:
    """Tell whether an operator compares numbers one by one, and may go on from the one that comes after a NaN."""
    return _is(op, "ScatterElements", "ScatterND") and op.reduction in ("min", "max")


def _is_never(site: Site, condition: Operation | np.ndarray, truth: bool) -> bool:
    """Tell whether bounds say that a condition is nowhere true, or nowhere false."""
    known = site.find_known(condition)
    return known is not None and not bool((known.upper if truth else ~known.lower).any())


def _rules_out_nan(condition: object, field: object, truth: bool) -> bool:
    """Tell whether a tensor is not NaN wherever a condition is true, or wherever it is false.

    Only tests for NaN say so, and `x == x`: what another comparison makes of it is the kernel's choice.
    """
    if _is(condition, "IsNaN"):
        return not truth and spec_of(condition).operands_of(condition)[0] is field
    if _is(condition, "Equal"):
        return truth and all(x is field for x in spec_of(condition).operands_of(condition))
    if _is(condition, "Not"):
        return _rules_out_nan(spec_of(condition).operands_of(condition)[0], field, not truth)
    parts = spec_of(condition).operands_of(condition) if _is(condition, "And", "Or") else ()
    tell = [_rules_out_nan(part, field, truth) for part in parts]
    return bool(tell) and (any(tell) if _is(condition, "And" if truth else "Or") else all(tell))


def _is(field: object, *op_types: str) -> TypeGuard[Operation]:
    return isinstance(field, Operation) and not isinstance(field, Input) and spec_of(field).op_type in op_types


def _follow(
    analysis: IntervalAnalysis,
    op: Operation,
    arrays: Collection[np.ndarray],
    masks: dict[int, Mask],
    unproved: Visited | None,
) -> Iterator[Mask]:
    """Yield which elements of the results of an operator may be invalid."""
    fields = spec_of(op).operands_of(op)
    read = [masks.get(id(x), np.zeros(np.shape(x), bool)) for x in fields if x is not None]
    for array in arrays:
        if not spec_of(op).elementwise:
            yield np.full(array.shape, unproved is not None or any(mask.any() for mask in read))
            continue
        carried = (
            _choose(op, read) if spec_of(op).op_type == "Where" else np.logical_or.reduce(np.broadcast_arrays(*read))
        )
        if unproved is None:
            yield np.broadcast_to(carried, array.shape)
            continue
        found = carried | ~np.isfinite(array) if array.dtype.kind == "f" else carried
        known = bool(found.any()) and _is_valid_beside(analysis, unproved, np.broadcast_to(found, array.shape))
        yield np.broadcast_to(found if known else np.ones((), bool), array.shape)


def _choose(op: Operation, read: list[Mask]) -> Mask:
    condition, x, y = read
    return np.asarray(condition | np.where(op.condition, x, y))


def _is_valid_beside(analysis: IntervalAnalysis, visited: Visited, invalid: Mask) -> bool:
    """Tell whether an operator is valid at all elements but some."""
    if invalid.all():
        return True
    first = int(np.flatnonzero(~invalid.reshape(-1))[0])
    mask = torch.from_numpy(invalid.copy())
    operands = tuple(_replace(x, mask, first) if isinstance(x, Interval) else x for x in visited.operands)

    def bound(site: object, *_: object) -> tuple[Interval, ...] | None:
        return apply_rule(spec_of(visited.op).interval, site, operands)  # type: ignore[arg-type]

    question: Callable[..., tuple[Interval, ...] | None] = bound
    outputs = analysis.ask(visited.op, question)
    return outputs is not None and is_bounded_valid(replace(visited, operands=operands, outputs=outputs))


def _replace(x: Interval, mask: torch.Tensor, place: int) -> Interval:
    """Return bounds with those at a place of the result for all elements of a mask."""
    lower, upper = (end.expand(mask.shape) for end in x.expand())
    low, high = (torch.where(mask, end.reshape(-1)[place], end) for end in (lower, upper))
    return Interval.of(low, high, tuple(mask.shape))
