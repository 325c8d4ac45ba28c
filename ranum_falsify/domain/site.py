"""The context of a rule: its node, and bounds of the surroundings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from dnnv.nn import Operation
from dnnv.nn.utils import TensorDetails

from ranum_falsify.config import CUDA, RUNTIMES, Runtime
from ranum_falsify.domain.error_bounds import ProductRounding
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.kernels.envelopes import EXACT, Envelope, envelope
from ranum_falsify.domain.kernels.products import product_rounding
from ranum_falsify.network import spec_of
from ranum_falsify.network.tensors import torch_dtype

IntervalRule = Callable[..., Interval | tuple[Interval, ...]]
"""`rule(site, *operands)`: operands in the order of the row, None where absent; static ones as NumPy arrays.

A rule encloses everything that the runtimes can compute from operands within the bounds, without NaN; operands outside
the operator's valid part are left out, because the row's conditions report them.  If operands without NaN may give NaN
other than by a condition of the row (infinities that cancel), it sets `nan`.  Overflow shows as an infinite bound.
"""


Fact: TypeAlias = tuple[Operation, Interval]
"""An operation, and bounds of it where a condition is as assumed."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """The node that a rule is applied to.

    Attributes:
        op: The node, for its attributes and for which operations it reads.
        details: Shape and dtype of each output; None for one that nothing reads.
        runtimes: Runtimes that the bounds must cover.
        bounds_of: `bounds_of(field)`: bounds of a constant or of an earlier operation, for rules that look further than
            one node; None if the shape depends on the input, KeyError if they are not kept.
        bounds_given: `bounds_given(operation, facts)`: bounds of an operation if those of operations that it depends on
            are narrower than they are.
        leave_open: `leave_open(name)`: notes that a node in a subgraph of this one is not proved.
    """

    op: Operation
    details: Sequence[TensorDetails | None]
    runtimes: tuple[Runtime, ...] = RUNTIMES
    bounds_of: Callable[[Operation | np.ndarray], Interval | None]
    bounds_given: Callable[[Operation, Sequence[Fact]], Interval]
    leave_open: Callable[[str], None] = lambda name: None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first output that is read."""
        return tuple(int(size) for size in self._first.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the first output that is read."""
        return torch_dtype(self._first.dtype)

    @property
    def flushes(self) -> bool:
        """Whether what is added at positions takes denormal numbers for 0, as CUDA does (`atom` in its PTX ISA)."""
        return CUDA in self.runtimes

    def envelope(self, function: str, dtype: torch.dtype | None = None) -> Envelope:
        """Return the error of the kernels of a function, by ONNX name, for operands of a dtype (the output's)."""
        return envelope(function, self.dtype if dtype is None else dtype, self.runtimes)

    def own_envelope(self, entry: int = 0, dtype: torch.dtype | None = None) -> Envelope:
        """Return the error of a kernel that the node's row names, by its place there; none where it names none."""
        kernels = spec_of(self.op).kernel
        return self.envelope(kernels[entry], dtype) if kernels else EXACT

    def rounding(self, terms: int, dtype: torch.dtype, *, batched: bool = True) -> ProductRounding:
        """Return how matrix products and convolutions round sums of some products of operands of a dtype."""
        return product_rounding(terms, dtype, self.runtimes, batched=batched)

    def roundings_within(self, terms: int, dtype: torch.dtype) -> int:
        """Return how often means of windows are rounded to a half precision on the way; 0 where they are in float32.

        Args:
            terms: How many numbers are added up.
            dtype: Type of the operands.
        """
        return product_rounding(terms, dtype, tuple(one for one in self.runtimes if one != CUDA)).between

    def find_known(self, field: Operation | np.ndarray | None) -> Interval | None:
        """Return the bounds of a node's field, an operation or a constant; None if they are not known."""
        try:
            return None if field is None else self.bounds_of(field)
        except KeyError:
            return None

    @property
    def _first(self) -> TensorDetails:
        return next(details for details in self.details if details is not None)
