"""Schemas of ONNX Runtime's operators on quantised tensors, in the domain `com.microsoft`.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import onnx

__all__ = ["BYTES", "FLOATS", "POOL", "AttrType", "Attribute", "schema", "with_default"]

BYTES = ("tensor(uint8)", "tensor(int8)")
FLOATS = ("tensor(float)",)

_Schema = onnx.defs.OpSchema
_OPTIONS = {"?": _Schema.FormalParameterOption.Optional, "*": _Schema.FormalParameterOption.Variadic}

Attribute: TypeAlias = onnx.defs.OpSchema.Attribute
AttrType: TypeAlias = onnx.defs.OpSchema.AttrType


def with_default(name: str, value: int | float | str) -> Attribute:
    """Return an optional attribute with a default."""
    return Attribute(name, onnx.helper.make_attribute(name, value))


POOL = (
    Attribute("kernel_shape", AttrType.INTS),
    Attribute("strides", AttrType.INTS, required=False),
    Attribute("pads", AttrType.INTS, required=False),
    with_default("auto_pad", "NOTSET"),
    with_default("ceil_mode", 0),
)
"""Attributes of windows."""


def schema(
    name: str,
    inputs: str,
    output: str,
    types: Mapping[str, Sequence[str]],
    attributes: Sequence[Attribute] = (),
) -> onnx.defs.OpSchema:
    """Return a schema of version 1.

    Args:
        name: ONNX name.
        inputs: `name:type` for each, separated by spaces; `?` marks an optional one, `*` one that takes the rest.
        output: The same for the output.
        types: What each type of inputs and output stands for.
        attributes: The attributes.
    """
    return _Schema(
        name,
        "com.microsoft",
        1,
        inputs=[_parameter(text) for text in inputs.split()],
        outputs=[_parameter(output)],
        type_constraints=[(kind, list(allowed), "") for kind, allowed in types.items()],
        attributes=list(attributes),
    )


def _parameter(text: str) -> onnx.defs.OpSchema.FormalParameter:
    option = _OPTIONS.get(text[-1])
    name, kind = (text if option is None else text[:-1]).split(":")
    if option is None:
        return _Schema.FormalParameter(name, kind)
    return _Schema.FormalParameter(name, kind, param_option=option, is_homogeneous=option is _OPTIONS["?"])
