"""One pass, applied to a copy of a model; nothing is verified here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass
from onnxscript.rewriter.pattern import RewriteRuleClassBase

from ranum_falsify.errors import TransformError
from ranum_falsify.network.functions import first_line
from ranum_falsify.transform.catalogue import PassCall
from ranum_falsify.transform.expansion import Expansion
from ranum_falsify.transform.model import copy_model
from ranum_falsify.transform.rewrite import Refusal, Rewrite, apply_rewrite

__all__ = ["Applied", "apply_pass"]


@dataclass(frozen=True)
class Applied:
    """What a pass did: its model, None where it changed nothing, and what it left."""

    model: ir.Model | None
    replaced: int | None = None
    refusals: Sequence[Refusal] = ()


def apply_pass(call: PassCall, model: ir.Model) -> Applied:
    """Run a pass on a copy of a model.

    Raises:
        TransformError: The pass itself fails.
    """
    candidate = copy_model(model)
    if call.spec.needs_shapes:
        _infer_shapes(candidate)
    made = call.make()
    try:
        if isinstance(made, Rewrite | RewriteRuleClassBase):
            replaced, refusals = apply_rewrite(made, candidate)
            return Applied(candidate if replaced else None, replaced, refusals)
        result = made(candidate)
        if isinstance(made, Expansion):
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


def _infer_shapes(model: ir.Model) -> None:
    """Infer the shapes of tensors; what the model says of its inputs and outputs stays as it is."""
    outside = [(value, value.shape, value.type) for value in (*model.graph.inputs, *model.graph.outputs)]
    ShapeInferencePass(strict_mode=False)(model)
    for value, shape, kind in outside:
        value.shape, value.type = shape, kind
