"""A live training run, watched: how far operators are from their limits, and which one fails first.

Not a proof: what runs is read as it runs.
"""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing

__all__: list[str] = []
