"""How kernels of each runtime round sums of products, where that depends on more than the element type."""

from __future__ import annotations

import torch

from ranum_falsify.config import CUDA, Runtime
from ranum_falsify.domain.error_bounds import PRODUCT_ROUNDINGS, TF32_SHARE, ProductRounding
from ranum_falsify.domain.kernels.envelopes import sums_in_half


def product_rounding(
    terms: int, dtype: torch.dtype, runtimes: tuple[Runtime, ...], *, batched: bool = True
) -> ProductRounding:
    """Return how sums of products are rounded; on CUDA, as PyTorch's settings in this process allow.

    Products of batches of matrices disregard the settings of half precision: CUDABlas.cpp of PyTorch obeys them in
    `gemm` and `gemm_and_bias`, but not in `bgemm`.

    Args:
        terms: How many products are added up.
        dtype: Type of the operands.
        runtimes: Runtimes to cover.
        batched: Whether they may be products of a batch of matrices.
    """
    often = dtype is torch.float16 and sums_in_half(runtimes)
    cuts, factors = False, 0.0
    if CUDA in runtimes:
        settings = torch.backends.cuda.matmul
        factors = TF32_SHARE if dtype is torch.float32 and settings.fp32_precision == "tf32" else 0.0
        cuts = factors > 0 or dtype in (torch.float16, torch.bfloat16)
        often |= dtype is torch.float16 and (batched or settings.allow_fp16_reduced_precision_reduction)
        often |= dtype is torch.bfloat16 and (batched or settings.allow_bf16_reduced_precision_reduction)
    return ProductRounding(terms + PRODUCT_ROUNDINGS if often else 0, factors, cuts)
