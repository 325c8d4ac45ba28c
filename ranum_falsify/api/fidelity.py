"""Fidelity of exports: the operators of a PyTorch module whose bounds also cover PyTorch's own kernels.

PyTorch's exporter takes operators apart by formulas that its kernels need not follow: `logcumsumexp` from a maximum of
all elements, linear interpolation as `a + w (b - a)`, `atan2` from a rounded quotient.  What is listed here was held
against the kernels: bounds of an export at points, with Python's numbers, against what PyTorch computes there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from ranum_falsify.api.resampling import has_exact_weights

_MOVING = frozenset(
    """
    __and__ __or__ __xor__ _assert_async _assert_scalar _assert_tensor_metadata _efficientzerotensor
    _local_scalar_dense _reshape_alias _to_copy _unsafe_index _unsafe_index_put _unsafe_masked_index
    _unsafe_masked_index_put_accumulate _unsafe_view _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d alias all any arange as_strided bernoulli bitwise_and bitwise_not bitwise_or bitwise_xor
    broadcast_to bucketize cat chunk clone constant_pad_nd contiguous copy detach diag_embed diagonal diagonal_backward
    dropout embedding embedding_dense_backward empty empty_like empty_permuted eq equal expand expand_as eye fill
    flatten flip full full_like gather ge gt hardshrink_backward hardtanh_backward index index_copy index_fill
    index_put index_select isfinite isinf isnan isneginf isposinf item le lift_fresh_copy logical_and logical_not
    logical_or logical_xor lt masked_fill masked_scatter masked_select narrow ne new_empty new_full new_ones new_zeros
    nonzero ones ones_like pad permute pixel_shuffle pixel_unshuffle rand rand_like randint randn randn_like
    reflection_pad1d reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d
    replication_pad3d reshape roll rot90 scalar_tensor scatter select select_backward select_scatter sgn sign signbit
    slice slice_backward slice_scatter softshrink_backward sort split split_with_sizes squeeze stack
    sym_constrain_range sym_constrain_range_for_size sym_size t take threshold_backward tile topk transpose tril triu
    type_as unbind unflatten unfold unfold_backward unsafe_split unsafe_split_with_sizes unsqueeze upsample_nearest1d
    upsample_nearest2d upsample_nearest3d value_selecting_reduction_backward view view_as where zero zeros zeros_like
    """.split()
)
"""Operators that move, compare and choose numbers."""

_COMPUTING = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _cdist_backward _cdist_forward _log_softmax
    _log_softmax_backward_data _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _prelu_kernel _prelu_kernel_backward _safe_softmax
    _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward _softmax
    _softmax_backward_data _trilinear _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward
    _upsample_nearest_exact3d_backward _weight_norm_interface _weight_norm_interface_backward abs acos acosh
    adaptive_max_pool2d adaptive_max_pool2d_backward add addbmm addcdiv addcmul addmm addmv addr amax amin aminmax
    argmax argmin asin asinh atan atanh avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
    baddbmm batch_norm bilinear binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits bmm
    ceil celu clamp clamp_max clamp_min conv1d conv2d conv3d convolution convolution_backward cos cosh
    cross_entropy_loss cumprod cumsum deg2rad div dot einsum elu elu_backward erf exp exp2 expm1 floor floor_divide
    fmod frac gelu gelu_backward glu glu_backward group_norm gru hardshrink hardsigmoid hardsigmoid_backward hardswish
    hardswish_backward hardtanh heaviside huber_loss huber_loss_backward index_add instance_norm layer_norm leaky_relu
    leaky_relu_backward lerp linalg_vector_norm linear linspace log log10 log1p log2 log_sigmoid log_sigmoid_backward
    log_sigmoid_forward log_softmax logaddexp logaddexp2 logit logit_backward logsumexp lstm matmul max max_pool1d
    max_pool2d max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d max_pool3d_with_indices
    max_pool3d_with_indices_backward maximum mean min minimum mish mm mse_loss mse_loss_backward mul multi_margin_loss
    multi_margin_loss_backward multilabel_margin_loss_backward multilabel_margin_loss_forward mv nan_to_num
    native_batch_norm native_batch_norm_backward native_dropout native_group_norm native_group_norm_backward
    native_layer_norm native_layer_norm_backward neg nll_loss nll_loss2d_backward nll_loss2d_forward nll_loss_backward
    nll_loss_forward norm pow prelu prod rad2deg reciprocal reflection_pad1d_backward reflection_pad2d_backward
    reflection_pad3d_backward relu relu6 remainder renorm replication_pad1d_backward replication_pad2d_backward
    replication_pad3d_backward round rsqrt rsub scaled_dot_product_attention scatter_add scatter_reduce selu sigmoid
    sigmoid_backward silu sin sinc sinh smooth_l1_loss smooth_l1_loss_backward soft_margin_loss softmax softplus
    softplus_backward softshrink special_entr sqrt std std_mean sub sum tan tanh tanh_backward threshold trunc
    upsample_bicubic2d upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d
    upsample_linear1d_backward upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
    upsample_trilinear3d upsample_trilinear3d_backward var var_mean vdot xlogy
    """.split()
)
"""Operators that round, which were held against their kernels in float32."""

_NOT_IN_HALVES = frozenset(
    """
    _adaptive_avg_pool2d_backward _native_batch_norm_legit _native_batch_norm_legit_functional
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward _trilinear
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward cumprod
    glu_backward instance_norm logit_backward native_batch_norm native_batch_norm_backward native_group_norm_backward
    native_layer_norm_backward prod reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward soft_margin_loss softshrink
    upsample_bicubic2d upsample_bicubic2d_backward upsample_bilinear2d_backward upsample_linear1d_backward
    upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward upsample_trilinear3d_backward
    """.split()
)
"""Those of which kernels round at other steps than their exports in float16 or bfloat16."""

_NOT_IN_DOUBLE = frozenset(
    """
    _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training batch_norm celu
    elu group_norm hardsigmoid hardtanh instance_norm layer_norm leaky_relu native_batch_norm native_group_norm
    native_layer_norm selu sinc softplus
    """.split()
)
"""Those whose attributes ONNX, or the exporter, keeps in float32, so that float64 comes to other results."""

_PRIMITIVE = frozenset(
    """
    abs acos acosh add amax amin asin asinh atan atanh broadcast_in_dim ceil convert_element_type cos cosh
    device_put div eq erf exp floor ge gt iota le log lt mul ne neg pow reshape round sign sin sinh sqrt squeeze sub
    sum tan tanh transpose var where
    """.split()
)
"""PyTorch's primitives that are operators of ONNX."""


Use = tuple[str, torch.dtype | None]
"""An operator, as `aten.softshrink`, and the type of its result."""


def find_unchecked(program: GraphModule, uses: Collection[Use]) -> str:
    """Return an operator that PyTorch may compute otherwise than its export, with its type; "" if there is none."""
    for name, dtype in sorted(uses, key=str):
        if why := _describe(name, dtype):
            return why
    for node in calls_of(program):
        dtype = dtype_of(node)
        name = str(getattr(node.target, "overloadpacket", node.target))
        if why := _describe(name, dtype):
            return why
        if dtype is not None and _is_scaled_otherwise(node, name.rpartition(".")[2], dtype):
            return f"{name} with a factor in {_name(dtype)}"
        if isinstance(node.target, OpOverload) and not _is_exact(node, node.target):
            return f"{name} with rounded {'steps' if node.target._opname in _SEQUENCES else 'weights'}"
    return ""


def _is_composite(operator: Any) -> bool:
    """Tell whether PyTorch itself computes an operator from others; those of interpolation it does not name so."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return operator._overloadname != "vec" and bool(operator.has_kernel_for_dispatch_key(composite))


def list_uses(program: GraphModule) -> set[Use]:
    """Return the operators of a program but for those that PyTorch itself computes from others."""
    calls = ((node, node.target) for node in calls_of(program))
    return {
        (str(operator.overloadpacket), dtype_of(node))
        for node, operator in calls
        if isinstance(operator, OpOverload) and not _is_composite(operator)
    }


def note_uses(formulas: Mapping[Any, Callable[..., Any]], uses: set[Use]) -> dict[Any, Callable[..., Any]]:
    """Return formulas by operator that note the operator where they take one apart."""

    def note(operator: Any, formula: Callable[..., Any]) -> Callable[..., Any]:
        def take_apart(*args: Any, **kwargs: Any) -> Any:
            found = formula(*args, **kwargs)
            if found is not NotImplemented:
                uses.add((str(operator.overloadpacket), _dtype_of_first(found)))
            return found

        return formula if _is_composite(operator) else take_apart

    return {operator: note(operator, formula) for operator, formula in formulas.items()}


def calls_of(program: GraphModule) -> Iterator[Node]:
    """Yield the calls of operators in a program, those of its branches and loops too."""
    for module in program.modules():
        if isinstance(module, GraphModule):
            yield from (node for node in module.graph.nodes if node.op == "call_function")


def _describe(name: str, dtype: torch.dtype | None) -> str:
    space, _, short = name.rpartition(".")
    short = short if short.startswith("__") else short.removesuffix("_")  # in place
    if not space:  # parts of tuples, arithmetic of sizes, control flow of known operators
        return ""
    if short not in {"aten": _MOVING | _COMPUTING, "prims": _PRIMITIVE}.get(space, ()):
        return name
    unfit = _NOT_IN_DOUBLE if dtype is torch.float64 else _NOT_IN_HALVES if dtype in HALVES else ()
    return f"{name} in {_name(dtype)}" if short in unfit else ""


def _is_scaled_otherwise(node: Node, name: str, dtype: torch.dtype) -> bool:
    """Tell whether a factor or an exponent counts at another step: kernels for halves may, Gemm has it in float32."""
    factors = [node.kwargs.get(key, 1) for key in ("alpha", "beta")]
    factors += node.args[1:2] if name == "softplus" else node.args[2:] if name == "elu" else []
    if name == "linalg_vector_norm" and node.args[1:] and node.args[1] not in (0, 1, 2, math.inf, -math.inf):
        factors.append(node.args[1])
    if dtype is torch.float64:
        return any(isinstance(factor, float) and float(np.float32(factor)) != factor for factor in factors)
    return dtype in HALVES and any(factor != 1 for factor in factors)


_SEQUENCES = frozenset({"arange", "linspace"})
"""Operators that make numbers in equal steps, which kernels add up in other orders."""


def _is_exact(node: Node, operator: OpOverload) -> bool:
    """Tell whether a sequence, or the weights of an interpolation, are the same numbers however they are computed."""
    dtype = dtype_of(node)
    if operator._opname in _SEQUENCES and dtype is not None and dtype.is_floating_point:
        if any(isinstance(x, Node) for x in node.args):
            return False
        with _disable_current_modes():
            return torch.equal(*(operator(*node.args, dtype=kind).double() for kind in (torch.float32, torch.float64)))
    first, *options = node.args or (None,)
    value = first.meta["val"] if isinstance(first, Node) else None
    return not isinstance(value, Tensor) or has_exact_weights(operator, value.shape, *options)


HALVES = (torch.float16, torch.bfloat16)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_of(node: Node) -> torch.dtype | None:
    """Return the type of a node's tensor, of several of the first; None if it has none."""
    return _dtype_of_first(node.meta.get("val"))


def _dtype_of_first(value: Any) -> torch.dtype | None:
    first = value[0] if isinstance(value, tuple | list) and value else value
    return getattr(first, "dtype", None)
