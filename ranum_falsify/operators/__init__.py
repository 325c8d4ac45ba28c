"""All operator knowledge: a row per operator, a file per family.  Importing the package fills the registry."""

from ranum_falsify.operators import (
    arithmetic,
    cast,
    control,
    creation,
    einsum,
    indexing,
    random,
    resize,
    shape,
    slicing,
)

__all__ = [
    "arithmetic",
    "cast",
    "control",
    "creation",
    "einsum",
    "indexing",
    "random",
    "resize",
    "shape",
    "slicing",
]
