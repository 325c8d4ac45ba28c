"""The passes that come with the package; importing it registers them."""

from ranum_falsify.rewrite.passes import (  # noqa: F401 - registers them
    cleaning,
    lower_elementwise,
    lower_extremes,
    lower_indexing,
    lower_linear,
    lower_normalisation,
    lower_pooling,
    lower_reduction,
    lower_shape,
    stable_exponentials,
    stable_logarithms,
    stable_losses,
    stable_norms,
    stable_statistics,
    unrolling,
)

__all__: list[str] = []
