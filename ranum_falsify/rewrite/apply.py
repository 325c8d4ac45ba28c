"""Passes, applied to copies of a model; the stable forms among them, in order.  Nothing is verified here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass
from onnxscript.rewriter.pattern import RewriteRuleClassBase

from ranum_falsify.errors import TransformError
from ranum_falsify.network.functions import first_line
from ranum_falsify.rewrite.catalogue import PassCall, all_passes, find_pass
from ranum_falsify.rewrite.model import all_nodes, all_outputs, copy_model, tell_apart, tensors_of
from ranum_falsify.rewrite.passes.stable_parts import StableForm
from ranum_falsify.rewrite.rewrite import AnalysisPass, Lowering, Refusal, Rewrite, apply_rewrite


@dataclass(frozen=True)
class Applied:
    """What a pass did: its model, None where it changed nothing, what it left, and what an analysis found."""

    model: ir.Model | None
    replaced: int | None = None
    refusals: Sequence[Refusal] = ()
    found: Any = None


def apply_pass(call: PassCall, model: ir.Model, state: Mapping[str, Any] = MappingProxyType({})) -> Applied:
    """Run a pass on a copy of a model.

    Raises:
        TransformError: The pass itself fails.
    """
    with _unwritable(model):
        return _apply(call, model, state)


def _apply(call: PassCall, model: ir.Model, state: Mapping[str, Any]) -> Applied:
    candidate = copy_model(model)
    if call.spec.needs_shapes:
        _infer_shapes(candidate)
    made = call.make()
    known = all_outputs(candidate)
    if isinstance(made, AnalysisPass | Rewrite):
        made.state = state
    try:
        if isinstance(made, AnalysisPass):
            return Applied(None, found=made.analyse(candidate))
        if isinstance(made, Rewrite | RewriteRuleClassBase):
            replaced, refusals = apply_rewrite(made, candidate)
            tell_apart(candidate, known)
            return Applied(candidate if replaced else None, replaced, refusals)
        result = made(candidate)
        if isinstance(made, Lowering):
            tell_apart(result.model, known)
            return Applied(result.model if result.modified else None, made.replaced, made.refusals)
    except TransformError:
        raise
    except ir.passes.PreconditionError as error:
        raise TransformError(f"pre-condition of pass {call.text!r} failed ({first_line(error)})") from error
    except Exception as error:
        raise TransformError(
            f"pass {call.text!r} raised {type(error).__name__} ({first_line(error)}); --debug shows where"
        ) from error
    return Applied(result.model if result.modified else None)


@contextmanager
def _unwritable(model: ir.Model) -> Iterator[None]:
    """Keep the arrays of a model, which a copy of it shares, from being written to."""
    held = (attribute.value for node in all_nodes(model) for attribute in node.attributes.values())
    tensors = (*tensors_of(model), *held)
    arrays = [tensor.raw for tensor in tensors if isinstance(tensor, ir.Tensor) and isinstance(tensor.raw, np.ndarray)]
    writable = [array for array in arrays if array.flags.writeable]
    for array in writable:
        array.setflags(write=False)
    try:
        yield
    finally:
        for array in writable:
            array.setflags(write=True)


def _infer_shapes(model: ir.Model) -> None:
    """Infer the shapes of tensors; what the model says of its inputs and outputs stays as it is."""
    outside = [(value, value.shape, value.type) for value in (*model.graph.inputs, *model.graph.outputs)]
    ShapeInferencePass(strict_mode=False)(model)
    for value, shape, kind in outside:
        value.shape, value.type = shape, kind


# Whole losses come first: what they are made of has stable forms, too, in which they are not found any more.
# So do vectors over their norms before norms, and products of sums of exponentials before softmax and sigmoid, which
# are written so; any other quotient of exponentials comes last.
_FIRST = ("stable_bce_with_logits", "stable_softplus", "stable_log_", "stable_normalize", "stable_cosine")
_LAST = "stable_quotient_of_exp"


def equal_passes() -> list[str]:
    """Return the names of all stable forms that are equal in real arithmetic, so ordered that each finds its own."""
    names = [spec.name for spec in all_passes() if spec.stands_for is not None and spec.stands_for.is_equal]

    def place(name: str) -> tuple[bool, int]:
        first = next((number for number, first in enumerate(_FIRST) if name.startswith(first)), len(_FIRST))
        return name == _LAST, first

    return sorted(names, key=place)


def infer_shapes(model: ir.Model) -> ir.Model:
    """Return a model that says of its tensors what can be inferred."""
    return apply_pass(find_pass("infer_shapes"), model).model or model


def apply_stable(name: str, model: ir.Model) -> ir.Model | None:
    """Return what a stable form makes of a model, None where it finds nothing; nothing is verified.

    Args:
        name: The pass.
        model: The model, its shapes inferred; so are those of the new one.
    """
    call = find_pass(name)
    form = call.make()
    if isinstance(form, StableForm) and not model.functions and not form.finds_anything(model):
        return None  # without a copy of the model
    made = apply_pass(call, model).model
    return None if made is None else infer_shapes(made)
