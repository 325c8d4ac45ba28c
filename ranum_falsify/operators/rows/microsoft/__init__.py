"""ONNX Runtime's own operators: those into which its optimiser fuses ONNX operators, and quantised ones."""

from ranum_falsify.operators.rows.microsoft import (
    attention,
    block_products,
    block_tables,
    distance,
    embedding,
    gelu,
    grouped_heads,
    heads,
    normalisation,
    products,
    quantised_elements,
    quantised_products,
    quantised_recurrent,
    quantised_reductions,
    quantisers,
    renamed,
)

__all__ = [
    "attention",
    "block_products",
    "block_tables",
    "distance",
    "embedding",
    "gelu",
    "grouped_heads",
    "heads",
    "normalisation",
    "products",
    "quantised_elements",
    "quantised_products",
    "quantised_recurrent",
    "quantised_reductions",
    "quantisers",
    "renamed",
]
