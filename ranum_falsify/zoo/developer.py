"""Changes that the developers of a program made about a defect, and the model with that change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ranum_falsify.zoo.builder import Architecture, ArchitectureBuilder

FixStatus = Literal["fixed", "weakened", "proposed", "unused", "none", "unknown"]
"""What became of a defect.

It was `fixed`; it was `weakened`, that is, made less likely; a fix is `proposed` in an issue; one stands `unused` in
the program, as a comment or as a result that nobody reads; there is `none`; or it is `unknown`, because the program was
not found.
"""


@dataclass(frozen=True, kw_only=True)
class DeveloperGuard:
    """A node put before an operator, on its first operand.

    Attributes:
        node: The operator's node.
        add: The number that is added to the operand, None if it is clipped.
        low: The least value to which it is clipped, if any.
        high: The greatest.
    """

    node: str
    add: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class DeveloperFix:
    """What the developers of a program did about a defect.

    Attributes:
        status: What became of it.
        detail: What is known, in words.
        guards: The nodes that the change puts before operators.
        build: Builds the changed model, where guards do not express the change.
        fused: Whether the change is the repair of the catalogue.
        exact: Whether the change is known as it is; else a form that RANUM's authors hold equivalent stands for it.
    """

    status: FixStatus
    detail: str
    guards: tuple[DeveloperGuard, ...] = ()
    build: Callable[[ArchitectureBuilder], None] | None = None
    fused: bool = False
    exact: bool = True

    @property
    def changes_graph(self) -> bool:
        """Whether the changed model can be built."""
        return bool(self.guards) or self.build is not None or self.fused


def guard_operands(architecture: Architecture, guards: tuple[DeveloperGuard, ...]) -> Architecture:
    """Return an architecture with guards before its operators.

    Raises:
        ValueError: There is no such node.
    """
    model = onnx.ModelProto()
    model.CopyFrom(architecture.model)
    nodes = list(model.graph.node)
    for guard in guards:
        position = next((i for i, node in enumerate(nodes) if node.name == guard.node), None)
        if position is None:
            raise ValueError(f"{model.graph.name}: no node is called {guard.node!r}")
        node, name = nodes[position], f"guard_of_{guard.node}"
        limits = [guard.add] if guard.add is not None else [guard.low, guard.high]
        constants = [f"{name}_{i}" if limit is not None else "" for i, limit in enumerate(limits)]
        model.graph.initializer.extend(
            numpy_helper.from_array(np.array(limit, np.float32), constant)
            for limit, constant in zip(limits, constants, strict=True)
            if limit is not None
        )
        operator = "Clip" if guard.add is None else "Add"
        nodes.insert(position, helper.make_node(operator, [node.input[0], *constants], [name], name=name))
        node.input[0] = name
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.checker.check_model(model, full_check=True)
    return replace(architecture, model=model)
