"""What attributes of text may say: schemas list it in prose alone."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["words_of"]

_ACTIVATIONS = (
    *("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"),
    *("Softsign", "Softplus"),
)
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    *("tf_crop_and_resize", "tf_half_pixel_for_nn", "output_half_pixel"),
)
_BRANCHES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF")

_WORDS: Mapping[str, tuple[str, ...]] = {
    "activation": (*_ACTIVATIONS, "none", "silu", "swish", "sigmoid", "Gelu", "FastGelu", "QuickGelu", "Clip", "Mish"),
    "activation_type": ("relu", "gelu", "silu", "swiglu", "identity"),
    "activations": _ACTIVATIONS,
    "aggregate_function": ("SUM", "AVERAGE", "MIN", "MAX"),
    "approximate": ("none", "tanh"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "coordinate_transformation_mode": _COORDINATES,
    "direction": ("forward", "reverse", "bidirectional", "LEFT", "RIGHT"),
    "equation": ("...i->...", "ii->i", "ij,jk->ik", "i,i", "ij->ji", "ij,ij->", "bij,bjk", "i...->...", " i j -> j i"),
    "k_quant_type": ("NONE", "PER_TENSOR", "PER_CHANNEL"),
    "kernel_type": ("LINEAR", "POLY", "RBF", "SIGMOID"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "metric": ("euclidean", "sqeuclidean", "cosine"),
    "mode": (
        *("constant", "reflect", "edge", "wrap", "nearest", "linear", "bilinear", "cubic", "bicubic"),
        *("DCR", "CRD", "avg", "max", "circular"),
    ),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"),
    "nodes_modes": _BRANCHES,
    "norm": ("MAX", "L1", "L2"),
    "padding_mode": ("zeros", "border", "reflection"),
    "post_transform": _TRANSFORMS,
    "quant_type": ("int", "fp4", "fp8"),
    "reduction": ("none", "mean", "sum", "add", "mul", "min", "max"),
    "round_mode": ("up", "down", "nearest"),
    "update_rule": ("linear", "gated", "delta", "gated_delta"),
    "v_quant_type": ("NONE", "PER_TENSOR", "PER_CHANNEL"),
    # labels, which are any text
    "cats_strings": ("a", "b"),
    "classes_strings": ("a", "b"),
    "classlabels_strings": ("a", "b"),
    "default_string": ("_Unused", "a"),
    "keys_strings": ("a", "b"),
    "value_string": ("a",),
    "value_strings": ("a", "b"),
    "values_strings": ("a", "b"),
}


def words_of(attribute: str) -> tuple[str, ...]:
    """Return the words that an attribute of text may have.

    Raises:
        KeyError: The table above does not have the attribute: a new operator, or a new attribute of one.
    """
    return _WORDS[attribute]
