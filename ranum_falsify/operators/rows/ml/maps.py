"""What is left of operators that make maps, and of those with tables of strings."""

from __future__ import annotations

import onnx

from ranum_falsify.network.lowering import Surroundings, lowering, strings
from ranum_falsify.operators.support.ml import DOMAIN

__all__ = ["keep_values"]


@lowering("ZipMap", DOMAIN)
def keep_values(around: Surroundings, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """A list of maps from labels to numbers: the numbers."""
    around.renamed[node.output[0]] = around.resolve(node.input[0])
    return []


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
