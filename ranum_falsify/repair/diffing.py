"""The difference of two models: the nodes that one has and the other has not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx

from ranum_falsify.network.nesting import attribute_graphs
from ranum_falsify.repair.repair import GraphDiff


def diff_models(before: onnx.ModelProto, after: onnx.ModelProto) -> GraphDiff:
    """Return the nodes that are not in both models, subgraphs included; a node that reads another tensor is another."""
    old, new = list(_lines(before.graph)), list(_lines(after.graph))
    return GraphDiff(removed=_without(old, new), added=_without(new, old))


def _without(these: list[str], those: list[str]) -> tuple[str, ...]:
    left = Counter(those)
    found = []
    for line in these:
        if left[line]:
            left[line] -= 1
        else:
            found.append(line)
    return tuple(found)


def _lines(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        kind = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        name = f" {node.name}:" if node.name else ""
        yield f"{kind}{name} {', '.join(node.input)} -> {', '.join(filter(None, node.output))}"
        for inner in attribute_graphs(node):
            yield from _lines(inner)
