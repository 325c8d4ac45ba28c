"""ONNX Runtime's own operators: those into which its optimiser fuses ONNX operators, and quantised ones."""

from ranum_falsify.operators.rows.microsoft import (  # noqa: F401 - they fill the registry
    attention,
    blocks,
    decoding,
    embedding,
    experts,
    gates,
    grouped_heads,
    heads,
    linear_algebra,
    normalisation,
    products,
    quantised_elements,
    quantised_products,
    quantised_recurrent,
    quantised_reductions,
    renamed,
)
