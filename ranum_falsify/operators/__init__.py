"""All operator knowledge: rows, relations between operands, and the building blocks of both.

Importing the package fills the registry.
"""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing
from ranum_falsify.operators import rows

__all__ = ["rows"]
