"""Chains of passes for tools that know few operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Chain:
    """What some tools need."""

    passes: tuple[str, ...]
    operators: tuple[str, ...]


# An operator is taken after all that may put it there.
_TO_FEW_OPERATORS = (
    "inline_functions",
    "lower_dropout",
    "unroll_rnn",
    "unroll_gru",
    "unroll_lstm",
    "fold_batch_normalization",
    "lower_batch_normalization",
    "lower_pow",
    "lower_reciprocal",
    "lower_div",
    "lower_neg",
    "lower_sum",
    "lower_mean",
    "lower_reduce_sum_square",
    "lower_reduce_l1",
    "lower_global_average_pool",
    "lower_reduce_mean",
    "transform_reduce_sum",
    "lower_global_max_pool",
    "lower_reduce_max",
    "lower_reduce_min",
    "lower_max_pool",
    "lower_leaky_relu",
    "lower_prelu",
    "lower_abs",
    "lower_hard_swish",
    "lower_hard_sigmoid",
    "lower_clip",
    "lower_max",
    "lower_min",
    "lower_split",
    "lower_pad",
    "lower_expand",
    "lower_tile",
    "lower_gather",
    "lower_squeeze",
    "lower_unsqueeze",
    "lower_flatten",
    "lower_depth_to_space",
    "lower_space_to_depth",
    "fold_constants",
    "eliminate_identity",
    "lift_constants",
    "remove_unused",
)

CHAINS: Mapping[str, Chain] = {
    "vnncomp": Chain(
        passes=_TO_FEW_OPERATORS,
        operators=(
            *("Add", "AveragePool", "Concat", "Constant", "Conv", "Gemm", "MatMul", "Mul", "Relu", "Reshape"),
            *("Sigmoid", "Slice", "Sub", "Tanh", "Transpose"),
        ),
    ),
}
"""By the word that stands after `--for`."""
