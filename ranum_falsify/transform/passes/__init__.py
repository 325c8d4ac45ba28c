"""The passes that come with the package; importing it registers them."""

from ranum_falsify.transform.passes import (
    add,
    arg_extremes,
    cleaning,
    lower_activation,
    lower_arithmetic,
    lower_comparison,
    lower_extremes,
    lower_indexing,
    lower_linear,
    lower_normalisation,
    lower_pooling,
    lower_reduction,
    lower_shape,
    reduce_sum,
    stable,
    unrolling,
)

__all__ = [
    "add",
    "arg_extremes",
    "cleaning",
    "lower_activation",
    "lower_arithmetic",
    "lower_comparison",
    "lower_extremes",
    "lower_indexing",
    "lower_linear",
    "lower_normalisation",
    "lower_pooling",
    "lower_reduction",
    "lower_shape",
    "reduce_sum",
    "stable",
    "unrolling",
]
