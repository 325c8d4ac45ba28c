"""Linear models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.linear.declarations import Affine
from ranum_falsify.domain.rules.learned import scores as rules
from ranum_falsify.domain.rules.matrix.matmul import matrix_product
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.operators.support import batching
from ranum_falsify.operators.support.families import across
from ranum_falsify.operators.support.ml import (
    DOMAIN,
    as_rows,
    as_single,
    class_labels,
    expand_binary,
    labels_between,
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


def _features(op: Operation, shapes: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
    return shapes[0][-1] + 2


def _linear(op: Operation) -> Affine | None:
    return None if _is_transformed(op) else Affine(terms=_features, function=lambda op, x: _scores(op, x, op.targets))


@across(
    domain=DOMAIN,
    torch=_regress,
    interval=_regress_bounds,
    linear=_linear,
    batch=batching.by_rows,
    kernel=("Sigmoid", "Exp"),
    valid=(),
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


@across(
    domain=DOMAIN,
    torch=_classify,
    interval=_classify_bounds,
    linear=None,
    batch=batching.by_rows,
    kernel=("Sigmoid", "Exp"),
    valid=(),
)
class LinearClassifier(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html."""
