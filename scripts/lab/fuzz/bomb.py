"""Common parts of the bombs: files, arguments, small models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import TensorProto, helper

__all__ = ["BOX", "HUGE", "LINES", "Bomb", "model_of", "run"]

HUGE = (10**7, 2**27, 2**28 + 1, 10**9, 2**31, 10**10, 10**12, 2**40, 2**62, 2**63 - 1)
BOX = (
    "from dnnv.properties import *\nfrom ranum_falsify.properties import *\n\nN = Network('N')\n"
    "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))\n"
)
LINES = "(declare-const X_0 Real)\n(declare-const Y_0 Real)\n(assert (<= X_0 1.0))\n(assert (>= X_0 -1.0))\n"


@dataclass(frozen=True)
class Bomb:
    """Files, and the arguments that name them.

    Attributes:
        name: What is huge.
        arguments: Arguments of the command; files are named relative to the folder.
        files: Their contents by name.
        links: Targets of symbolic links, by name.
        pipes: Names of named pipes.
        holes: Sizes of files of zeros that take no space, by name.
    """

    name: str
    arguments: tuple[str, ...]
    files: Mapping[str, bytes]
    links: Mapping[str, str] = field(default_factory=dict)
    pipes: Sequence[str] = ()
    holes: Mapping[str, int] = field(default_factory=dict)


def run(name: str, model: onnx.ModelProto | bytes, prop: str = BOX, **more: object) -> Bomb:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return Bomb(
        name,
        ("prop.py", "-N", "N", "model.onnx"),
        {"prop.py": prop.encode(), "model.onnx": data},
        **more,  # type: ignore[arg-type]
    )


def model_of(
    nodes: Sequence[onnx.NodeProto],
    weights: Sequence[onnx.TensorProto] = (),
    *,
    shape: Sequence[int] = (4,),
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    sparse: Sequence[onnx.SparseTensorProto] = (),
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights, sparse_initializer=sparse)
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid("local", 1)] if functions else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions)
