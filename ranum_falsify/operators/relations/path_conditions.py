"""Guards: what a test of x says about x where `Where` takes results computed from it, or `If` a branch that reads it.

`Where(x > 0, f(x), g(x))` needs f only for numbers above 0 and g only for the rest: both are bounded again, under that
assumption.  This is right for elementwise functions only: an element of a sum depends on others, which are not tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input
from torch import Tensor

from ranum_falsify.domain.error_bounds import least_positive
from ranum_falsify.domain.interval import Interval, dtype_range
from ranum_falsify.domain.order import SIGNED, greatest, least
from ranum_falsify.domain.rules.arithmetic.pairs import add
from ranum_falsify.domain.rules.support.building import inherit_marks, keeping_infinity, result_shape
from ranum_falsify.domain.site import Fact, IntervalRule, Site
from ranum_falsify.network.order import find_between, operands_in, topological_order
from ranum_falsify.network.registry import row_of
from ranum_falsify.operators.relations.fused import error_inside
from ranum_falsify.operators.relations.matching import (
    EXACT,
    HALVES,
    WIDENING,
    Field,
    constant,
    fields_of,
    is_a,
    is_twin,
    kind,
    pairs,
    rounds_apart,
    source,
)

_NEAR = 32
"""How many nodes before a branch are searched for what the test reads."""

_MOVING = ("Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "Expand", "Slice", "Gather")
_REDUCING = ("ReduceSum", "ReduceMean", "ReduceMin", "ReduceMax")
"""Operators that make one number of one number, the same."""

_REVERSED = {"Greater": "Less", "Less": "Greater", "GreaterOrEqual": "LessOrEqual", "LessOrEqual": "GreaterOrEqual"}
_NEGATED = {"Greater": "LessOrEqual", "Less": "GreaterOrEqual", "GreaterOrEqual": "Less", "LessOrEqual": "Greater"}

Narrowing = Callable[[Interval], Interval]
"""Maps the bounds of a number to its bounds where the condition is as assumed."""


def guarded(rule: IntervalRule) -> IntervalRule:
    """Return the rule of `Where` with each branch bounded under the condition that takes it."""

    def guarded_rule(site: Site, condition: Interval, a: Interval, b: Interval) -> Interval | tuple[Interval, ...]:
        then = _bounds_given(site, site.op.condition, site.op.x, a, truth=True)
        otherwise = _bounds_given(site, site.op.condition, site.op.y, b, truth=False)
        return rule(site, condition, then, otherwise)

    return keeping_infinity(guarded_rule)


def flagged(rule: IntervalRule) -> IntervalRule:
    """Return the rule of `Add` with x + c (x == 0), or with another test of x, bounded as a choice of both."""

    def flagged_rule(site: Site, a: Interval, b: Interval) -> Interval:
        y = rule(site, a, b)
        assert isinstance(y, Interval)
        first, second = fields_of(site.op)
        for flag, field, x in ((first, second, b), (second, first, a)):
            found = add_flag(site, flag, field, x)
            if found is not None and x.shape == y.shape:
                y = y.meet(found[0].hull(found[1]))
        return y

    return inherit_marks(flagged_rule, rule)


def add_flag(site: Site, flag: Field, field: Field, x: Interval) -> tuple[Interval, Interval] | None:
    """Return bounds of a sum with a flag that is cast from a test, where it holds and where it is 0; None for no flag.

    The flag may be multiplied by a constant; `field` is the other summand, with bounds x.
    """
    condition, size = _test_of(flag)
    known = site.find_known(condition)
    # Half precision may round to 0 what was not when it was tested.
    if known is None or known.dtype is not torch.bool or x.dtype not in (torch.float32, torch.float64):
        return None
    # A runtime may add the flag to the terms of a product beside it, one block of them after another.
    if x.may_be_infinite or not x.size or error_inside(site, field, x.dtype):
        return None
    without = _bounds_given(site, condition, field, x, truth=False)
    added = Interval.fill(size, size, x.shape, x.dtype)
    return add(site, _bounds_given(site, condition, field, x, truth=True), added), without


def _test_of(flag: Field) -> tuple[Field, float]:
    """Return the test that a flag is cast from, and the number that it is where the test holds."""
    product = is_a(flag, "Mul")
    for part, size in [(flag, 1.0)] if product is None else [(x, constant(c)) for x, c in pairs(product)]:
        cast = is_a(part, "Cast")
        if cast is not None and size is not None:
            return fields_of(cast)[0], size
    return None, 0.0


def narrow_read(site: Site, condition: Field, field: Field, bounds: Interval, *, truth: bool) -> Interval:
    """Return the bounds of a tensor where a condition, which is one number, is true, or where it is false."""
    read, known = source(field), site.find_known(condition)
    if not isinstance(read, Operation) or known is None or known.size != 1:
        return bounds
    facts = []
    for cause, given in find_facts(site, condition, truth):
        assumed = _loosen(site, cause, given)
        if cause is read:
            bounds = bounds.meet(assumed)
        elif all(len(op.output_names) == 1 for op in find_between([cause], read)):
            facts.append((cause, assumed))
    return bounds.meet(site.bounds_given(read, facts)) if facts else bounds


def _bounds_given(site: Site, condition: Field, field: Field, bounds: Interval, *, truth: bool) -> Interval:
    for given in _list_bounds(site, condition, field, truth):
        bounds = bounds.meet(given)
    return bounds


def is_number_given(site: Site, condition: Field, field: Field, *, truth: bool) -> bool:
    """Tell whether a tensor is nowhere NaN where a condition on what it is computed from is true, or where it is false.

    A test of the tensor itself says nothing: what NaN compares to is the kernel's choice.
    """
    branch = source(field)
    facts = [fact for fact in _list_facts(site, condition, branch, truth) if fact[0] is not branch]
    return bool(facts) and isinstance(branch, Operation) and not site.bounds_given(branch, facts).nan


def _list_bounds(site: Site, condition: Field, field: Field, truth: bool) -> Iterator[Interval]:
    """Yield bounds of a tensor where a condition is true, or where it is false."""
    branch = source(field)
    facts = list(_list_facts(site, condition, branch, truth))
    yield from (assumed for cause, assumed in facts if cause is branch)
    before = [fact for fact in facts if fact[0] is not branch]
    # Each by itself, too: together they may reach too far.
    for some in (before, *[[fact] for fact in before]) if len(before) > 1 else [before]:
        if some and isinstance(branch, Operation):
            yield site.bounds_given(branch, some)


def _list_facts(site: Site, condition: Field, branch: Field, truth: bool) -> Iterator[Fact]:
    """Yield what a condition says of an operation, and of what it depends on element by element."""
    if not isinstance(branch, Operation):
        return
    for found, assumed in find_facts(site, condition, truth):
        for cause in _list_twins(site, found, branch):
            if cause is branch or _depends_elementwise(branch, cause):
                yield cause, _loosen(site, cause, assumed)


def _loosen(site: Site, cause: Operation, assumed: Interval) -> Interval:
    """Return bounds of what was tested for a reader who may round it where the test did not, or the other way."""
    known = site.find_known(cause)
    if known is None or isinstance(cause, Input) or not rounds_apart(site, known):
        return assumed
    low, high = (
        torch.nextafter(x, torch.full_like(x, end))
        for x, end in ((assumed.lower, -math.inf), (assumed.upper, math.inf))
    )
    return known.meet(Interval.of(low, high, assumed.shape))


def _list_twins(site: Site, cause: Operation, op: Operation) -> list[Operation]:
    """Return an operation, and those near before another one that compute the same numbers."""
    known = site.find_known(cause)
    if known is None or rounds_apart(site, known):
        return [cause]
    near, waiting = {id(op): op}, [op]
    while waiting and len(near) <= _NEAR:
        for operand in operands_in(waiting.pop()):
            if id(operand) not in near and operand is not cause:
                near[id(operand)] = operand
                waiting.append(operand)
    return [cause, *(one for one in near.values() if is_twin(one, cause) and one is not cause)]


def _depends_elementwise(op: Operation, cause: Operation) -> bool:
    """Tell whether each element of an operation depends on that of another at the same place, and on no other of it."""
    # What comes before the cause cannot depend on it.
    waiting, seen, found = [op], {id(op), *map(id, topological_order([cause])[:-1])}, False
    most = len(seen) + _NEAR
    while waiting:
        inner = waiting.pop()
        if inner is cause:
            found = True
            continue
        for operand in operands_in(inner):
            if id(operand) not in seen:
                seen.add(id(operand))
                waiting.append(operand)
        if len(seen) > most:
            return False
    rows = map(row_of, find_between([cause], op))
    return found and all(row is not None and row.elementwise for row in rows)


# what a condition says ------------------------------------------------------------------------------------------


def find_facts(site: Site, field: Field, truth: bool) -> Iterator[Fact]:
    """Yield what follows, element by element, from a condition being true, or from its being false."""
    op = source(field)
    if not isinstance(op, Operation):
        return
    if is_a(op, "Not"):
        yield from find_facts(site, fields_of(op)[0], not truth)
    elif is_a(op, "And" if truth else "Or"):
        for part in fields_of(op):
            yield from find_facts(site, part, truth)
    elif _hands_on(site, op):
        yield from find_facts(site, fields_of(op)[0], truth)
    elif is_a(op, "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"):
        yield from _narrow_compared(site, op, truth)
    elif is_a(op, "IsInf") and not truth and op.detect_negative and op.detect_positive:
        yield from _narrow_about(site, fields_of(op)[0], lambda x: x.keep_finite())
    elif is_a(op, "Cast") and op.to == onnx.TensorProto.BOOL:
        (number,) = fields_of(op)
        yield from _narrow_about(site, number, lambda x: _exclude(site, x, 0) if truth else _clip(x, 0.0, 0.0))


def _hands_on(site: Site, op: Operation) -> bool:
    """Tell whether a condition is the one it reads: a single one in another shape, or one cast to its own type."""
    if not is_a(op, "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Cast"):
        return False
    read = site.find_known(fields_of(op)[0])
    if read is None or read.dtype is not torch.bool:
        return False
    return op.to == onnx.TensorProto.BOOL if is_a(op, "Cast") else read.size == 1


def _narrow_about(site: Site, field: Field, narrowed: Narrowing) -> Iterator[Fact]:
    """Yield an operation with narrower bounds, and what they say about the operands of some operators."""
    op = source(field)
    known = site.find_known(op)
    if not isinstance(op, Operation) or known is None or not known.size:
        return
    assumed = narrowed(known)
    yield op, assumed
    if is_a(op, "Abs"):
        yield from _narrow_about(site, fields_of(op)[0], lambda x: _of_size(x, assumed))
    elif (read := _find_alone(site, op)) is not None:
        yield from _narrow_about(site, read, lambda x: x.meet(_reshape(assumed, x.shape)))
    elif is_a(op, "ReduceMin", "ReduceMax") and known.size == 1:
        low, high = assumed.extremes
        limits = (low, math.inf) if kind(op) == "ReduceMin" else (-math.inf, high)
        yield from _narrow_about(site, fields_of(op)[0], lambda x: _within(x, *limits))
    elif is_a(op, "Cast") and (before := site.find_known(fields_of(op)[0])) is not None:
        if before.dtype is torch.bool:
            if assumed.extremes[0] > 0 or assumed.extremes[1] <= 0:
                yield from find_facts(site, fields_of(op)[0], assumed.extremes[0] > 0)
        elif _keeps_numbers(before, known) and not rounds_apart(site, before):
            yield from _narrow_about(site, fields_of(op)[0], lambda x: x.meet(_narrow_type(assumed, x.dtype)))


def _keeps_numbers(before: Interval, after: Interval) -> bool:
    """Tell whether a change of type changes no number."""
    return before.dtype is after.dtype or (before.dtype, after.dtype) in WIDENING


def _narrow_type(x: Interval, dtype: torch.dtype) -> Interval:
    """Return bounds of those numbers of a narrower type that lie within bounds: rounding keeps the order."""
    return replace(x, lower=x.lower.to(dtype), upper=x.upper.to(dtype))


def _find_alone(site: Site, op: Operation) -> Field:
    """Return the operand if it has one element and the node only reshapes it."""
    read = fields_of(op)[0] if is_a(op, *_MOVING, *_REDUCING) else None
    x, y = site.find_known(read), site.find_known(op)
    if x is None or y is None or rounds_apart(site, x) or x.dtype is not y.dtype:
        return None
    return read if x.size == y.size == 1 else None


def _reshape(x: Interval, shape: tuple[int, ...]) -> Interval:
    """Return the bounds of a single number in another shape."""
    stored = (1,) * len(shape)
    return replace(x, lower=x.lower.reshape(stored), upper=x.upper.reshape(stored), shape=shape)


def _of_size(x: Interval, size: Interval) -> Interval:
    """Return the bounds of x, given narrower ones of its absolute value; the least integer is its own."""
    if not x.dtype.is_signed:
        return x.meet(size)
    lower, least_of_type = -size.upper, dtype_range(x.dtype)[0]
    if not x.is_floating:
        lower = torch.where(x.lower == least_of_type, x.lower, lower)
    inside = x.meet(Interval.of(lower, size.upper, size.shape))
    return replace(inside, gap=max(x.gap, size.distance))


def _narrow_compared(site: Site, op: Operation, truth: bool) -> Iterator[Fact]:
    a, b = fields_of(op)
    left, right = site.find_known(a), site.find_known(b)
    if left is None or right is None or not left.size or not right.size:
        return
    name = kind(op)
    if name == "Equal":
        yield from _narrow_about(site, a, lambda x: _narrow_equal(site, x, right, truth))
        yield from _narrow_about(site, b, lambda x: _narrow_equal(site, x, left, truth))
        yield from _choose(site, a, right, truth)
        yield from _choose(site, b, left, truth)
        return
    if not truth:
        name = _NEGATED[name]
    yield from _narrow_about(site, a, lambda x: _narrow_beyond(site, x, right, name))
    yield from _narrow_about(site, b, lambda x: _narrow_beyond(site, x, left, _REVERSED[name]))


def _choose(site: Site, field: Field, number: Interval, truth: bool) -> Iterator[Fact]:
    """Yield what follows from a result of `Where` being a number, or not, if only one of its branches can be that.

    Of elements that were moved meanwhile, no more is said than how that branch is bounded.
    """
    chosen = held = source(field)
    while (moving := is_a(chosen, *_MOVING)) is not None:
        chosen = source(fields_of(moving)[0])
    op, known = is_a(chosen, "Where"), site.find_known(held)
    if op is None or known is None or not number.is_point or not number.is_scalar:
        return
    condition, *branches = fields_of(op)
    possible = list(map(site.find_known, branches))
    places = [place for place, x in enumerate(possible) if x is None or _may_be(x, number.lower.item(), truth)]
    if len(places) != 1:
        return
    branch = possible[places[0]]
    if held is not op:
        assert isinstance(held, Operation)
        if branch is not None and branch.size and known.size and not rounds_apart(site, branch):
            ends = Interval.fill(*branch.extremes, known.shape, known.dtype)
            yield held, known.meet(ends)
        return
    tested = site.find_known(condition)
    if tested is None or tested.shape != known.shape:
        return
    if branch is not None and result_shape(known, branch) == known.shape:
        yield op, known.meet(Interval.of(branch.lower, branch.upper, known.shape))
    yield from find_facts(site, condition, places[0] == 0)


def _may_be(x: Interval, number: float | int, truth: bool) -> bool:
    """Tell whether some element may be a number, or some may be another one or NaN."""
    if truth:
        return bool(((x.lower <= number) & (x.upper >= number)).any())
    return not bool(((x.lower == number) & (x.upper == number)).all())


def _narrow_beyond(site: Site, x: Interval, limit: Interval, name: str) -> Interval:
    """Return the bounds of x where x is greater or less than a number with the bounds `limit`."""
    low, high = _ends_for(x, limit)
    if name.startswith("Greater"):
        edge = _step(site, low, up=True) if name == "Greater" else low
        return x.meet(Interval.of(edge, greatest(edge, x.upper), x.shape))
    edge = _step(site, high, up=False) if name == "Less" else high
    return x.meet(Interval.of(least(edge, x.lower), edge, x.shape))


def _narrow_equal(site: Site, x: Interval, other: Interval, truth: bool) -> Interval:
    low, high = _ends_for(x, other)
    if truth:
        return x.meet(Interval.of(low, high, x.shape))
    if not other.is_point or not other.is_scalar:
        return x
    return _exclude(site, x, other.lower.item())


def _ends_for(x: Interval, other: Interval) -> tuple[Tensor, Tensor]:
    """Return the ends of an operand for each element of x that it is compared with."""
    if result_shape(x, other) == x.shape:
        return other.lower, other.upper
    shape = (1,) * len(x.shape)
    lowest = Interval.fill(*other.extremes, shape, other.dtype)
    return lowest.lower, lowest.upper


def _step(site: Site, x: Tensor, *, up: bool) -> Tensor:
    """Return the next number of the type, or the number where there is none or results may not be rounded to it."""
    if x.dtype in SIGNED or (x.dtype in HALVES and "onnxruntime" in site.runtimes):
        return x
    if x.is_floating_point():
        return torch.nextafter(x, torch.full_like(x, math.inf if up else -math.inf))
    limits = torch.iinfo(x.dtype)
    wide = x.long()
    moved = wide + 1 if up else wide - 1
    return torch.where(wide == (limits.max if up else limits.min), wide, moved).to(x.dtype)


def _exclude(site: Site, x: Interval, number: float | int) -> Interval:
    """Return the bounds of x where it is not a number: a step in from an end, a gap around 0."""
    if x.dtype is torch.bool or x.dtype in SIGNED:
        return x
    low, high = x.lower, x.upper
    inside = low < high
    lower = torch.where((low == number) & inside, _step(site, low, up=True), low)
    upper = torch.where((high == number) & inside, _step(site, high, up=False), high)
    gap = x.gap
    # Where it is that number whatever comes, nothing is left, and a gap would contradict the bounds.
    if number == 0 and not bool(((low == 0) & (high == 0)).any()):
        gap = max(gap, least_positive(x.dtype) if x.is_floating else 1.0)
    return replace(x, lower=lower, upper=torch.maximum(lower, upper), gap=gap)


def _within(x: Interval, low: float, high: float) -> Interval:
    """Return the bounds of x where all of it is within limits; those of large integers are no exact floats."""
    exact = x.is_floating or max(map(abs, x.extremes)) < EXACT
    return _clip(x, max(low, x.extremes[0]), min(high, x.extremes[1])) if exact else x


def _clip(x: Interval, low: float, high: float) -> Interval:
    return x if x.dtype is torch.bool else x.clamp(low, high)
