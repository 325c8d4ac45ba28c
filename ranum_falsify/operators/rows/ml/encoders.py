"""Categories as numbers: tables from keys to values, one number per category, and what is left of maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from onnx import helper, numpy_helper
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network.tensorise import Surroundings, lowering, refuse, strings
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.operators.support.families import exact
from ranum_falsify.operators.support.ml import DOMAIN, check_finite, learned
from ranum_falsify.validity import Bounds, Constraint, Operands

_BLOCK = 1 << 20
"""Comparisons of elements with keys that are made at once."""


# tables ---------------------------------------------------------------------------------------------------------


def _find_attribute(op: Operation, what: str) -> np.ndarray:
    """Return the keys or the values, under whichever of their names they stand."""
    for name, dtype in ((f"{what}_int64s", np.int64), (f"{what}_floats", np.float32)):
        if (found := getattr(op, name, None)) is not None:
            return np.asarray(found, dtype)
    tensor = getattr(op, f"{what}_tensor", None)
    if tensor is None:
        raise UnsupportedAttributeError(f"it has no numeric {what}; export the model again with numbers")
    return np.ravel(tensor)


def _find_default(op: Operation, dtype: np.dtype) -> np.ndarray:
    tensor = getattr(op, "default_tensor", None)
    if tensor is not None and tensor.size:
        return np.ravel(tensor)[:1]
    return np.array([_DEFAULTS[dtype](op)], dtype)


_DEFAULTS: Mapping[np.dtype, Callable[[Operation], float]] = {
    np.dtype(np.float32): lambda op: op.default_float,
    np.dtype(np.int64): lambda op: op.default_int64,
    # Kernels leave the attributes unread where values are of other types.
    np.dtype(np.float64): lambda op: -0.0,
    np.dtype(np.int16): lambda op: -1,
}


def _encode(op: LabelEncoder, x: Tensor) -> Tensor:
    keys, values = (column.to(x.device) for column in (op.keys, op.values))
    same = x.reshape(-1, 1) == keys
    if keys.is_floating_point():
        same = same | (x.reshape(-1, 1).isnan() & keys.isnan())
    # Of equal keys the first one counts; the last column is that of the default.
    same = torch.cat([same, torch.ones_like(same[:, :1])], 1)
    return values[same.int().argmax(1)].reshape(x.shape)


@infinity_aware
def _encode_bounds(site: Site, x: Interval) -> Interval:
    op = site.op
    assert isinstance(op, LabelEncoder)
    if x.is_point and x.lower.numel() and not x.may_be_infinite:
        y = _encode(op, x.lower)
        return Interval.of(y, y, x.shape)
    low, high = x.lower.reshape(-1, 1), x.upper.reshape(-1, 1)
    step = max(1, _BLOCK // max(len(op.keys), 1))
    pairs = [_hull(op, *part) for part in zip(low.split(step), high.split(step), strict=True)]
    least, greatest = (torch.cat(side).reshape(x.lower.shape) for side in zip(*pairs, strict=True))
    return Interval.of(least, greatest, x.shape)


def _hull(op: LabelEncoder, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest value of the keys within bounds, and of the default if others may come."""
    inside = (low <= op.keys) & (high >= op.keys)
    if op.keys.is_floating_point():
        inside = inside | op.keys.isnan()
        others = torch.ones_like(low, dtype=torch.bool)
    else:
        # Every integer between the bounds may be a key.
        distinct = torch.unique(op.keys)
        others = ~_are_all(((low <= distinct) & (high >= distinct)).sum(1, keepdim=True), low, high)
    possible = torch.cat([inside, others], 1)
    values = op.values.expand(possible.shape)
    lowest, highest = _limits(values.dtype)
    least = torch.where(possible, values, highest).amin(1)
    return least, torch.where(possible, values, lowest).amax(1)


def _are_all(count: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Tell where so many different integers between two are all that lie there."""
    # Not in float64, which does not tell large integers apart; a distance beyond the type wraps below 0.
    distance = high - low
    return (distance >= 0) & (count > distance)


def _limits(dtype: torch.dtype) -> tuple[float | int, float | int]:
    if dtype.is_floating_point:
        return -math.inf, math.inf
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


@exact(domain=DOMAIN, torch=_encode, interval=_encode_bounds)
class LabelEncoder(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_LabelEncoder.html."""

    @cached_property
    def keys(self) -> Tensor:
        """The keys."""
        return to_torch(_find_attribute(self, "keys"))

    @cached_property
    def values(self) -> Tensor:
        """The values of the keys, and the default."""
        values = _find_attribute(self, "values")
        if values.dtype not in _DEFAULTS:
            raise UnsupportedAttributeError(f"its values are of type {values.dtype}, for which there is no kernel")
        values = np.concatenate([values, _find_default(self, values.dtype).astype(values.dtype)])
        check_finite(values, "its values and its default")
        return to_torch(values)


# one of many ----------------------------------------------------------------------------------------------------


def _one_hot(op: Operation, x: Tensor) -> Tensor:
    whole = (
        x.long()
        if not x.is_floating_point()
        else x.trunc().nan_to_num(nan=-(2.0**63)).clamp(-(2.0**63), 2.0**62).long()
    )
    return (whole[..., None] == _last_of_each(op).to(x.device)).float()


def _last_of_each(op: Operation) -> Tensor:
    """Return the categories; of equal ones the kernel knows the last, others become one that no number has."""
    categories = list(op.cats_int64s or ())
    if not categories:
        raise UnsupportedAttributeError("it has no numeric categories; export the model again with numbers")
    last = {category: place for place, category in enumerate(categories)}
    return torch.tensor([c if last[c] == place else -(2**63) for place, c in enumerate(categories)])


@infinity_aware
def _one_hot_bounds(site: Site, x: Interval) -> Interval:
    categories = _last_of_each(site.op)
    low, high, wild = (end[..., None] for end in _whole_ends(x))
    inside = ((low <= categories) & (high >= categories)) | wild
    surely = inside & (low == high) & ~wild
    return Interval.of(surely.float(), inside.float(), (*x.shape, len(categories)))


_WILD = 2**62
"""Beyond integers of 64 bits, of which this leaves some out, kernels may make any number of a float."""


def _whole_ends(x: Interval) -> tuple[Tensor, Tensor, Tensor]:
    """Return the least and the greatest integer that kernels make of numbers, int64, and where they may make any."""
    low, high = (
        (end.double().trunc().clamp(-_WILD, _WILD) if x.is_floating else end).long() for end in (x.lower, x.upper)
    )
    return low, high, (low <= -_WILD) | (high >= _WILD)


def _count_categories(op: Operation, low: Tensor, high: Tensor) -> Tensor:
    """Return how many categories lie between integers."""
    categories = torch.tensor(sorted(set(op.cats_int64s or ())))
    return ((low[..., None] <= categories) & (high[..., None] >= categories)).sum(-1)


@dataclass(frozen=True)
class _KnownCategory(Constraint):
    """Every element is a category, where the node does not say that others are rows of zeros."""

    operand: str = "x"
    reason: str = "a category that the encoder does not know"
    refuses: bool = True

    def margin(self, op: Operation, operands: Operands) -> Tensor:
        """See :meth:`Constraint.margin`."""
        x = operands[self.operand]
        if op.zeros:
            return torch.zeros(0)
        found = (_one_hot(op, x) > 0).any(-1) if x.numel() else torch.ones(x.shape, dtype=torch.bool)
        distance = (
            (x.double()[..., None] - torch.tensor(list(op.cats_int64s or ()), dtype=torch.float64)).abs().amin(-1)
        )
        # A number beside a category is truncated to it.
        return torch.where(found, 0.0, -distance.clamp(min=1e-3))

    def holds(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.holds`."""
        x = operands[self.operand]
        if op.zeros or not x.size:
            return True
        low, high, wild = _whole_ends(x)
        # Every integer between the bounds may come.
        return bool((~wild & _are_all(_count_categories(op, low, high), low, high)).all())

    def fails(self, op: Operation, operands: Bounds) -> bool:
        """See :meth:`Constraint.fails`."""
        x = operands[self.operand]
        if op.zeros or not x.size:
            return False
        low, high, wild = _whole_ends(x)
        return bool((~wild & (_count_categories(op, low, high) == 0)).any())

    def describe(self) -> str:
        """See :meth:`Constraint.describe`."""
        return "x is a category, unless zeros = 1"


@learned(torch=_one_hot, interval=_one_hot_bounds, valid=[_KnownCategory()], overflow=False)
class OneHotEncoder(Operation):
    """https://onnx.ai/onnx/operators/onnx_aionnxml_OneHotEncoder.html."""


_CLASSES = "classes_strings"
"""The attribute that a LabelEncoder has in version 1 alone."""

_UNKNOWN = b"_Unused"
"""What a table of strings gives for unknown keys if it does not say."""

_TABLES_OF_BOTH = 2
"""The version from which on a LabelEncoder has keys and values."""


@lowering("ZipMap", DOMAIN)
def keep_values(around: Surroundings, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """A list of maps from labels to numbers: the numbers."""
    around.renamed[node.output[0]] = around.resolve(node.input[0])
    return []


@lowering("OneHotEncoder", DOMAIN, when=lambda node: False)
def check_categories(around: Surroundings, node: onnx.NodeProto) -> None:
    """Strings have no categories among numbers: the codes of some would be taken for them."""
    if around.resolve(node.input[0]) in around.texts and any(a.name == "cats_int64s" for a in node.attribute):
        raise refuse(node, "its categories are numbers, and its operand holds strings")


def _has_one_label(node: onnx.NodeProto) -> bool:
    return any(a.name == "classlabels_strings" and len(a.strings) == 1 for a in node.attribute)


@lowering("TreeEnsembleClassifier", DOMAIN, when=_has_one_label)
def check_labels(around: Surroundings, node: onnx.NodeProto) -> None:
    """One string: kernels look for a second one where there is one score."""
    if _has_one_label(node):
        raise refuse(node, "it has one label, a string, and ONNX Runtime looks beyond it")


@lowering("CategoryMapper", DOMAIN)
@lowering("LabelEncoder", DOMAIN, when=lambda node: any(a.name == _CLASSES for a in node.attribute))
def make_table(around: Surroundings, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """A table of strings and integers, from one to the other as the operand says: a table from keys to values."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    words = given.get("cats_strings", given.get(_CLASSES))
    if words is None:
        return _add_default(around, node, given)
    numbers = given.get("cats_int64s", list(range(len(words))))
    if len(numbers) != len(words):
        raise refuse(node, f"it has {len(words)} strings for {len(numbers)} integers")
    attributes: dict[str, Any]
    # Of equal keys the kernels know the last.
    if around.resolve(node.input[0]) in around.texts:
        known = dict(zip(words, numbers, strict=True))
        attributes = {"keys_strings": [*known], "values_int64s": [*known.values()]}
        attributes["default_int64"] = given.get("default_int64", -1)
    else:
        known = dict(zip(numbers, words, strict=True))
        attributes = {"keys_int64s": [*known], "values_strings": [*known.values()]}
        attributes["default_string"] = given.get("default_string", _UNKNOWN)
    around.versions[DOMAIN] = _TABLES_OF_BOTH
    return around.lower(
        helper.make_node("LabelEncoder", node.input, node.output, node.name, domain=DOMAIN, **attributes)
    )


def _add_default(around: Surroundings, node: onnx.NodeProto, given: Mapping[str, Any]) -> list[onnx.NodeProto] | None:
    """Write down what a table of strings gives for unknown keys where the node does not, or says by another name."""
    values, word = given.get("values_tensor"), given.get("default_string", _UNKNOWN)
    default: dict[str, Any] = {}
    if "values_strings" in given and "default_string" not in given:
        default = {"default_string": _UNKNOWN}
    elif values is not None and values.data_type == onnx.TensorProto.STRING and "default_tensor" not in given:
        default = {"default_tensor": numpy_helper.from_array(np.array([word], dtype=object))}
    if not default:
        return None
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    changed.attribute.extend(helper.make_attribute(name, value) for name, value in default.items())
    return around.lower(changed)


for _op_type, _attributes in {
    "LabelEncoder": {
        "keys_strings": "keys_int64s",
        "values_strings": "values_int64s!",
        "default_string": "default_int64",
    },
    "LinearClassifier": {"classlabels_strings": "classlabels_ints!"},
    "OneHotEncoder": {"cats_strings": "cats_int64s"},
    "SVMClassifier": {"classlabels_strings": "classlabels_ints!"},
    "TreeEnsembleClassifier": {"classlabels_strings": "classlabels_int64s!"},
}.items():
    strings(_op_type, DOMAIN, _attributes)
