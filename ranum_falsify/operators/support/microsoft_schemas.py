"""Schemas of operators that ONNX does not define, as ONNX Runtime writes them into the models that it optimises.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.  Only what its CPU kernels can run
    is
declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

DOMAIN = "com.microsoft"
BYTES = ("uint8", "int8")
FLOATS = ("float",)

_OpSchema = onnx.defs.OpSchema
_OPTIONS = {"?": _OpSchema.FormalParameterOption.Optional, "*": _OpSchema.FormalParameterOption.Variadic}
_TYPES = onnx.AttributeProto.AttributeType
_KINDS: Mapping[str, Any] = {
    "int": _TYPES.INT,
    "float": _TYPES.FLOAT,
    "string": _TYPES.STRING,
    "ints": _TYPES.INTS,
    "floats": _TYPES.FLOATS,
    "strings": _TYPES.STRINGS,
}


def schema(
    name: str,
    inputs: str,
    output: str,
    types: Mapping[str, Sequence[str]],
    *,
    defaults: Mapping[str, int | float | str] | None = None,
    kinds: Mapping[str, str] | None = None,
    domain: str = DOMAIN,
) -> onnx.defs.OpSchema:
    """Return the schema of an operator, of the first opset of its domain.

    Args:
        name: Name of the operator.
        inputs: `name:type` for each, separated by spaces; `?` marks an optional one, `*` one that takes the rest.
        output: The same for the outputs.
        types: Element types that each type of inputs and output stands for.
        defaults: Default values of attributes.
        kinds: Kinds of attributes without a default value; `?` marks optional ones.
        domain: Domain of the operator.
    """
    return _OpSchema(
        name,
        domain,
        1,
        inputs=[_parameter(text) for text in inputs.split()],
        outputs=[_parameter(text) for text in output.split()],
        type_constraints=[(kind, [f"tensor({type_})" for type_ in allowed], "") for kind, allowed in types.items()],
        attributes=[
            *(
                _OpSchema.Attribute(key, onnx.helper.make_attribute(key, value))
                for key, value in (defaults or {}).items()
            ),
            *(_attribute(key, kind) for key, kind in (kinds or {}).items()),
        ],
    )


def _parameter(text: str) -> onnx.defs.OpSchema.FormalParameter:
    option = _OPTIONS.get(text[-1])
    name, kind = (text if option is None else text[:-1]).split(":")
    if option is None:
        return _OpSchema.FormalParameter(name, kind)
    return _OpSchema.FormalParameter(name, kind, param_option=option, is_homogeneous=option is _OPTIONS["?"])


def _attribute(name: str, kind: str) -> onnx.defs.OpSchema.Attribute:
    return _OpSchema.Attribute(name, _KINDS[kind.removesuffix("?")], required=not kind.endswith("?"))
