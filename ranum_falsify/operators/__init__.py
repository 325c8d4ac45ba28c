"""All operator knowledge: a row per operator, a file per family.  Importing the package fills the registry."""

from ranum_falsify.operators import arithmetic, shape

__all__ = ["arithmetic", "shape"]
