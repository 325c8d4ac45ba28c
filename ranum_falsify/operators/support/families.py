"""Families of rows: `operator` with some of its arguments given.

A row says the rest, or says otherwise: only random operators draw, and only on LSTM and GRU does ONNX Runtime hide NaN.
"""

from __future__ import annotations

from functools import partial

from ranum_falsify.network.registry import operator
from ranum_falsify.operators.support import batching

_certain = partial(operator, random=None, hides_nan=False)

# element by element ---------------------------------------------------------------------------------------------

pointwise = partial(_certain, elementwise=True, batch=batching.pointwise)
"""Functions of the elements at one place."""

total = partial(pointwise, valid=())
"""Those that are defined for all numbers."""

exact = partial(total, linear=None, kernel=None, overflow=False)
"""Those that every runtime computes exactly and whose intervals say all: comparisons, logic, bits, roundings."""

# across elements ------------------------------------------------------------------------------------------------

across = partial(_certain, elementwise=False)
"""Operators that bring elements of several places together."""

summing = partial(across, valid=(), kernel=None)
"""Sums and products, which runtimes round as IEEE 754 says, in an order of their own."""

rearranging = partial(across, valid=(), kernel=None, overflow=False)
"""Those that move and choose numbers."""

opaque = partial(across, linear=None, batch="vmap")
"""Those that keep samples apart by `vmap` alone and whose intervals say all."""

plain = partial(opaque, kernel=None, valid=())
"""Those of them that are defined for all numbers, by functions that runtimes compute exactly."""

making = partial(plain, overflow=False)
"""Those whose numbers lie in a fixed range: constants, counts, positions, quantised numbers."""
