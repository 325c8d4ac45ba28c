"""Forms that differ in an operand: whether it is there, its type, its shape, its values, and how it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.operators.forms.schemas import Formal, Schema
from tests.operators.forms.values import FLOAT_CLASSES, is_number, numbers
from tests.operators.harness import Operand, OperatorCase, Spread, constants_of

__all__ = ["SHAPE_CLASSES", "operand_classes", "with_operand", "with_shapes"]

_VALUES = (*FLOAT_CLASSES, "duplicate", "any")
_OWN_SHAPES = ("rank + 1", "rank - 1", "scalar", "an axis of 1", "an empty axis", "another size")
SHAPE_CLASSES = ("rank + 1", "rank - 1", "an axis of 1", "an empty axis", "another size", "axes permuted")
"""How the shapes of all operands are changed together."""
_SIZES = (1, 2, 3, 4, 5, 7)
_MOST = 4096
"""Elements of an operand, at most: forms are many, and small ones show the same."""


def operand_classes(formal: Formal) -> Iterator[str]:
    """Yield the classes in which an operand is varied."""
    if formal.option != "Single":
        yield from ("left out", "given")
    yield from (f"type {dtype.name}" for dtype in formal.types)
    yield from _OWN_SHAPES
    yield from _VALUES
    yield from ("constant", "computed")


def with_operand(
    case: OperatorCase, schema: Schema, formal: Formal, kind: str, rng: np.random.Generator
) -> OperatorCase | None:
    """Return a case in which an operand is varied; None if that is not possible, or it is so already."""
    places = [i for i in range(len(case.inputs)) if schema.formal(i) is formal]
    if kind == "given":
        return _with_given(case, schema, formal, rng)
    places = [i for i in places if case.inputs[i] is not None]
    if not places:
        return None
    place = places[int(rng.integers(len(places)))]
    if kind == "left out":
        return _without(case, place, formal, rng)
    if kind in ("constant", "computed"):
        constants = constants_of(case)
        changed = constants | {place} if kind == "constant" else constants - {place}
        return None if changed == constants else replace(case, constants=changed)
    if kind.startswith("type "):
        return _with_type(case, schema, formal, np.dtype(kind.removeprefix("type ")))
    return _with(case, place, _changed(case.inputs[place], kind, rng))


def _with(case: OperatorCase, place: int, operand: Operand) -> OperatorCase | None:
    if operand is None:
        return None
    inputs = [operand if i == place else x for i, x in enumerate(case.inputs)]
    return replace(case, inputs=inputs, constants=constants_of(case))


def _without(case: OperatorCase, place: int, formal: Formal, rng: np.random.Generator) -> OperatorCase:
    constants = constants_of(case)
    inputs = list(case.inputs)
    if formal.option == "Variadic":
        inputs.pop(place)
        return replace(case, inputs=inputs, constants=frozenset(i - (i > place) for i in constants if i != place))
    inputs[place] = None
    if rng.random() < 0.7:  # without the empty names at the end
        while inputs and inputs[-1] is None:
            inputs.pop()
    return replace(case, inputs=inputs, constants=constants & frozenset(range(len(inputs))))


def _with_given(case: OperatorCase, schema: Schema, formal: Formal, rng: np.random.Generator) -> OperatorCase | None:
    inputs, position = list(case.inputs), schema.inputs.index(formal)
    if formal.option == "Variadic":
        if len(inputs) <= position:
            return None
        return replace(case, inputs=[*inputs, inputs[-1]], constants=constants_of(case))
    if position < len(inputs) and inputs[position] is not None:
        return None
    inputs += [None] * (position + 1 - len(inputs))
    inputs[position] = _fresh(case, schema, formal, rng)
    constants = constants_of(replace(case, inputs=inputs, constants=None)) & {position}
    constants = constants or (frozenset({position}) if rng.random() < 0.3 else frozenset())
    return replace(case, inputs=inputs, constants=constants_of(case) | constants)


def _fresh(case: OperatorCase, schema: Schema, formal: Formal, rng: np.random.Generator) -> Spread | np.ndarray:
    """Return an operand for an input that the case leaves out, of the type and the sizes of others."""
    same = [x for i, x in enumerate(case.inputs) if x is not None and _variable(schema, i) == formal.variable]
    types = [np.dtype(x.dtype) for x in same] or list(formal.types) or [np.dtype(np.float32)]
    dtype = types[int(rng.integers(len(types)))]
    shapes = [x.shape for x in case.inputs if x is not None] or [()]
    near = shapes[int(rng.integers(len(shapes)))]
    sizes = [n for shape in shapes for n in shape] or [1]
    some = tuple(int(rng.choice(sizes)) for _ in range(int(rng.integers(1, 3))))
    choices = (near, some, near[-1:], near[1:2], (len(near),), (1,), ())
    shape = choices[int(rng.integers(len(choices)))]
    if rng.random() < 0.3:
        return numbers(np.ones(shape, dtype), str(rng.choice(("zero", "positive", "negative"))), rng)
    return Spread(shape, dtype, low=0.0 if dtype.kind == "u" else -2.0)


def _variable(schema: Schema, position: int) -> str:
    formal = schema.formal(position)
    return formal.variable if formal is not None else ""


def _with_type(case: OperatorCase, schema: Schema, formal: Formal, dtype: np.dtype) -> OperatorCase | None:
    inputs = list(case.inputs)
    for i, x in enumerate(case.inputs):
        other = schema.formal(i)
        if x is not None and other is not None and (other is formal or other.variable == formal.variable):
            inputs[i] = _typed(x, dtype)
    if all(a is b for a, b in zip(inputs, case.inputs, strict=True)):
        return None
    return replace(case, inputs=inputs, constants=constants_of(case))


def _typed(x: Spread | np.ndarray, dtype: np.dtype) -> Spread | np.ndarray:
    if x.dtype == dtype:
        return x
    if isinstance(x, Spread):
        return replace(x, dtype=dtype, low=max(x.low, 0.0)) if dtype.kind == "u" else replace(x, dtype=dtype)
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(dtype)


def _changed(x: Operand, kind: str, rng: np.random.Generator) -> Operand:
    assert x is not None
    if kind == "any":
        return _wider(x, rng) if isinstance(x, Spread) else Spread(x.shape, x.dtype, *_span(np.asarray(x), rng))
    if kind in _VALUES:
        array = x.draw(rng) if isinstance(x, Spread) else np.asarray(x)
        return numbers(array, kind, rng) if array.size and is_number(array.dtype) else None
    shape = _shape(x.shape, kind, rng)
    return None if shape is None else resized(x, shape, rng)


def _wider(x: Spread, rng: np.random.Generator) -> Spread:
    kind = str(rng.choice(("wide", "small", "positive")))
    low, high = {"wide": (-100.0, 100.0), "small": (0.0, 3.0), "positive": (1.0, 8.0)}[kind]
    return replace(x, low=0.0 if np.dtype(x.dtype).kind == "u" else low, high=high)


def _span(x: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    if not x.size or x.dtype == np.bool_:
        return 0.0, 1.0
    low, high = float(x.min()), float(x.max())
    if not np.isfinite([low, high]).all() or max(abs(low), abs(high)) > 2**31:
        return 0.0, 4.0
    return low, high + float(rng.integers(0, 3))


def _shape(shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> tuple[int, ...] | None:
    """Return a shape changed as a class says; None where it cannot be."""
    if kind == "scalar":
        return () if shape else None
    if kind == "rank + 1":
        place = int(rng.integers(len(shape) + 1)) if rng.random() < 0.5 else 0
        return (*shape[:place], int(rng.choice((1, 1, 2, 3))), *shape[place:]) if len(shape) < 6 else None
    if not shape:
        return None
    axis = int(rng.integers(len(shape)))
    if kind == "rank - 1":
        axis = axis if rng.random() < 0.5 else 0
        return (*shape[:axis], *shape[axis + 1 :])
    size = {"an axis of 1": 1, "an empty axis": 0}.get(kind, int(rng.choice(_SIZES)))
    return None if size == shape[axis] else (*shape[:axis], size, *shape[axis + 1 :])


def resized(x: Spread | np.ndarray, shape: Sequence[int], rng: np.random.Generator) -> Operand:
    """Return an operand of another shape, with the values of the first, repeated; None if it were too large."""
    shape = tuple(shape)
    if int(np.prod(shape, dtype=np.int64)) > _MOST:
        return None
    if isinstance(x, Spread):
        return replace(x, shape=shape)
    if not x.size:
        return np.zeros(shape, x.dtype)
    return np.resize(x, shape)


def with_shapes(case: OperatorCase, kind: str, rng: np.random.Generator) -> OperatorCase | None:
    """Return a case the shapes of whose operands are changed together."""
    constants = constants_of(case)
    places = [i for i, x in enumerate(case.inputs) if x is not None and (i not in constants or x.dtype != np.int64)]
    shapes = [_shape_at(case, i) for i in places]
    ranks = sorted({len(shape) for shape in shapes if shape})
    if not ranks:
        return None
    inputs: list[Any] = list(case.inputs)
    changed = _shapes(shapes, ranks[int(rng.integers(len(ranks)))], kind, rng)
    for i, shape in zip(places, changed, strict=True):
        inputs[i] = resized(inputs[i], shape, rng)
        if inputs[i] is None:
            return None
    return replace(case, inputs=inputs, constants=constants) if changed != shapes else None


def _shape_at(case: OperatorCase, place: int) -> tuple[int, ...]:
    operand = case.inputs[place]
    assert operand is not None
    return tuple(operand.shape)


def _shapes(shapes: list[tuple[int, ...]], rank: int, kind: str, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Return shapes changed together: those of one rank in their axes, or all in a size that they share."""
    if kind in ("rank + 1", "rank - 1"):
        place, size = int(rng.integers(rank)), int(rng.choice((1, 2, 3)))
        if kind == "rank + 1":
            return [(*s[:place], size, *s[place:]) if len(s) == rank else s for s in shapes]
        return [(*s[:place], *s[place + 1 :]) if len(s) == rank else s for s in shapes]
    if kind == "axes permuted":
        order = rng.permutation(rank)
        return [tuple(s[int(i)] for i in order) if len(s) == rank else s for s in shapes]
    sizes = sorted({n for s in shapes for n in s})
    before = sizes[int(rng.integers(len(sizes)))]
    after = {"an axis of 1": 1, "an empty axis": 0}.get(kind, int(rng.choice(_SIZES)))
    if rng.random() < 0.5:
        return [tuple(after if n == before else n for n in s) for s in shapes]
    axis = int(rng.integers(-rank, 0))
    return [(*s[: len(s) + axis], after, *s[len(s) + axis + 1 :]) if len(s) == rank else s for s in shapes]
