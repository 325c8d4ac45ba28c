"""Forms at which ONNX Runtime ends the process, or never ends: they are not drawn."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["crashes"]

_EMPTY = ("", "an empty axis")
_ANY = ("zero", "negative", "positive", "extreme", "not finite", "default", "left out")
_UNIFORM = (*(("low", value) for value in _ANY), *(("high", value) for value in _ANY))
_NORMAL = tuple(("scale", value) for value in _ANY)

_CRASHES: Mapping[str, tuple[tuple[str, str], ...]] = {
    # The generators of the C++ library abort on bounds that cross.
    **dict.fromkeys(("RandomUniform", "RandomUniformLike"), _UNIFORM),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike"), _NORMAL),
    # Divisions of integers by a size.
    **dict.fromkeys(("MoE", "QMoE"), (_EMPTY, ("swiglu_limit", "negative"))),
    **dict.fromkeys(("SkipSimplifiedLayerNormalization", "SkipLayerNormalization", "LinearAttention"), (_EMPTY,)),
    **dict.fromkeys(("Einsum", "InstanceNormalization"), (_EMPTY,)),
    **dict.fromkeys(("GRU", "LSTM", "RNN", "DynamicQuantizeLSTM"), (_EMPTY,)),
    **dict.fromkeys(("Attention", "QAttention", "GroupQueryAttention", "MultiHeadAttention"), (_EMPTY,)),
    **dict.fromkeys(("Conv", "FusedConv", "ConvInteger", "QLinearConv", "ConvTranspose"), (_EMPTY,)),
    # Reads beyond its operands, and tests of what is not there.
    "GatherND": (("batch_dims", "negative"), ("batch_dims", "extreme")),
    "Split": (("", "left out"),),
    "LayerNormalization": (("B", "left out"),),
    "EmbedLayerNormalization": (("position_ids", "given"), ("position_ids", "scalar"), ("position_ids", "rank - 1")),
    "DFT": (("axis", "left out"),),
    "FeatureVectorizer": (_EMPTY, ("inputdimensions", "negative")),
    "QLinearWhere": (("x_zero_point", "computed"), ("y_zero_point", "computed")),
    "QLinearAveragePool": (_EMPTY, *(("channels_last", value) for value in _ANY)),
}


def crashes(op_type: str, kind: str, name: str, value: str) -> bool:
    """Tell whether a slot of an operator's forms is not drawn: see :class:`tests.operators.forms.walk.Slot`."""
    known = _CRASHES.get(op_type, ())
    return (name, value) in known or (kind in ("input", "shapes", "output") and ("", value) in known)
