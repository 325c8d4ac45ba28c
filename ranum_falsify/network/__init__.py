"""The operation graph of DNNV, extended to all of ONNX: reading, order, evaluation, slicing, writing."""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing
from ranum_falsify.network.graph import Graph, ReadOptions
from ranum_falsify.network.reader import read
from ranum_falsify.network.registry import OperatorSpec, find, operator, spec_of, supported

__all__ = ["Graph", "OperatorSpec", "ReadOptions", "find", "operator", "read", "spec_of", "supported"]
