"""Schemas of operators as runtimes have them, in one shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from ranum_falsify.network.registry import schema_of
from ranum_falsify.network.tensors import ONNX_TO_NUMPY, torch_dtype
from tests.operators.forms.values import is_number

__all__ = ["OLDEST", "Attribute", "Formal", "Schema", "schema_at", "versions_of"]

OLDEST = 7
"""The oldest opset of ONNX whose operators ONNX Runtime runs as they are specified."""

_NAMES: Mapping[str, np.dtype] = {
    f"tensor({onnx.helper.tensor_dtype_to_string(number).removeprefix('TensorProto.').lower()})": dtype
    for number, dtype in ONNX_TO_NUMPY.items()
}


@dataclass(frozen=True)
class Attribute:
    """An attribute: its type (`INT`, `STRINGS`, ...), its default value, and whether it must be given."""

    kind: str
    default: Any = None
    required: bool = False


@dataclass(frozen=True)
class Formal:
    """An input or output.

    Attributes:
        name: Its name.
        option: `Single`, `Optional` or `Variadic`.
        variable: The variable that its type is; inputs of one variable have one type.
        types: Element types that it may have and that tensors of PyTorch hold.
    """

    name: str
    option: str
    variable: str
    types: tuple[np.dtype, ...]


@dataclass(frozen=True)
class Schema:
    """One version of an operator."""

    since: int
    attributes: Mapping[str, Attribute]
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    least_outputs: int
    most_inputs: int

    def formal(self, position: int) -> Formal | None:
        """Return the input at a position; None beyond the last."""
        if position < len(self.inputs):
            return self.inputs[position]
        last = self.inputs[-1] if self.inputs else None
        return last if last is not None and last.option == "Variadic" else None


@cache
def _of_runtime() -> Mapping[tuple[str, str], tuple[Schema, ...]]:
    found: dict[tuple[str, str], list[Schema]] = {}
    everything = runtime.get_all_operator_schema()  # the list owns the schemas
    for schema in everything:
        domain = "" if schema.domain == "ai.onnx" else schema.domain
        found.setdefault((domain, schema.name), []).append(_shaped(schema))
    return {key: tuple(sorted(schemas, key=lambda schema: schema.since)) for key, schemas in found.items()}


def _shaped(schema: Any) -> Schema:
    return Schema(
        since=schema.since_version,
        attributes={name: _attribute(formal) for name, formal in schema.attributes.items()},
        inputs=tuple(_formal(formal) for formal in schema.inputs),
        outputs=tuple(_formal(formal) for formal in schema.outputs),
        least_outputs=schema.min_output,
        most_inputs=schema.max_input,
    )


def _attribute(formal: Any) -> Attribute:
    stored = getattr(formal, "_default_value", None)
    default = onnx.AttributeProto.FromString(stored) if stored else getattr(formal, "default_value", None)
    value = None
    if default is not None and default.type != onnx.AttributeProto.UNDEFINED:
        value = onnx.helper.get_attribute_value(default)
        value = value.decode() if isinstance(value, bytes) else value
    return Attribute(_last(formal.type), value, formal.required)


def _formal(formal: Any) -> Formal:
    variable = str(getattr(formal, "typeStr", None) or getattr(formal, "type_str", ""))
    types = sorted((_NAMES[kind] for kind in formal.types if kind in _NAMES), key=str)
    return Formal(formal.name, _last(formal.option), variable, tuple(kind for kind in types if _is_held(kind)))


def _is_held(dtype: np.dtype) -> bool:
    try:
        torch_dtype(dtype)
    except Exception:
        return False
    return is_number(dtype)


def _last(member: Any) -> str:
    return str(member).rsplit(".", 1)[-1]


@cache
def versions_of(op_type: str, domain: str) -> tuple[int, ...]:
    """Return the opsets from :data:`OLDEST` on at which an operator changes, and the first of these."""
    known = _of_runtime().get((domain, op_type), ())
    versions = [schema.since for schema in known] or [_own(op_type, domain).since]
    if domain:
        return tuple(versions)
    older = [version for version in versions if version <= OLDEST]
    return tuple(sorted({max([*older, OLDEST] if older else [min(versions)]), *(v for v in versions if v > OLDEST)}))


@cache
def schema_at(op_type: str, domain: str, opset: int) -> Schema | None:
    """Return the schema in force at an opset of the operator's domain: ONNX Runtime's, or else the row's."""
    known = [s for s in _of_runtime().get((domain, op_type), ()) if s.since <= opset]
    if known:
        return known[-1]
    found = schema_of(op_type, domain, opset)
    return None if found is None else _shaped(found)


def _own(op_type: str, domain: str) -> Schema:
    found = schema_of(op_type, domain, 10**3)
    assert found is not None, f"{op_type} has no schema"
    return _shaped(found)
