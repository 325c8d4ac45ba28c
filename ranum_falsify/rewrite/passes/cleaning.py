"""Cleaning passes that onnx-ir and onnxscript bring, by our names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer, version_converter

from ranum_falsify.errors import TransformError
from ranum_falsify.network.model_file import OLDEST_OPSET
from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.model import all_nodes
from ranum_falsify.rewrite.operands import constant_tensor, is_identity
from ranum_falsify.rewrite.registry import register

NEWEST = 25


class _Library(ir.passes.InPlacePass):
    """A pass that is others', run in order."""

    steps: ClassVar[tuple[Callable[[], ir.passes.PassBase], ...]]

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Run them."""
        results = [make()(model) for make in self.steps]
        return ir.passes.PassResult(model, any(result.modified for result in results))


@verify.equality
@register("remove_unused")
class RemoveUnused(_Library):
    """Remove nodes, initializers, local functions and opsets that nothing uses."""

    steps = (
        common.RemoveUnusedNodesPass,
        common.RemoveUnusedFunctionsPass,
        common.RemoveUnusedOpsetsPass,
    )


@verify.equality
@register("eliminate_identity", takes="Identity")
class EliminateIdentity(ir.passes.InPlacePass):
    """Remove Identity where names of inputs and outputs allow it; of constants, `fold_constants` does.

    Kernels store constants in an order of their own, and then round otherwise than without Identity in between.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Run the pass of onnx-ir on what gives no constants."""
        return _eliminate_identity(model, lambda node: not _gives_constant(node))


_HIDDEN = "hidden"


def _eliminate_identity(model: ir.Model, is_meant: Callable[[ir.Node], bool]) -> ir.passes.PassResult:
    """Run the pass of onnx-ir, with those nodes hidden from it that must stay and on which it fails."""
    hidden = [
        node
        for node in all_nodes(model)
        if node.domain == "" and is_identity(node) and (_must_stay(node) or not is_meant(node))
    ]
    for node in hidden:
        node.domain = _HIDDEN
    result = common.IdentityEliminationPass()(model)
    for node in hidden:
        node.domain = ""
    return result


def _gives_constant(node: ir.Node) -> bool:
    return constant_tensor(node.outputs[0]) is not None


def _must_stay(node: ir.Node) -> bool:
    """Tell whether a node gives an output a name that its operand cannot have, as it is one itself or lies outside."""
    operand = node.inputs[0]
    if operand is None:
        return False
    return node.outputs[0].is_graph_output() and (operand.is_graph_output() or operand.graph is not node.graph)


@verify.equality
@register("eliminate_common_subexpressions")
class EliminateCommonSubexpressions(_Library):
    """Compute once what several nodes compute."""

    steps = (common.CommonSubexpressionEliminationPass,)


@verify.equality
@register("deduplicate_initializers")
class DeduplicateInitializers(_Library):
    """Keep one of several equal initializers."""

    steps = (common.DeduplicateInitializersPass,)


@verify.equality
@register("inline_functions")
class InlineFunctions(_Library):
    """Replace each call of a local function by its body."""

    steps = (common.InlinePass,)


@verify.equality
@register("lift_constants", takes="Constant")
class LiftConstants(_Library):
    """Turn Constant nodes into initializers."""

    steps = (lambda: common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),)


@verify.equality
@register("infer_shapes")
class InferShapes(_Library):
    """Write the shapes and types of tensors into the model, as far as ONNX infers them."""

    steps = (lambda: common.ShapeInferencePass(strict_mode=False),)


@verify.equality
@register("add_default_attributes")
class AddDefaultAttributes(_Library):
    """Write out attributes that have their default value."""

    steps = (common.AddDefaultAttributesPass,)


@verify.equality
@register("clear_metadata")
class ClearMetadata(_Library):
    """Remove metadata and documentation from nodes and tensors."""

    steps = (common.ClearMetadataAndDocStringPass,)


@verify.tolerance
@register("fold_constants")
class FoldConstants(ir.passes.InPlacePass):
    """Compute what depends on constants alone; the kernels that do so may differ in the last place."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Run the passes of onnx-ir and onnxscript."""
        is_shorter = _eliminate_identity(model, _gives_constant).modified
        return ir.passes.PassResult(model, bool(optimizer.fold_constants_ir(model).modified) or is_shorter)


@verify.tolerance
@register("convert_opset", changes_opset=True, argument=f"opset, at most {NEWEST}")
class ConvertOpset(ir.passes.InPlacePass):
    """Convert the model to another opset."""

    def __init__(self, opset: str) -> None:
        super().__init__()
        if not (opset.isascii() and opset.isdigit() and OLDEST_OPSET <= int(opset) <= NEWEST):
            raise TransformError(f"convert_opset={opset}: give an opset from {OLDEST_OPSET} to {NEWEST}")
        self._opset = int(opset)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Run the converter of onnxscript, or that of ONNX for what it does not convert."""
        if model.opset_imports.get("") == self._opset:
            return ir.passes.PassResult(model, False)
        logger = logging.getLogger(version_converter.__name__)
        was, logger.disabled = logger.disabled, True  # it logs the traceback of what it does not convert
        try:
            version_converter.convert_version(model, self._opset, fallback=True)
        finally:
            logger.disabled = was
        if model.opset_imports.get("") != self._opset:
            raise TransformError(
                f"convert_opset={self._opset}: the converters of onnxscript and ONNX do not convert one of the "
                "operators so; export the model with that opset"
            )
        return ir.passes.PassResult(model, True)
