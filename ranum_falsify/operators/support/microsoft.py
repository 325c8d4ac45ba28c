"""What rows of ONNX Runtime's own operators are made of: schemas, which ONNX lacks, and the rows of other operators.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.  Only what its CPU kernels can run
is declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.support.building import is_infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network.fields import attribute_values
from ranum_falsify.network.registry import find, make_node, operator, opsets_of, schema_of, spec_of

DOMAIN = "com.microsoft"
BYTES = ("uint8", "int8")
FLOATS = ("float",)
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ANY = ("float", "double", "float16", "bfloat16", "bool", *INTEGERS)

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

    Inputs and outputs are `name:type` for each, separated by spaces; `?` marks an optional one, `*` one that takes the
    rest.  `types` says which element types each type stands for, `kinds` of which kind attributes without a default
    value are; `?` marks optional ones.
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


def refused(op: Operation, why: str) -> UnsupportedAttributeError:
    """Return the error of a node in a form that ONNX Runtime's kernels for the CPU do not run, or not as is defined."""
    return UnsupportedAttributeError(f"{DOMAIN}::{spec_of(op).op_type}: {why}")


# rows of other operators ----------------------------------------------------------------------------------------

_SAID = frozenset(signature(operator).parameters) - {"domain", "schema"}
"""What a row says besides the name of its operator."""


def doing_as(
    other: type[Operation], own: onnx.defs.OpSchema, **changes: Any
) -> Callable[[type[Operation]], type[Operation]]:
    """Return the decorator of a class whose row is that of another, but for changes, under the name of its own schema.

    Operands have the places of the other's.  The class, which is derived from the other's, holds the values of
    attributes that its schema lacks.
    """
    spec = spec_of(object.__new__(other))
    said = {name: getattr(spec, name) for name in _SAID}
    places = {operand.name: name for operand, name in zip(own.inputs, spec.operands, strict=False)}
    return operator(**said | {"renamed": {**spec.renamed, **places}} | changes, schema=own)


def part(op: Operation, op_type: str, fields: Mapping[str, Any]) -> Operation:
    """Return a node of an ONNX operator with fields of a fused node; what they lack has its default value.

    An operator that the opset of the node does not have yet is that of the newest opset.
    """
    spec = find(op_type, "")
    schema = schema_of(op_type, "", op.opset) or schema_of(op_type, "", opsets_of("")[1])
    if spec is None or schema is None:
        raise UnsupportedAttributeError(f"{type(op).__name__}: {op_type} is not known at opset {op.opset}")
    defaults = attribute_values(a.default_value for a in schema.attributes.values() if a.default_value.type)
    values: dict[str, Any] = {name: None for name in (*spec.operands, *map(spec.field_of, spec.attributes))}
    given = {spec.field_of(name): value for name, value in defaults.items()}
    given |= {name: value for name, value in fields.items() if value is not None}
    values |= {name: value for name, value in given.items() if name in values}
    values |= {"version": schema.since_version, "opset": op.opset, "output_names": op.output_names[:1]}
    return make_node(spec, op.name, values)


def evaluate_part(node: Operation, *operands: Tensor | None) -> Tensor:
    """Return the first result of a part of a node."""
    y = spec_of(node).torch(node, *operands)
    return y[0] if isinstance(y, tuple) else y


def bound_part(site: Site, node: Operation, *operands: Interval | None) -> Interval:
    """Return the bounds of a part by its own row; NaN is possible where the row has conditions on infinities."""
    spec = spec_of(node)
    infinite = any(x is not None and x.may_be_infinite for x in operands)
    if infinite and not is_infinity_aware(spec.interval):
        return replace(Interval.fill(-torch.inf, torch.inf, site.shape, site.dtype), nan=True)
    y = spec.interval(replace(site, op=node), *operands)
    whole = y[0] if isinstance(y, tuple) else y
    assert isinstance(whole, Interval)
    return replace(whole, nan=True) if infinite and any(not c.refuses for c in spec.valid) else whole


def add_inner_faults(y: Interval, inner: Interval, *operands: Interval | None) -> Interval:
    """Return bounds of a result that also tell of faults inside its node: an overflow that the rest may hide.

    The result is computed from what is inside, and that from the node's operands.
    """
    given = any(x is not None and x.may_be_infinite for x in operands)
    overflows = y.overflows or inner.overflows or (inner.may_be_infinite and not given)
    return replace(y, nan=y.nan or inner.nan, overflows=overflows)


# activations ----------------------------------------------------------------------------------------------------

_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""Functions that ONNX Runtime fuses with the operators before them, and their parameters in its order."""


def activation(op: Operation) -> tuple[Operation, tuple[np.ndarray, ...]] | None:
    """Return the function that a node applies last, and its operands besides the first; None if there is none."""
    name = op.activation
    if not name:
        return None
    if name not in _PARAMETERS:
        known = ", ".join(sorted(_PARAMETERS))
        raise UnsupportedAttributeError(f"{type(op).__name__}: activation {name!r} is not supported; {known} are")
    names = _PARAMETERS[name]
    if hasattr(op, "activation_params"):
        values = dict(zip(names, op.activation_params or (), strict=False))
    else:
        values = {key: getattr(op, f"activation_{key}", None) for key in names}
    if name != "Clip":
        return part(op, name, values), ()
    if any(values.get(key) is None for key in names):
        raise UnsupportedAttributeError(f"{type(op).__name__}: activation Clip without its limits is not supported")
    limits = tuple(np.asarray(values[key], dtype=np.float32) for key in names)
    return part(op, name, dict(zip(names, limits, strict=True))), limits


def activate(site: Site, inner: Interval, *operands: Interval | None) -> Interval:
    """Return bounds of a node's activation, applied to a result of its operands."""
    found = activation(site.op)
    if found is None:
        return inner
    node, rest = found
    # Some functions make a number of NaN.
    given = Interval.fill(-math.inf, math.inf, inner.shape, inner.dtype) if inner.nan else inner
    return add_inner_faults(bound_part(site, node, given, *map(Interval.point, rest)), inner, *operands)
