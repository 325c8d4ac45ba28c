"""Operators of ONNX Runtime's own that its optimiser puts in the place of several of ONNX."""

from ranum_falsify.operators.microsoft import gelu, normalisation, products

__all__ = ["gelu", "normalisation", "products"]
