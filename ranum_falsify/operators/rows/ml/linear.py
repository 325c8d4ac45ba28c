"""Linear models, and support vector machines with their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rules.learned import scores as rules
from ranum_falsify.domain.rules.learned import support_vectors
from ranum_falsify.domain.rules.matrix.matmul import matrix_product
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.support.ml import (
    as_rows,
    as_single,
    class_labels,
    expand_binary,
    labels_between,
    learned,
    scoring,
    transform_scores,
)


def _matrix(op: Operation, count: int) -> Tensor:
    """Return the coefficients, `(features, scores)`."""
    return torch.tensor(op.coefficients, dtype=torch.float32).reshape(count, -1).T


def _scores(op: Operation, x: Tensor, count: int) -> Tensor:
    rows = as_rows(x)
    y = rows @ _matrix(op, count).to(rows)
    bias = op.intercepts or ()
    return y + y.new_tensor(bias) if len(bias) == count else y


def _scores_bounds(op: Operation, x: Interval, count: int) -> Interval:
    bias = op.intercepts or ()
    added = Interval.point(np.array(bias, np.float32)) if len(bias) == count else None
    return matrix_product(as_rows(as_single(x)), Interval.point(_matrix(op, count).contiguous()), added)


# regressor ------------------------------------------------------------------------------------------------------


def _regress(op: Operation, x: Tensor) -> Tensor:
    y = _scores(op, x.float(), op.targets)
    return transform_scores(y, op.post_transform) if _is_transformed(op) else y


def _is_transformed(op: Operation) -> bool:
    return bool(op.post_transform == "PROBIT" or (op.post_transform != "NONE" and op.targets > 1))


@infinity_aware
def _regress_bounds(site: Site, x: Interval) -> Interval:
    y = _scores_bounds(site.op, x, site.op.targets)
    return rules.transform_scores(site, y, site.op.post_transform) if _is_transformed(site.op) else y


_AFFINE = Affine(terms=lambda op, shapes, output: shapes[0][-1] + 2, function=lambda op, x: _scores(op, x, op.targets))


@scoring(
    torch=_regress,
    interval=_regress_bounds,
    linear=lambda op: None if _is_transformed(op) else _AFFINE,
)
class LinearRegressor(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_LinearRegressor.html."""


# classifier -----------------------------------------------------------------------------------------------------


def _adds_class(op: Operation) -> bool:
    return len(op.intercepts or ()) == 1 and len(class_labels(op)) == 2


def _classify(op: Operation, x: Tensor) -> tuple[Tensor, Tensor]:
    count, labels, kind = len(op.intercepts or ()), class_labels(op), op.post_transform
    y = _scores(op, x.float(), count)
    known = torch.tensor(labels if count > 1 or len(labels) == 2 else (0, 1), device=x.device)
    chosen = known[y.argmax(1) if count > 1 else (y[:, 0] > 0).long()]
    if count == 1 and kind == "PROBIT":
        z = transform_scores(y, kind)
        return chosen, torch.cat([z, z], 1) if _adds_class(op) else z
    if _adds_class(op):
        return chosen, expand_binary(y, kind, shared=True)
    return chosen, transform_scores(y, kind) if count > 1 else y


@infinity_aware
def _classify_bounds(site: Site, x: Interval) -> tuple[Interval, ...]:
    op = site.op
    count, kind = len(op.intercepts or ()), op.post_transform
    y = _scores_bounds(op, x, count)
    labels = labels_between(op, (y.shape[0],), extra=(0, 1) if count == 1 else ())
    if _adds_class(op):
        if kind == "PROBIT":
            # The kernel transforms some of the numbers that it has room for.
            return labels, rules.anything((y.shape[0], 2))
        return labels, rules.expand_binary(site, y, kind, shared=True)
    return labels, rules.transform_scores(site, y, kind) if count > 1 or kind == "PROBIT" else y


@scoring(torch=_classify, interval=_classify_bounds)
class LinearClassifier(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html."""


# kernels --------------------------------------------------------------------------------------------------------

_KERNELS = ("Pow", "Exp", "Tanh")
_PARAMETERS = (0.0, 0.0, 0.0)


def _parameters(op: Operation) -> Sequence[float]:
    return op.kernel_params or _PARAMETERS


def _vectors(op: Operation, count: int) -> Tensor:
    """Return the support vectors, or, without any, the coefficients of each score, one in each row."""
    values = op.support_vectors if _has_vectors(op) else op.coefficients
    return torch.tensor(values, dtype=torch.float32).reshape(count, -1)


def _has_vectors(op: Operation) -> bool:
    return sum(getattr(op, "vectors_per_class", None) or (getattr(op, "n_supports", 0),)) > 0


def _similarities(op: Operation, x: Tensor, vectors: Tensor, constant: float) -> Tensor:
    vectors = vectors.to(x.device)
    kind = op.kernel_type if _has_vectors(op) else "LINEAR"
    factor, added, exponent = _parameters(op)
    if kind == "RBF":
        difference = x[:, None] - vectors
        return (-factor * (difference * difference).sum(-1)).exp()
    product = x @ vectors.T
    if kind == "LINEAR":
        return product + constant
    inner = factor * product + added
    return inner.tanh() if kind == "SIGMOID" else inner.pow(exponent)


def _similarity_bounds(site: Site, x: Interval, vectors: Tensor, constant: float) -> Interval:
    kind = site.op.kernel_type if _has_vectors(site.op) else "LINEAR"
    return support_vectors.similarities(site, x, vectors, kind, _parameters(site.op), constant)


def _rho(op: Operation) -> Tensor:
    return torch.tensor(op.rho, dtype=torch.float32)


def _weigh(similar: Interval, weights: Tensor, bias: Tensor) -> Interval:
    """Return bounds of weighted sums of similarities, with a constant added."""
    y = matrix_product(similar, Interval.point(weights.T.contiguous()), Interval.point(bias))
    return replace(y, nan=y.nan or similar.nan, overflows=y.overflows or similar.overflows or similar.may_be_infinite)


# regressor by support vectors -----------------------------------------------------------------------------------


def _regress_by_vectors(op: Operation, x: Tensor) -> Tensor:
    rows = as_rows(x).float()
    if _has_vectors(op):
        similar = _similarities(op, rows, _vectors(op, op.n_supports), 0.0)
        y = similar @ similar.new_tensor(op.coefficients)[:, None] + op.rho[0]
    else:
        y = _similarities(op, rows, _vectors(op, 1), op.rho[0])
    return torch.where(y > 0, 1.0, -1.0) if op.one_class else y


@infinity_aware
def _vector_regression_bounds(site: Site, x: Interval) -> Interval:
    op, rows = site.op, as_rows(as_single(x))
    if _has_vectors(op):
        similar = _similarity_bounds(site, rows, _vectors(op, op.n_supports), 0.0)
        y = _weigh(similar, torch.tensor([op.coefficients], dtype=torch.float32), _rho(op)[:1])
    else:
        y = _similarity_bounds(site, rows, _vectors(op, 1), float(np.float32(op.rho[0])))
    if not op.one_class:
        return y
    sign = y.map(lambda end: torch.where(end > 0, 1.0, -1.0))
    return replace(sign, nan=False, overflows=False) if not y.nan else Interval.fill(-1, 1, y.shape, y.dtype)


@learned(torch=_regress_by_vectors, interval=_vector_regression_bounds, kernel=_KERNELS)
class SVMRegressor(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_SVMRegressor.html."""


# classifier by support vectors ----------------------------------------------------------------------------------


def _pair_weights(op: Operation) -> Tensor:
    """Return the coefficients of the vectors for each pair of classes, `(pairs, vectors)`."""
    sizes = op.vectors_per_class
    starts = np.cumsum([0, *sizes])
    coefficients = torch.tensor(op.coefficients, dtype=torch.float32).reshape(-1, int(starts[-1]))
    pairs = list(combinations(range(len(sizes)), 2))
    weights = torch.zeros(len(pairs), int(starts[-1]))
    for row, (first, second) in enumerate(pairs):
        for own, other in ((first, second - 1), (second, first)):
            part = slice(int(starts[own]), int(starts[own + 1]))
            weights[row, part] = coefficients[other, part]
    return weights


def _classify_by_vectors(op: Operation, x: Tensor) -> tuple[Tensor, Tensor]:
    rows, labels, kind = as_rows(x).float(), class_labels(op), op.post_transform
    count = len(labels)
    known = torch.tensor(labels, device=x.device)
    if not _has_vectors(op):
        scores = _similarities(op, rows, _vectors(op, count), op.rho[0])
        chosen = _choose_linear(op, scores, known)
        return chosen, transform_scores(scores, kind) if count > 1 else scores
    weights = _pair_weights(op).to(x.device)
    similar = _similarities(op, rows, _vectors(op, weights.shape[1]), 0.0)
    scores = similar @ weights.T + _rho(op).to(x.device)[: len(weights)]
    votes = _vote(scores, count)
    chosen = known[votes]
    if op.prob_a:
        z = _couple(_pair_shares(op, scores), count)
        return chosen, transform_scores(z, kind)
    if count == 2:
        return chosen, expand_binary(scores, kind, shared=kind != "NONE")
    return chosen, transform_scores(scores, kind)


def _choose_linear(op: Operation, scores: Tensor, labels: Tensor) -> Tensor:
    greatest, at = scores.max(1)
    if len(labels) != 2:
        return labels[at]
    positive = greatest >= 0.5 if all(c >= 0 for c in op.coefficients) else greatest > 0
    return torch.where(positive, labels[1], labels[at])


def _vote(scores: Tensor, count: int) -> Tensor:
    votes = torch.zeros(scores.shape[0], count, device=scores.device)
    for column, (first, second) in enumerate(combinations(range(count), 2)):
        won = (scores[:, column] > 0).float()
        votes = votes + torch.nn.functional.one_hot(torch.tensor(first), count).to(votes) * won[:, None]
        votes = votes + torch.nn.functional.one_hot(torch.tensor(second), count).to(votes) * (1 - won)[:, None]
    return votes.argmax(1)


def _pair_shares(op: Operation, scores: Tensor) -> Tensor:
    a, b = (scores.new_tensor(column)[: scores.shape[1]] for column in (op.prob_a, op.prob_b))
    return (1 - torch.sigmoid(scores * a + b)).clamp(1e-7, 1 - 1e-7)


def _couple(shares: Tensor, count: int) -> Tensor:
    """Return the probabilities of classes from those of pairs, by the iteration of libsvm.

    https://www.csie.ntu.edu.tw/~cjlin/papers/svmprob/svmprob.pdf, algorithm 2; rows that are done stay.
    """
    r = shares.new_zeros(shares.shape[0], count, count)
    pairs = list(combinations(range(count), 2))
    first, second = (torch.tensor(side, device=shares.device) for side in zip(*pairs, strict=True))
    r = r.index_put((torch.arange(len(r), device=r.device)[:, None], first, second), shares)
    r = r.index_put((torch.arange(len(r), device=r.device)[:, None], second, first), 1 - shares)
    diagonal = torch.diag_embed((r * r).sum(1))
    q = diagonal - r.mT * r
    p = torch.full_like(r[:, 0], 1 / count)
    for _ in range(100):
        qp = (q @ p[..., None])[..., 0]
        pqp = (p * qp).sum(1)
        going = (qp - pqp[:, None]).abs().amax(1) >= 0.005 / count
        p = torch.where(going[:, None], _step(p, q, qp, pqp), p)
    return p


def _step(p: Tensor, q: Tensor, qp: Tensor, pqp: Tensor) -> Tensor:
    for i in range(p.shape[1]):
        step = (pqp - qp[:, i]) / q[:, i, i]
        grown = (1 + step)[:, None]
        pqp = (pqp + step * (step * q[:, i, i] + 2 * qp[:, i])) / grown[:, 0] / grown[:, 0]
        qp = (qp + step[:, None] * q[:, i]) / grown
        one = torch.nn.functional.one_hot(torch.tensor(i), p.shape[1]).to(p)
        p = (p + step[:, None] * one) / grown
    return p


@infinity_aware
def _vector_classification_bounds(site: Site, x: Interval) -> tuple[Interval, ...]:
    op = site.op
    rows, kind = as_rows(as_single(x)), op.post_transform
    count = len(class_labels(op))
    labels = labels_between(op, (rows.shape[0],), extra=(0, 1) if count < 3 else ())
    if not _has_vectors(op):
        scores = _similarity_bounds(site, rows, _vectors(op, count), float(np.float32(op.rho[0])))
        return labels, rules.transform_scores(site, scores, kind) if count > 1 else scores
    weights = _pair_weights(op)
    similar = _similarity_bounds(site, rows, _vectors(op, weights.shape[1]), 0.0)
    scores = _weigh(similar, weights, _rho(op)[: len(weights)])
    if op.prob_a:
        a, b = (torch.tensor(column, dtype=torch.float32)[: len(weights)] for column in (op.prob_a, op.prob_b))
        z = support_vectors.couple(support_vectors.pair_probabilities(site, scores, a, b), count)
        return labels, rules.transform_scores(site, z, kind)
    if count == 2:
        if kind == "PROBIT":
            return labels, rules.anything((rows.shape[0], 2))
        return labels, rules.expand_binary(site, scores, kind, shared=kind != "NONE")
    return labels, rules.transform_scores(site, scores, kind)


@learned(torch=_classify_by_vectors, interval=_vector_classification_bounds, kernel=(*_KERNELS, "Sigmoid"))
class SVMClassifier(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_SVMClassifier.html."""
