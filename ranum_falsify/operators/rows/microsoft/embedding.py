"""Embeddings of words, positions and segments, added up and normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.microsoft.normalisation import (
    add_up,
    normalise_sum,
    normalised_bounds,
    stays_defined,
    total_bounds,
)
from ranum_falsify.operators.rows.normalisation import VARIANCE, above_zero
from ranum_falsify.operators.rows.transformer_parts import angles_bounds, find_angles
from ranum_falsify.operators.support.conditions import indices_of
from ranum_falsify.operators.support.families import opaque
from ranum_falsify.operators.support.microsoft import BYTES, FLOATS, bound_part, evaluate_part, part, refused, schema
from ranum_falsify.validity import Operands

Operand = TypeVar("Operand")


def _places(like: Tensor, given: Tensor | None) -> Tensor:
    """Return the position of each token, `(batch, sequence)`."""
    places = torch.arange(like.shape[1], device=like.device) if given is None else given
    return places.expand(like.shape)


def _embed(
    ids: Tensor, segments: Tensor | None, words: Tensor, positions: Tensor, kinds: Tensor | None, places: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the embeddings of words, positions and segments."""
    if segments is None and kinds is not None:
        raise UnsupportedAttributeError("a table of segments without segments is not supported; leave it out")
    if places is not None and places.ndim != ids.ndim:
        raise ValueError("position_ids has another rank than input_ids, at which ONNX Runtime ends")
    parts = find_angles(words, ids), find_angles(positions, _places(ids, places))
    return (*parts, None if segments is None or kinds is None else find_angles(kinds, segments))


def _embed_layer(
    op: Operation,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    positions: Tensor,
    kinds: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None,
    places: Tensor | None,
) -> tuple[Tensor, ...]:
    parts = _embed(ids, segments, words, positions, kinds, places)
    y = normalise_sum(op, parts[0], parts[1], gamma, beta, parts[2])
    return (y, _count(ids, mask), add_up(*parts))[: len(op.output_names)]


def _count(ids: Tensor, mask: Tensor | None) -> Tensor:
    """Return how many tokens of each sequence a mask shows."""
    return ids.new_zeros(ids.shape[0]) if mask is None else (mask == 1).sum(1).to(ids.dtype)


def _count_bounds(ids: Interval, mask: Interval | None) -> Interval:
    return Interval.fill(0, 0 if mask is None else ids.shape[1], ids.shape[:1], torch.int32)


def _variance(op: Operation, operands: Operands) -> Tensor:
    names = ("ids", "segments", "words", "positions", "kinds", "places")
    total = add_up(*_embed(*(operands.get(name) for name in names)))  # type: ignore[arg-type]
    return total.var(-1, correction=0) + float(op.epsilon)


@infinity_aware
def _embed_bounds(
    site: Site,
    ids: Interval,
    segments: Interval | None,
    words: Interval,
    positions: Interval,
    kinds: Interval | None,
    gamma: Interval,
    beta: Interval,
    mask: Interval | None,
    places: Interval | None,
) -> tuple[Interval, ...]:
    ends = (None, None) if places is None else places.expand()
    low, high = (_places(ids.expand()[0], end) for end in ends)
    known = Interval.of(low, high)
    word, position = angles_bounds(words, ids), angles_bounds(positions, known)
    kind = None if segments is None or kinds is None else angles_bounds(kinds, segments)
    y = normalised_bounds(site, word, position, kind, gamma, beta)
    return (y, _count_bounds(ids, mask), total_bounds(site, word, position, kind))[: len(site.details)]


_TABLES = (("ids", "words"), ("segments", "kinds"), ("places", "positions"))


@opaque(
    schema=schema(
        "EmbedLayerNormalization",
        "input_ids:I segment_ids:I? word_embedding:T position_embedding:T segment_embedding:T? gamma:T beta:T"
        " mask:I? position_ids:I?",
        "output:T mask_index:I? embedding_sum:T?",
        {"T": FLOATS, "I": ("int32",)},
        defaults={"epsilon": 1e-12, "mask_index_type": 0},
    ),
    torch=_embed_layer,
    interval=_embed_bounds,
    kernel=None,
    valid=[
        *(indices_of(*pair, lambda op: 0, wraps=False) for pair in _TABLES),
        above_zero("variance + epsilon > 0", VARIANCE, _variance, stays_defined),
    ],
    operands=("ids", "segments", "words", "positions", "kinds", "gamma", "beta", "mask", "places"),
    renamed={
        "input_ids": "ids",
        "segment_ids": "segments",
        "word_embedding": "words",
        "position_embedding": "positions",
        "segment_embedding": "kinds",
        "position_ids": "places",
    },
)
class EmbedLayerNormalization(Operation):
    """The first layer of BERT: a normalised sum of rows of three tables."""


# of quantised tables --------------------------------------------------------------------------------------------

_QUANTISED = ("words", "positions", "kinds", "gamma", "beta")
_SCALED = (
    *("ids", "segments", *_QUANTISED, "mask"),
    *(f"{name}_scale" for name in _QUANTISED),
    *(f"{name}_zero" for name in _QUANTISED),
)
_FORMAL = ("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta")


def _name(operands: Sequence[Operand]) -> dict[str, Operand]:
    return dict(zip(_SCALED, operands, strict=True))


def _dequantised(op: Operation, operands: Operands) -> tuple[Tensor | None, ...]:
    """Return the embeddings, the factor and the shift that quantised operands represent."""
    if operands.get("kinds") is not None and (
        operands.get("kinds_scale") is None or operands.get("kinds_zero") is None
    ):
        raise refused(op, "its segment_embedding has no scale")
    read = _embed(
        operands["ids"],
        operands.get("segments"),
        operands["words"],
        operands["positions"],
        operands.get("kinds"),
        None,
    )
    return tuple(
        None
        if x is None
        else evaluate_part(part(op, "DequantizeLinear", {}), x, operands[f"{name}_scale"], operands[f"{name}_zero"])
        for name, x in zip(_QUANTISED, (*read, operands["gamma"], operands["beta"]), strict=True)
    )


def _quantised_layer(op: Operation, *operands: Tensor | None) -> tuple[Tensor, ...]:
    given = _name(operands)
    words, positions, kinds, gamma, beta = _dequantised(op, given)  # type: ignore[arg-type]
    assert words is not None and positions is not None and gamma is not None and given["ids"] is not None
    y = normalise_sum(op, words, positions, gamma, beta, kinds)
    return (y, _count(given["ids"], given["mask"]))[: len(op.output_names)]


def _quantised_variance(op: Operation, operands: Operands) -> Tensor:
    total = add_up(*_dequantised(op, operands)[:3])  # type: ignore[arg-type]
    return total.var(-1, correction=0) + float(op.epsilon)


@infinity_aware
def _quantised_bounds(site: Site, *operands: Interval | None) -> tuple[Interval, ...]:
    given = _name(operands)
    ids, segments = given["ids"], given["segments"]
    assert ids is not None
    places = Interval.point(_places(ids.expand()[0], None))
    found: list[Interval | None] = []
    for name, rows in zip(_QUANTISED, (ids, places, segments, None, None), strict=True):
        x = given[name]
        if x is not None and name in _QUANTISED[:3]:
            x = None if rows is None else angles_bounds(x, rows)
        node = part(site.op, "DequantizeLinear", {})
        found.append(x and bound_part(site, node, x, given[f"{name}_scale"], given[f"{name}_zero"]))
    word, position, kind, gamma, beta = found
    return (normalised_bounds(site, word, position, kind, gamma, beta), _count_bounds(ids, given["mask"]))[
        : len(site.details)
    ]


@opaque(
    schema=schema(
        "QEmbedLayerNormalization",
        "input_ids:I segment_ids:I? word_embedding_quant:Q position_embedding_quant:Q segment_embedding:Q?"
        " gamma_quant:Q beta_quant:Q mask:I?"
        " word_embedding_scale:T position_embedding_scale:T segment_embedding_scale:T? gamma_scale:T beta_scale:T"
        " word_embedding_zero_point:Q position_embedding_zero_point:Q segment_embedding_zero_point:Q?"
        " gamma_zero_point:Q beta_zero_point:Q",
        "layernorm_out:T mask_index_out:I",
        {"T": FLOATS, "I": ("int32",), "Q": BYTES},
        defaults={"epsilon": 1e-12},
    ),
    torch=_quantised_layer,
    interval=_quantised_bounds,
    kernel=None,
    valid=[
        indices_of("ids", "words", lambda op: 0, wraps=False),
        indices_of("segments", "kinds", lambda op: 0, wraps=False),
        above_zero("variance + epsilon > 0", VARIANCE, _quantised_variance, stays_defined),
    ],
    operands=_SCALED,
    renamed={
        "input_ids": "ids",
        "segment_ids": "segments",
        "segment_embedding": "kinds",
        **{f"{formal}_quant": name for formal, name in zip(_FORMAL, _QUANTISED, strict=True) if name != "kinds"},
        **{f"{formal}_scale": f"{name}_scale" for formal, name in zip(_FORMAL, _QUANTISED, strict=True)},
        **{f"{formal}_zero_point": f"{name}_zero" for formal, name in zip(_FORMAL, _QUANTISED, strict=True)},
    },
)
class QEmbedLayerNormalization(Operation):
    """`EmbedLayerNormalization` of quantised tables."""
