"""What the body of a loop hands on as it got it: ONNX Runtime gives other numbers there than ONNX says.

Measured on ONNX Runtime 1.31.1, optimised or not.  In the body of a Loop, the number of the iteration is one buffer
that is counted up, and what is handed on as it is, or collected, is that buffer: 5 iterations collect 5, 5, 5, 5, 5.
In the body of a Scan, an output that is an input is memory that nobody has written; there, and in a branch of an If,
so is one of two outputs that are the same tensor.
"""

from __future__ import annotations

from collections import Counter

import onnx

from ranum_falsify.errors import ModelError
from ranum_falsify.network.nesting import name_of

__all__ = ["check_branch", "find_counting", "is_well_defined"]


def find_counting(body: onnx.GraphProto) -> frozenset[int]:
    """Return the positions, among the outputs of the body of a Loop, of those that are the number of the iteration.

    Such a state is that number in the next iteration, where another output may be the state.
    """
    renamed = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity" and node.input}
    inputs, outputs = ([info.name for info in infos] for infos in (body.input, body.output))
    counting, before = set(inputs[:1]), 0
    while before < len(counting):
        before = len(counting)
        # The body reads the number and the condition before its states, and gives the condition before them.
        counting |= {read for read, name in zip(inputs[2:], outputs[1:], strict=False) if name in counting}
        counting |= {new for new, old in renamed.items() if old in counting}
    return frozenset(position for position, name in enumerate(outputs) if name in counting)


def is_well_defined(body: onnx.GraphProto) -> bool:
    """Tell whether ONNX Runtime writes all outputs of the body of a Scan."""
    inputs = {info.name for info in body.input}
    return not _list_repeated(body) and all(info.name not in inputs for info in body.output)


def check_branch(node: onnx.NodeProto, branch: onnx.GraphProto) -> None:
    """Check that ONNX Runtime writes all outputs of a branch.

    Raises:
        ModelError: Two are the same tensor, or there are fewer than the node has.
    """
    if len(branch.output) != len(node.output):
        raise ModelError(
            f"node {name_of(node)!r} ({node.op_type}) has {len(node.output)} outputs, a branch of it "
            f"{len(branch.output)}; export the model again"
        )
    for name in _list_repeated(branch):
        raise ModelError(
            f"node {name_of(node)!r} ({node.op_type}): {name!r} is two outputs of a branch, and ONNX Runtime writes "
            "only one of them; put an Identity before the other"
        )


def _list_repeated(graph: onnx.GraphProto) -> list[str]:
    return [name for name, count in Counter(info.name for info in graph.output).items() if count > 1]
