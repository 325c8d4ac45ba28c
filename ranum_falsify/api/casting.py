"""Autocast as on CUDA, on the CPU: the casts that PyTorch makes there around each operator.

PyTorch's lists differ from device to device: on the CPU an exponential of bfloat16 stays one, on CUDA it is computed in
float32.  Here the CPU's part of autocast casts as CUDA's does.

Source: https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.library import Library, fallthrough_kernel
from torch.utils import _pytree as pytree

TYPES = (torch.float16, torch.bfloat16)
"""What autocast casts to."""

HALF = frozenset(
    """_convolution _convolution.deprecated _scaled_dot_product_flash_attention _thnn_fused_gru_cell
    _thnn_fused_lstm_cell addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc
    conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution cudnn_convolution
    cudnn_convolution_transpose einsum gru_cell linalg_multi_dot linalg_vecdot linear lstm_cell matmul mm mv prelu
    rnn_relu_cell rnn_tanh_cell scaled_dot_product_attention""".split()
)
"""Operators that take floating operands in the type of autocast."""

WIDEST = frozenset("addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot".split())
"""Operators that take them in float32 if one of them is, else in the type of autocast."""

REFUSED = frozenset({"binary_cross_entropy"})
"""Operators that autocast refuses; all others that it knows take floating operands in float32."""


def names_of(device: str) -> set[str]:
    """Return the operators that autocast knows on a device, `CPU` or `CUDA`."""
    known = torch._C._dispatch_get_registrations_for_dispatch_key(f"Autocast{device}")
    return {name.removeprefix("aten::") for name in known if name.startswith("aten::")}


@contextmanager
def casts_of_cuda(dtype: torch.dtype | None) -> Iterator[None]:
    """Have `torch.autocast("cpu")` cast as on CUDA, in all threads, where a type is given.

    Exporting needs this until it ends, because it makes casts of autocast late.
    """
    with _CASTS if dtype is not None else ExitStack():
        yield


@contextmanager
def under_autocast(dtype: torch.dtype | None) -> Iterator[None]:
    """Compute under autocast where a type is given."""
    with torch.autocast("cpu", dtype, cache_enabled=False) if dtype is not None else ExitStack():
        yield


class _Casts:
    """The kernels, while somebody needs them."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._library: Library | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._library = _register()
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._library is not None:
                self._library._destroy()
                self._library = None


_CASTS = _Casts()


def _register() -> Library:
    known, here = names_of("CUDA"), names_of("CPU")
    library = Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced
        for name in known | here:
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if operator is not None:
                library.impl(operator, _kernel(name, operator) if name in known else fallthrough_kernel, "AutocastCPU")
    return library


def _kernel(name: str, operator: Any) -> Callable[..., Any]:
    apart = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def run(*args: Any, **kwargs: Any) -> Any:
        if name in REFUSED:
            raise RuntimeError(f"{name} is unsafe under autocast; use binary_cross_entropy_with_logits")
        leaves = pytree.tree_leaves((args, kwargs))
        floating = [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]
        half = torch.get_autocast_dtype("cpu")
        wide = name not in HALF and not (name in WIDEST and all(x.dtype in TYPES for x in floating))
        target = torch.float32 if wide else half
        # Who says in what type to sum has the last word.
        said = any(isinstance(x, torch.dtype) for x in leaves)

        def cast(x: Any) -> Any:
            takes = isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype is not torch.float64
            return x.to(target) if takes and not said else x

        with torch._C._ExcludeDispatchKeyGuard(apart):
            args, kwargs = pytree.tree_map(cast, (args, kwargs))
            return operator(*args, **kwargs)

    return run
