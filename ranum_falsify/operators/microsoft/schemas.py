"""Schemas of operators that ONNX does not define, as ONNX Runtime writes them into the models that it optimises.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.  Only what its CPU kernels run is
declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

__all__ = ["DOMAIN", "schema"]

DOMAIN = "com.microsoft"

_OpSchema = onnx.defs.OpSchema
_TYPES = onnx.AttributeProto.AttributeType
_KINDS: Mapping[str, Any] = {
    "int": _TYPES.INT,
    "float": _TYPES.FLOAT,
    "string": _TYPES.STRING,
    "ints": _TYPES.INTS,
    "floats": _TYPES.FLOATS,
}

AttributeDefault = int | float | str


def schema(
    name: str,
    inputs: Sequence[str],
    *,
    types: Sequence[str] = ("float",),
    others: Mapping[str, str] | None = None,
    attributes: Mapping[str, AttributeDefault] | None = None,
    optional: Mapping[str, str] | None = None,
    domain: str = DOMAIN,
    since: int = 1,
) -> onnx.defs.OpSchema:
    """Return the schema of an operator with one output.

    Args:
        name: Name of the operator.
        inputs: Names of its inputs, with a question mark where they may be absent.
        types: Element types that the output has, and the inputs with it.
        others: Element types of inputs that are of another.
        attributes: Default values.
        optional: Kinds of attributes without a default value.
        domain: Domain of the operator.
        since: Opset of the domain from which on it holds.
    """
    kinds = dict(others or {})
    return _OpSchema(
        name,
        domain,
        since,
        inputs=[_parameter(text, kinds) for text in inputs],
        outputs=[_OpSchema.FormalParameter("Y", "T")],
        type_constraints=[("T", [f"tensor({kind})" for kind in types], "")],
        attributes=[
            *(
                _OpSchema.Attribute(key, onnx.helper.make_attribute(key, value))
                for key, value in (attributes or {}).items()
            ),
            *(_OpSchema.Attribute(key, _KINDS[kind], required=False) for key, kind in (optional or {}).items()),
        ],
    )


def _parameter(text: str, others: Mapping[str, str]) -> onnx.defs.OpSchema.FormalParameter:
    name = text.removesuffix("?")
    option = _OpSchema.FormalParameterOption.Optional if text != name else _OpSchema.FormalParameterOption.Single
    kind = f"tensor({others[name]})" if name in others else "T"
    return _OpSchema.FormalParameter(name, kind, param_option=option)
