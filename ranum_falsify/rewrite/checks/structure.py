"""Structural checks of a rewritten model before it is run: well formed, and the same from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx
import onnx_ir as ir

from ranum_falsify.errors import ModelError
from ranum_falsify.network.functions import first_line
from ranum_falsify.network.model_file import check_structure
from ranum_falsify.rewrite.model import copy_model, to_proto

_LARGE = 1024  # bytes


def structure_faults(old: ir.Model, new: ir.Model, *, checker: bool, changes_opset: bool) -> list[str]:
    """Return what is wrong with a rewritten model, each in a few words."""
    faults = [*_interface_faults(old, new), *_metadata_faults(old, new)]
    if not changes_opset:
        faults += _opset_faults(old, new)
    proto = without_weights(new)
    faults += _rejection(lambda: check_structure(proto.graph))
    if checker and not faults:
        faults += _rejection(lambda: _full_check(proto))
    return faults


def passes_checker(model: ir.Model) -> bool:
    """Tell whether the ONNX checker accepts a model."""
    return not _rejection(lambda: _full_check(without_weights(model)))


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


def _metadata_faults(old: ir.Model, new: ir.Model) -> Iterator[str]:
    """Yield which metadata of the model, which programs that run it may read, is lost or other than it was."""
    for key, was in old.metadata_props.items():
        if new.metadata_props.get(key) != was:
            yield f"metadata {key!r} was {was!r}, and is {new.metadata_props.get(key)!r}"


def _opset_faults(old: ir.Model, new: ir.Model) -> list[str]:
    faults = []
    for domain, version in new.opset_imports.items():
        if old.opset_imports.get(domain, version) != version:
            name = domain or "ai.onnx"
            faults.append(f"opset of {name} was {old.opset_imports[domain]}, and is {version}")
    return faults


def _rejection(check: Callable[[], object]) -> list[str]:
    """Return what a check that raises says."""
    try:
        check()
    except (
        ModelError,
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,
        RuntimeError,
    ) as error:
        return [first_line(error)]
    return []


def without_weights(model: ir.Model) -> onnx.ModelProto:
    """Return a model whose large initializers are inputs instead, for checks that need not know their values."""
    try:
        thin = copy_model(model)
    except RuntimeError:  # it reads what nothing writes, or not yet, as the checks will find
        return to_proto(model)
    graph = thin.graph
    inputs = set(graph.inputs)
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or (tensor.nbytes <= _LARGE and not isinstance(tensor, ir.ExternalTensor)):
            continue
        del graph.initializers[name]
        value.const_value = None
        value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        if value not in inputs:
            graph.inputs.append(value)
    return to_proto(thin)
