"""Embeddings of words, positions and segments, added up and normalised."""

from __future__ import annotations

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.rows.microsoft.normalisation import (
    add_up,
    normalise_sum,
    normalised_bounds,
    stays_defined,
    total_bounds,
)
from ranum_falsify.operators.rows.normalisation import VARIANCE, above_zero
from ranum_falsify.operators.rows.transformer_parts import angles_bounds, find_angles
from ranum_falsify.operators.support.families import opaque
from ranum_falsify.operators.support.limits import indices_of
from ranum_falsify.operators.support.microsoft_schemas import FLOATS, schema
from ranum_falsify.validity import Operands

__all__ = ["EmbedLayerNormalization"]


def _places(like: Tensor, given: Tensor | None) -> Tensor:
    """Return the position of each token, `(batch, sequence)`."""
    places = torch.arange(like.shape[1], device=like.device) if given is None else given
    return places.expand(like.shape)


def _embed(
    ids: Tensor, segments: Tensor | None, words: Tensor, positions: Tensor, kinds: Tensor | None, places: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the embeddings of words, positions and segments."""
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
    count = ids.new_zeros(ids.shape[0]) if mask is None else (mask == 1).sum(1).to(ids.dtype)
    return (y, count, add_up(*parts))[: len(op.output_names)]


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
    count = Interval.fill(0, 0 if mask is None else ids.shape[1], ids.shape[:1], torch.int32)
    return (y, count, total_bounds(site, word, position, kind))[: len(site.details)]


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
