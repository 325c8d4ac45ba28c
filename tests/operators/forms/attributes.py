"""Forms that differ in an attribute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from tests.operators.forms.schemas import Attribute
from tests.operators.forms.values import FLOAT_CLASSES, LIST_CLASSES, WHOLE_CLASSES, listed, number, numbers
from tests.operators.forms.words import words_of
from tests.operators.harness import OperatorCase

__all__ = ["attribute_classes", "with_attribute"]

_UNKNOWN = "no such word"
_KINDS = {
    "INT": WHOLE_CLASSES,
    "FLOAT": FLOAT_CLASSES,
    "INTS": (*WHOLE_CLASSES, *LIST_CLASSES),
    "FLOATS": (*FLOAT_CLASSES, *LIST_CLASSES),
    "STRINGS": LIST_CLASSES,
    "TENSOR": (*FLOAT_CLASSES, "empty", "type", "rank"),
}
_TENSOR_TYPES = ("float32", "float64", "int64", "int32", "uint8", "float16", "bool")
_RANGES = {"to": (0, 24), "dtype": (0, 24), "output_datatype": (0, 24), "output_dtype": (0, 24), "stash_type": (0, 17)}
"""Attributes that are element types by number."""


def attribute_classes(name: str, formal: Attribute) -> Iterator[str]:
    """Yield the classes of values of an attribute: words as `is WORD`."""
    if formal.kind in ("STRING", "STRINGS"):
        yield from (f"is {word}" for word in (*words_of(name), "", _UNKNOWN))
    if name in _RANGES:
        yield "type"
    yield from _KINDS.get(formal.kind, ())
    if not formal.required:
        yield "left out"
    if formal.default is not None:
        yield "default"


def with_attribute(
    case: OperatorCase, name: str, formal: Attribute, kind: str, rng: np.random.Generator
) -> OperatorCase | None:
    """Return a case whose attribute is of a class; None if it is so already."""
    attributes = dict(case.attributes)
    before = attributes.pop(name, None)
    if kind == "left out":
        return None if before is None else replace(case, attributes=attributes)
    value = formal.default if kind == "default" else _value(name, formal, kind, before, rng)
    if value is None or (_is_plain(value) and value == before):
        return None
    return replace(case, attributes=attributes | {name: value})


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str | list | tuple)


def _value(name: str, formal: Attribute, kind: str, before: Any, rng: np.random.Generator) -> Any:
    if kind.startswith("is "):
        word = kind.removeprefix("is ")
        return word if formal.kind == "STRING" else listed(_texts(before), "word", rng, lambda _: word)
    if formal.kind == "TENSOR":
        return _tensor(before, kind, rng)
    if name in _RANGES and kind == "type":
        return int(rng.integers(*_RANGES[name]))
    dtype = np.float32 if formal.kind.startswith("FLOAT") else np.int64
    if formal.kind in ("INT", "FLOAT"):
        return _bounded(number(kind, rng, dtype))
    start = list(before) if before is not None else _some(formal, name, rng)
    return listed(start, kind, rng, lambda k: _fresh(formal, name, k, rng))


def _bounded(value: Any) -> Any:
    return value


def _texts(before: Any) -> list[str]:
    return [text.decode() if isinstance(text, bytes) else str(text) for text in before or ()]


def _some(formal: Attribute, name: str, rng: np.random.Generator) -> list[Any]:
    return [_fresh(formal, name, "positive", rng) for _ in range(int(rng.integers(1, 5)))]


def _fresh(formal: Attribute, name: str, kind: str, rng: np.random.Generator) -> Any:
    if formal.kind == "STRINGS":
        return str(rng.choice(words_of(name)))
    return number(kind, rng, np.float32 if formal.kind == "FLOATS" else np.int64)


def _tensor(before: Any, kind: str, rng: np.random.Generator) -> onnx.TensorProto | None:
    array = onnx.numpy_helper.to_array(before) if isinstance(before, onnx.TensorProto) else np.ones(1, np.float32)
    if array.dtype.kind not in "fiub":
        return None
    if kind == "type":
        with np.errstate(all="ignore"):
            array = array.astype(str(rng.choice(_TENSOR_TYPES)))
    elif kind == "rank":
        array = array.reshape(1, *array.shape) if rng.random() < 0.5 else array.reshape(-1)
    elif kind == "empty":
        array = array.reshape(-1)[:0]
    else:
        array = numbers(array, kind, rng)
    return onnx.numpy_helper.from_array(array)
