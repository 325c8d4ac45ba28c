"""Properties: the DNNP vocabulary, parsing, and the reduction to margins.

Property files write `from ranum_falsify.properties import *`, next to `from dnnv.properties import *`; that star stands
for the vocabulary alone, so that it cannot shadow DNNV's names.  Code imports from the modules:
`ranum_falsify.properties.language.parse`, `.reduce`, `.problem`.
"""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing
from ranum_falsify.properties.language.vocabulary import finite_outputs, free, loss, no_invalid_input

__all__ = ["finite_outputs", "free", "loss", "no_invalid_input"]
