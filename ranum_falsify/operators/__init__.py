"""All operator knowledge: rows, what related operands say, and what both are made of.

Importing the package fills the registry.
"""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing
from ranum_falsify.operators import rows

__all__ = ["rows"]
