"""Stable forms of all kinds, one after the other."""

from __future__ import annotations

import onnx_ir as ir

from ranum_falsify.rewrite.apply import apply_pass
from ranum_falsify.rewrite.catalogue import all_passes, find_pass
from ranum_falsify.rewrite.passes.stable_parts import StableForm
from ranum_falsify.rewrite.rewrite import RefusedError

# Whole losses come first: what they are made of has stable forms, too, in which they are not found any more.
# So do vectors over their norms before norms, and products of sums of exponentials before softmax and sigmoid, which
# are written so.
_FIRST = ("stable_bce_with_logits", "stable_softplus", "stable_log_", "stable_normalize", "stable_cosine")


def equal_passes() -> list[str]:
    """Return the names of all stable forms that are equal in real arithmetic, so ordered that each finds its own."""
    names = [spec.name for spec in all_passes() if spec.stands_for is not None and spec.stands_for.is_equal]

    def place(name: str) -> int:
        return next((number for number, first in enumerate(_FIRST) if name.startswith(first)), len(_FIRST))

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
    if isinstance(form, StableForm) and not model.functions and not _finds_anything(form, model):
        return None  # without a copy of the model
    made = apply_pass(call, model).model
    return None if made is None else infer_shapes(made)


def _finds_anything(form: StableForm, model: ir.Model) -> bool:
    opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))
    for node in model.graph.all_nodes():
        if node.op_type in form.roots and node.domain in ("", "ai.onnx"):
            try:
                if form.plan(node, opset) is not None:
                    return True
            except RefusedError:
                continue
    return False
