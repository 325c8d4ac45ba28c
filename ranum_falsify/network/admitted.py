"""Values of attributes that kernels are known for: others are refused by name, wherever they stand.

Schemas say `INT` where kernels ask whether a number is 1, or whether it is 0, and some do one, some the other; or write
nothing at all.  They say `FLOAT` where NaN or infinity turns every result into what no rule is about.
"""

from __future__ import annotations

import math
from typing import Any

from ranum_falsify.errors import UnsupportedAttributeError

__all__ = ["check_admitted"]

_FLAGS = frozenset(
    {
        *("across_channels", "align_corners", "allowzero", "antialias", "causal", "ceil_mode", "center_point_box"),
        *("channels_last", "count_include_pad", "detect_negative", "detect_positive", "do_rotary", "exclude_outside"),
        *("exclusive", "fmod", "input_forget", "interleaved", "inverse", "is_causal", "is_packed_batching", "keepdims"),
        *("largest", "layout", "linear_before_reset", "multi_class", "noop_with_empty_axes"),
        *("normalize_routing_weights", "normalize_variance", "one_class", "onesided", "past_present_share_buffer"),
        *("periodic", "reverse", "rotary_interleaved", "saturate", "select_last_index", "sliding_window_cache"),
        *("sorted", "spatial", "storage_order", "training_mode", "transA", "transB", "transBatchA", "transBatchB"),
        *("unidirectional", "upper", "use_sparse_mixer", "weight_prepacked", "zeros"),
    }
)
"""Attributes that are 0 or 1."""

_DATA = frozenset(
    {
        *("value", "value_float", "value_floats", "min", "max", "mask_filter_value", "extrapolation_value"),
        *("replaced_value_float", "imputed_value_floats", "keys_floats", "values_floats", "default_float"),
        *("nodes_values", "nodes_hitrates"),
    }
)
"""Attributes that hold data, which may be infinite or NaN: rows look at them themselves."""


def check_admitted(name: str, value: Any) -> None:
    """Check the value of an attribute of a node.

    Args:
        name: The attribute's ONNX name.
        value: Its value.

    Raises:
        UnsupportedAttributeError: Kernels differ in what they make of the value.
    """
    if name in _FLAGS and isinstance(value, int) and value not in (0, 1):
        raise UnsupportedAttributeError(f"attribute {name} is {value}, which kernels read differently; use 0 or 1")
    if name in _DATA:
        return
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, float) and not math.isfinite(number):
            raise UnsupportedAttributeError(f"attribute {name} is {number}; use a finite number")
