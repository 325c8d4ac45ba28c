"""Chains of passes for tools that know few operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CHAINS", "Chain"]


@dataclass(frozen=True, kw_only=True)
class Chain:
    """What some tools need.

    Attributes:
        passes: The passes, in order.
        operators: What may be left.
    """

    passes: tuple[str, ...]
    operators: tuple[str, ...]


CHAINS: Mapping[str, Chain] = {
    "vnncomp": Chain(
        passes=(
            "inline_functions",
            "unroll_rnn",
            "unroll_gru",
            "unroll_lstm",
            "fold_constants",
            "eliminate_identity",
            "remove_unused",
        ),
        operators=(
            *("Add", "AveragePool", "Concat", "Constant", "Conv", "Flatten", "Gemm", "MatMul", "Mul", "Relu"),
            *("Reshape", "Sigmoid", "Slice", "Sub", "Tanh", "Transpose"),
        ),
    ),
}
"""By the word that stands after `--for`."""
