"""Ensembles of decision trees.

Gradients through them are zero; the search starts on either side of their thresholds instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.error_bounds import sum_error, tiny
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.domain.rules.learned import scores as rules
from ranum_falsify.domain.rules.learned.forest import Forest, Reached, reach
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.lazy import cached_property
from ranum_falsify.operators.support.forests import find_leaves, forest_of_leaves, forest_of_nodes
from ranum_falsify.operators.support.ml import (
    as_rows,
    check_finite,
    class_labels,
    expand_binary,
    labels_between,
    scoring,
    transform_scores,
)

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
_RARE_ROUNDINGS = 4
"""Of a score besides those of its sum: its mean over the trees, the base value added, a conversion."""


def _base_values(op: Operation) -> list[float]:
    tensor = getattr(op, "base_values_as_tensor", None)
    values = getattr(op, "base_values", None) if tensor is None else tensor.reshape(-1).tolist()
    check_finite(values or (), "its base values")
    return [float(value) for value in values or ()]


# sums of leaves -------------------------------------------------------------------------------------------------


def _gather(forest: Forest, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return what each tree gives each score, `(rows, trees, scores)`, and whether it does."""
    at = find_leaves(forest, x)
    dtype = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    return forest.weight.to(x.device, dtype)[at], forest.gives.to(x.device)[at]


def _aggregate(weights: Tensor, gives: Tensor, how: str) -> Tensor:
    if how in ("SUM", "AVERAGE"):
        total = weights.sum(1)
        return total / weights.shape[1] if how == "AVERAGE" else total
    end = math.inf if how == "MIN" else -math.inf
    given = torch.where(gives, weights, end)
    extreme = given.amin(1) if how == "MIN" else given.amax(1)
    return torch.where(gives.any(1), extreme, 0.0)


def _aggregate_bounds(reached: Reached, how: str, bases: Sequence[float], dtype: torch.dtype, rows: int) -> Interval:
    """Bound the scores, the base values added."""
    trees, scores = reached.low.shape[1:]
    base = (
        torch.tensor(bases, dtype=torch.float64) if len(bases) == scores else torch.zeros(scores, dtype=torch.float64)
    )
    low, high = _between(reached, how)
    size = torch.maximum(reached.low.abs(), reached.high.abs()).sum(1) + base.abs()
    error = size * sum_error(trees + 1, dtype, _RARE_ROUNDINGS) + (trees + _RARE_ROUNDINGS) * tiny(dtype)
    y = round_outward(low + base - error, high + base + error, dtype, (rows, scores))
    return replace(y, overflows=bool((size * 1.01 >= torch.finfo(dtype).max).any()))


def _between(reached: Reached, how: str) -> tuple[Tensor, Tensor]:
    if how in ("SUM", "AVERAGE"):
        count = reached.low.shape[1] if how == "AVERAGE" else 1
        return reached.low.sum(1) / count, reached.high.sum(1) / count
    # A tree that may give nothing leaves the extreme to the others; if none gives anything, it is 0.
    surely = reached.surely
    if how == "MIN":
        low, high = reached.given_low.amin(1), torch.where(surely, reached.given_high, math.inf).amin(1)
        high = torch.where(surely.any(1), high, reached.given_high.amax(1))
    else:
        low, high = torch.where(surely, reached.given_low, -math.inf).amax(1), reached.given_high.amax(1)
        low = torch.where(surely.any(1), low, reached.given_low.amin(1))
    may_be_empty = ~surely.any(1)
    low = torch.where(may_be_empty, low.clamp(max=0), low)
    return low, torch.where(may_be_empty, high.clamp(min=0), high)


_growing = partial(scoring, thresholds=lambda op: op.forest.thresholds)
"""Rows of ensembles."""


# classifier -----------------------------------------------------------------------------------------------------


def _is_binary(op: Operation) -> bool:
    return len(class_labels(op)) == 2 and len(set(op.class_ids)) == 1


def _is_share(op: Operation) -> bool | None:
    """Tell whether the one score of a binary classifier is a share; None if it leaves that of the other class out."""
    weights = op.class_weights if getattr(op, "class_weights_as_tensor", None) is None else op.class_weights_as_tensor
    if _is_binary(op):
        return all(weight >= 0 for weight in weights)
    return None if _base_values(op) else False


def _classify(op: TreeEnsembleClassifier, x: Tensor) -> tuple[Tensor, Tensor]:
    weights, gives = _gather(op.forest, as_rows(x))
    scores, given = weights.sum(1).float(), gives.any(1)
    labels = torch.tensor(class_labels(op), device=x.device)
    if scores.shape[1] == 2:
        chosen, z = _classify_two(op, scores, given)
        return labels[chosen] if _is_binary(op) else chosen, z
    bases, kind = _base_values(op), op.post_transform
    if scores.shape[1] == 1 < len(bases):
        # ONNX Runtime takes the class for the second of two then.
        raise UnsupportedAttributeError(f"{len(bases)} base values for one class; give one")
    total = scores + (scores.new_tensor(bases) if len(bases) == scores.shape[1] else 0.0)
    if scores.shape[1] == 1:
        return (total[:, 0] > 0).long(), _finish(total, kind)
    counted = torch.where(given | bool(bases), total, -math.inf)
    return labels[counted.argmax(1)], transform_scores(total, kind)


def _classify_two(op: Operation, scores: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of two classes is chosen, and their scores; a score that no leaf gives counts as 0."""
    bases, kind, shared = _base_values(op), op.post_transform, _is_share(op)
    both = scores
    if len(bases) == 2:
        # The kernel takes the first score for that of the second class.
        both = torch.stack([-scores[:, 0] - bases[1], scores[:, 0] + bases[1]], 1)
    elif bases:
        both = scores + scores.new_tensor([bases[0], 0.0])
    alone = torch.where(given[:, :1], scores[:, :1] + (bases[0] if bases else 0.0), 0.0)
    if len(bases) == 2:
        second = transform_scores(torch.cat([alone, torch.zeros_like(alone)], 1), kind)
    elif shared is None or kind == "PROBIT":
        second = torch.cat([_finish(alone, kind)] * 2, 1)
    else:
        second = expand_binary(alone, kind, shared=shared)
    decisive = torch.where(given[:, 1], both[:, 1], alone[:, 0])
    chosen = (decisive > (0.5 if _is_binary(op) and shared else 0.0)).long()
    return chosen, torch.where(given[:, 1:], transform_scores(torch.where(given, both, 0.0), kind), second)


def _classify_bounds(site: Site, x: Interval) -> tuple[Interval, ...]:
    op = site.op
    assert isinstance(op, TreeEnsembleClassifier)
    rows = x.shape[0] if len(x.shape) > 1 else 1
    count, kind, bases = op.forest.scores, op.post_transform, _base_values(op)
    reached = reach(op.forest, as_rows(x))
    labels = labels_between(op, (rows,), extra=(0, 1) if count < 3 else ())
    if count != 2:
        plain = _aggregate_bounds(reached, "SUM", bases, torch.float32, rows)
        return labels, rules.transform_scores(site, plain, kind) if count > 2 else _finish_bounds(site, plain, kind)
    variants = []
    if bool(reached.perhaps[:, :, 1].any()):
        variants.append(rules.transform_scores(site, _both_bounds(reached, bases, rows), kind))
    if not bool(reached.surely[:, :, 1].any(1).all()):
        variants.append(_alone_bounds(site, reached, bases, rows))
    first, last = variants[0], variants[-1]
    both = first if first is last else first.hull(last)
    return labels, replace(both, nan=first.nan or last.nan, overflows=first.overflows or last.overflows)


def _score_bounds(reached: Reached, column: int, base: float, rows: int) -> Interval:
    """Bound a score with its base value added, `(rows, 1)`; one that no leaf may give can be 0."""
    score = _columns(_aggregate_bounds(reached, "SUM", [base] * reached.low.shape[2], torch.float32, rows), column)
    if bool(reached.surely[:, :, column].any(1).all()):
        return score
    return replace(score.hull(Interval.fill(0, 0, score.shape, score.dtype)), overflows=score.overflows)


def _both_bounds(reached: Reached, bases: Sequence[float], rows: int) -> Interval:
    if len(bases) == 2:
        second = _columns(_aggregate_bounds(reached, "SUM", [bases[1]] * 2, torch.float32, rows), 0)
        first = rules.opposites(second)
        if not bool(reached.surely[:, :, 0].any(1).all()):
            first = replace(first.hull(Interval.fill(0, 0, first.shape, first.dtype)), overflows=second.overflows)
    else:
        first = _score_bounds(reached, 0, bases[0] if bases else 0.0, rows)
        second = _score_bounds(reached, 1, 0.0, rows)
    return rules.side_by_side(first, second)


def _alone_bounds(site: Site, reached: Reached, bases: Sequence[float], rows: int) -> Interval:
    op, kind = site.op, site.op.post_transform
    score, shared = _score_bounds(reached, 0, bases[0] if bases else 0.0, rows), _is_share(op)
    if len(bases) == 2:
        second = Interval.fill(0, 0, score.shape, score.dtype)
        return rules.transform_scores(site, rules.side_by_side(score, second), kind)
    if shared is None or kind == "PROBIT":
        # The kernel writes one of the two numbers that it has room for.
        return rules.anything((rows, 2))
    return rules.expand_binary(site, score, kind, shared=shared)


def _columns(y: Interval, *columns: int) -> Interval:
    low, high = (end.expand(end.shape[0], y.shape[1])[:, list(columns)] for end in (y.lower, y.upper))
    return replace(y, lower=low, upper=high, shape=(y.shape[0], len(columns)))


@_growing(torch=_classify, interval=infinity_aware(_classify_bounds))
class TreeEnsembleClassifier(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleClassifier.html."""

    @cached_property
    def forest(self) -> Forest:
        """The trees."""
        return forest_of_nodes(self, "class", len(class_labels(self)))


# regressors -----------------------------------------------------------------------------------------------------


def _regress(op: TreeEnsembleRegressor, x: Tensor) -> Tensor:
    weights, gives = _gather(op.forest, as_rows(x))
    bases, kind = _base_values(op), op.post_transform
    scores = _aggregate(weights, gives, op.aggregate_function)
    if len(bases) == scores.shape[1]:
        scores = scores + scores.new_tensor(bases) * gives.any(1)
    return _finish(scores, kind).float()


def _finish(scores: Tensor, kind: str) -> Tensor:
    return transform_scores(scores, kind) if scores.shape[1] > 1 or kind == "PROBIT" else scores


def _finish_bounds(site: Site, scores: Interval, kind: str) -> Interval:
    return rules.transform_scores(site, scores, kind) if scores.shape[1] > 1 or kind == "PROBIT" else scores


def _regress_bounds(site: Site, x: Interval) -> Interval:
    op = site.op
    assert isinstance(op, TreeEnsembleRegressor)
    rows = x.shape[0] if len(x.shape) > 1 else 1
    reached = reach(op.forest, as_rows(x))
    scores = _aggregate_bounds(reached, op.aggregate_function, _base_values(op), torch.float32, rows)
    # To a score that no leaf gives, no base value is added.
    low, high, empty = scores.lower, scores.upper, ~reached.surely.any(1)
    ends = torch.where(empty, low.clamp(max=0), low), torch.where(empty, high.clamp(min=0), high)
    return _finish_bounds(site, replace(scores, lower=ends[0], upper=ends[1]), op.post_transform)


@_growing(torch=_regress, interval=infinity_aware(_regress_bounds))
class TreeEnsembleRegressor(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleRegressor.html."""

    @cached_property
    def forest(self) -> Forest:
        """The trees."""
        return forest_of_nodes(self, "target", int(self.n_targets))


def _sum_up(op: TreeEnsemble, x: Tensor) -> Tensor:
    weights, gives = _gather(op.forest, as_rows(x))
    scores = _aggregate(weights, gives, _AGGREGATES[op.aggregate_function])
    return _finish(scores, _TRANSFORMS[op.post_transform]).to(x.dtype)


def _sum_up_bounds(site: Site, x: Interval) -> Interval:
    op = site.op
    assert isinstance(op, TreeEnsemble)
    rows = x.shape[0] if len(x.shape) > 1 else 1
    kind = _TRANSFORMS[op.post_transform]
    dtype = torch.float32 if kind != "NONE" else x.dtype
    if x.dtype not in (torch.float32, torch.float64):
        # No runtime has a kernel for half precision.
        return replace(Interval.fill(-math.inf, math.inf, (rows, op.forest.scores), x.dtype), nan=True, overflows=True)
    scores = _aggregate_bounds(reach(op.forest, as_rows(x)), _AGGREGATES[op.aggregate_function], (), dtype, rows)
    y = _finish_bounds(site, scores, kind)
    return y if y.dtype is x.dtype else replace(y, lower=y.lower.to(x.dtype), upper=y.upper.to(x.dtype))


@_growing(torch=_sum_up, interval=infinity_aware(_sum_up_bounds))
class TreeEnsemble(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html."""

    @cached_property
    def forest(self) -> Forest:
        """The trees."""
        return forest_of_leaves(self)
