"""Operators of ONNX Runtime's own that its optimiser puts in the place of several of ONNX; quantised ones."""

from ranum_falsify.operators.microsoft import (
    attention,
    block_products,
    gelu,
    normalisation,
    products,
    quantised_elements,
    quantised_products,
    quantised_reductions,
    quantisers,
)

__all__ = [
    "attention",
    "block_products",
    "gelu",
    "normalisation",
    "products",
    "quantised_elements",
    "quantised_products",
    "quantised_reductions",
    "quantisers",
]
