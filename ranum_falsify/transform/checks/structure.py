"""What must hold of a rewritten model before it is run: it is well formed, and looks the same from outside."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx_ir as ir

from ranum_falsify.errors import ModelError
from ranum_falsify.network.functions import first_line
from ranum_falsify.network.model_file import check_structure
from ranum_falsify.transform.model import to_proto

__all__ = ["passes_checker", "structure_faults"]

_LARGE = 1024  # bytes
_REJECTIONS = (ModelError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError)


def structure_faults(old: ir.Model, new: ir.Model, *, checker: bool, changes_opset: bool) -> list[str]:
    """Return what is wrong with a rewritten model, each in a few words.

    Args:
        old: The model before.
        new: The model after.
        checker: Whether the ONNX checker must accept it.
        changes_opset: Whether its opsets may differ.
    """
    faults = [*_interface_faults(old, new)]
    if not changes_opset:
        faults += _opset_faults(old, new)
    faults += _rejection(new, lambda proto: check_structure(proto.graph))
    if checker and not faults:
        faults += _rejection(new, _full_check)
    return faults


def passes_checker(model: ir.Model) -> bool:
    """Tell whether the ONNX checker accepts a model."""
    return not _rejection(model, _full_check)


def _full_check(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)


def _interface_faults(old: ir.Model, new: ir.Model) -> list[str]:
    faults = []
    pairs = (("input", old.graph.inputs, new.graph.inputs), ("output", old.graph.outputs, new.graph.outputs))
    for kind, before, after in pairs:
        names, new_names = [value.name for value in before], [value.name for value in after]
        if names != new_names:
            faults.append(f"{kind}s were {', '.join(map(repr, names))}, and are {', '.join(map(repr, new_names))}")
            continue
        for was, now in zip(before, after, strict=True):
            if was.type is not None and was.type != now.type:
                faults.append(f"{kind} {was.name!r} was {was.type}, and is {now.type}")
            if not _is_compatible(was.shape, now.shape, may_refine=kind == "output"):
                faults.append(f"{kind} {was.name!r} had shape {was.shape}, and has {now.shape}")
    return faults


def _is_compatible(was: ir.Shape | None, now: ir.Shape | None, *, may_refine: bool) -> bool:
    """Tell whether a shape is the same, or says of an output what was not said before."""
    if was is None or now is None:
        return was is None and (now is None or may_refine)
    if len(was) != len(now):
        return False
    for before, after in zip(was, now, strict=True):
        refines = may_refine and not isinstance(before, int)
        if before != after and not refines:
            return False
    return True


def _opset_faults(old: ir.Model, new: ir.Model) -> list[str]:
    faults = []
    for domain, version in new.opset_imports.items():
        if old.opset_imports.get(domain, version) != version:
            name = domain or "ai.onnx"
            faults.append(f"opset of {name} was {old.opset_imports[domain]}, and is {version}")
    return faults


def _rejection(model: ir.Model, check: Callable[[onnx.ModelProto], object]) -> list[str]:
    """Return what a check, which raises, says of a model."""
    try:
        check(_without_weights(model))
    except (
        ModelError,
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,
        RuntimeError,
    ) as error:
        return [first_line(error)]
    return []


def _without_weights(model: ir.Model) -> onnx.ModelProto:
    """Return a model whose large initializers are inputs instead, for checks that need not know their values."""
    proto = to_proto(model)
    kept, inputs = [], {value.name for value in proto.graph.input}
    for tensor in proto.graph.initializer:
        if len(tensor.raw_data) <= _LARGE and not tensor.external_data:
            kept.append(tensor)
        elif tensor.name not in inputs:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tuple(tensor.dims))
            proto.graph.input.append(value)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    return proto
