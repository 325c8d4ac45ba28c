"""The passes that come with the package; importing it registers them."""

from ranum_falsify.transform.passes import (
    add,
    arg_extremes,
    cleaning,
    reduce_sum,
    stable_exponentials,
    stable_logarithms,
    stable_losses,
    stable_norms,
    stable_statistics,
)

__all__ = [
    "add",
    "arg_extremes",
    "cleaning",
    "reduce_sum",
    "stable_exponentials",
    "stable_logarithms",
    "stable_losses",
    "stable_norms",
    "stable_statistics",
]
