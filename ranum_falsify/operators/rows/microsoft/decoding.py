"""Tokens and scores in text decoders: windows, and n-grams that must not come again."""

from __future__ import annotations

import math

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rules.support.building import infinity_aware, moving
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.support.families import across, rearranging
from ranum_falsify.operators.support.functions import moves_unsigned
from ranum_falsify.operators.support.microsoft import ANY, FLOATS, schema
from ranum_falsify.validity import Bounds, Condition, Operands


@moves_unsigned
def _unfold(op: Operation, x: Tensor) -> Tensor:
    return x.unfold(op.dim, op.size, op.step)


@rearranging(
    schema=schema(
        "UnfoldTensor",
        "input:T",
        "output:T",
        {"T": ANY},
        defaults={"dim": -1, "step": 1},
        kinds={"size": "int"},
    ),
    torch=_unfold,
    interval=moving(_unfold),
    linear=Affine(),
    batch="vmap",
    operands=("x",),
    renamed={"input": "x"},
)
class UnfoldTensor(Operation):
    """All windows along a dimension, in a new last one."""


# n-grams --------------------------------------------------------------------------------------------------------


def _find_repeated(op: Operation, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return which tokens came after what the last ones are, and whether they did, `(batch, places)`."""
    length, before = tokens.shape[1], op.ngram_size - 1
    count = max(length - before, 0)
    last = tokens[:, length - before :] if count else tokens[:, :0]
    repeats = torch.ones_like(tokens[:, :count], dtype=torch.bool)
    for place in range(before if count else 0):
        repeats = repeats & (tokens[:, place : place + count] == last[:, place : place + 1])
    return tokens[:, before : before + count], repeats


def _block(op: Operation, tokens: Tensor, scores: Tensor) -> Tensor:
    following, repeats = _find_repeated(op, tokens)
    classes = torch.arange(scores.shape[1], device=scores.device)
    blocked = ((following[..., None] == classes) & repeats[..., None]).any(1)
    return scores.masked_fill(blocked, -math.inf)


@infinity_aware
def _block_bounds(site: Site, tokens: Interval, scores: Interval) -> Interval:
    if tokens.is_point:
        known = tokens.expand()[0]
        return scores.move(lambda bound: _block(site.op, known, bound))
    if tokens.shape[1] < site.op.ngram_size:
        return scores
    return Interval.of(torch.full_like(scores.lower, -math.inf), scores.upper, scores.shape)


def _room(op: Operation, operands: Operands) -> Tensor:
    following, repeats = _find_repeated(op, operands["tokens"])
    room = torch.minimum(following, operands["scores"].shape[1] - 1 - following).double()
    return torch.where(repeats, room, math.inf)


def _find_least_room(op: Operation, bounds: Bounds) -> float:
    known = {name: bounds[name].expand()[0] for name in ("tokens", "scores")}
    return min(_room(op, known).reshape(-1).tolist(), default=math.inf)


def _have_scores(op: Operation, bounds: Bounds) -> bool:
    low, high = bounds["tokens"].extremes
    if bounds["tokens"].is_point:
        return _find_least_room(op, bounds) >= 0
    return low >= 0 and high < bounds["scores"].shape[1]


def _lack_scores(op: Operation, bounds: Bounds) -> bool:
    return bounds["tokens"].is_point and _find_least_room(op, bounds) < 0


@across(
    schema=schema(
        "NGramRepeatBlock",
        "input_ids:I scores:T",
        "scores_out:T",
        {"I": ("int64",), "T": FLOATS},
        kinds={"ngram_size": "int"},
    ),
    torch=_block,
    interval=_block_bounds,
    linear=None,
    batch="vmap",
    kernel=None,
    valid=[
        Condition(
            "0 <= tokens that are blocked < n, the number of scores",
            "a token without a score",
            _room,
            refuses=True,
            holds_of=_have_scores,
            fails_of=_lack_scores,
        )
    ],
    operands=("tokens", "scores"),
    renamed={"input_ids": "tokens"},
)
class NGramRepeatBlock(Operation):
    """Scores of tokens, of which those are -Inf that would end an n-gram that there was."""
