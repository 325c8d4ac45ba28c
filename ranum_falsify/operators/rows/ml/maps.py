"""What is left of operators that make maps, and of those with tables of strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ranum_falsify.network.lowering import Surroundings, lowering, refuse, strings
from ranum_falsify.operators.support.ml import DOMAIN

__all__ = ["keep_values", "make_table"]

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
