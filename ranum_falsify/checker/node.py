"""A node of a model, as rules see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ranum_falsify.checker.bounds import Bounds

Operands = Sequence[Bounds | None]
"""Bounds of a node's operands; None for those that it is not given."""

Results = Sequence[Bounds | None] | None
"""Bounds of its results, of which some may not be known; None where it is not shown that they are finite."""


class NodeView:
    """A node, with what its model says about it.

    Attributes:
        proto: The node itself.
        opset: The version of ONNX's own operators.
        away: No element of its second operand is nearer to 0.
    """

    def __init__(self, proto: onnx.NodeProto, opsets: Sequence[onnx.OperatorSetIdProto]) -> None:
        self.proto = proto
        self.away = 0.0
        self._opsets = opsets
        self.opset = next((one.version for one in opsets if one.domain in ("", "ai.onnx")), 0)
        self._read: set[str] = set()

    @property
    def key(self) -> str:
        """Its operator, with the domain where it is none of ONNX's own."""
        domain = "" if self.proto.domain in ("", "ai.onnx") else f"{self.proto.domain}."
        return domain + self.proto.op_type

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute; numbers are float32, those of a default, too."""
        self._read.add(name)
        found = next((one for one in self.proto.attribute if one.name == name), None)
        default = float(np.float32(default)) if isinstance(default, float) else default
        value = default if found is None else onnx.helper.get_attribute_value(found)
        return value.decode() if isinstance(value, bytes) else value

    @property
    def has_unread_attributes(self) -> bool:
        """Whether it has an attribute that no rule asked for."""
        return any(one.name not in self._read for one in self.proto.attribute)

    def run(self, arrays: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Return what the reference evaluator of ONNX makes of operands."""
        self._read.update(one.name for one in self.proto.attribute)
        if "" in self.proto.output:
            raise NotImplementedError("results that are left out")
        proto = onnx.NodeProto()
        proto.CopyFrom(self.proto)
        names = [f"x{i}" if array is not None else "" for i, array in enumerate(arrays)]
        del proto.input[:]
        proto.input.extend(names)
        feeds = {name: np.asarray(array) for name, array in zip(names, arrays, strict=True) if array is not None}
        made = list(proto.output)
        graph = onnx.helper.make_graph(
            [proto],
            "node",
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in feeds],
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in made],
        )
        model = onnx.helper.make_model(graph, opset_imports=self._opsets)
        return [np.asarray(one) for one in ReferenceEvaluator(model).run(None, feeds)]


Rule = Callable[[NodeView, Operands], Results]
"""Bounds of the results of a node."""
