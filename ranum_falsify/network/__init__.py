"""The operation graph of DNNV, extended to all of ONNX: reading, order, evaluation, slicing, writing."""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing
from ranum_falsify.network.graph import Graph
from ranum_falsify.network.reader import find_assumed_dims, read, read_inputs
from ranum_falsify.network.registry import OperatorSpec, find, list_supported, operator, spec_of
from ranum_falsify.network.shaped import ReadOptions

__all__ = [
    "Graph",
    "OperatorSpec",
    "ReadOptions",
    "find",
    "find_assumed_dims",
    "list_supported",
    "operator",
    "read",
    "read_inputs",
    "spec_of",
]
