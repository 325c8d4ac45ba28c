"""What a broken pass is, and how one is written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite import Rewrite, verify
from tests.rewrite.transform_kit import model_of

__all__ = ["Broken", "broken", "broken_graph", "constant", "ranges"]

_GUARANTEES: Mapping[str, Callable[[Any], Any]] = {
    "equality": verify.equality,
    "equality but for signs of zero": verify.equality(signed_zero=False),
    "tolerance": verify.tolerance,
}


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A pass that does not keep its promise, and a model that shows it.

    Attributes:
        name: What is wrong with it.
        stage: What finds it.
        make: Its class.
        model: The graph, in ONNX's text form.
        config: How it is verified, beside what all share.
    """

    name: str
    stage: str
    make: type[Any]
    model: str
    config: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> ir.Model:
        """The model, its weights in arrays that can be written to, as other passes leave them."""
        model = model_of(self.model)
        for value in model.graph.initializers.values():
            if value.const_value is not None:
                value.const_value = ir.tensor(np.array(value.const_value.numpy()), name=value.name)
        for node in model.graph:
            if node.op_type == "Constant" and "value" in node.attributes:
                tensor = node.attributes["value"].as_tensor()
                node.attributes["value"] = ir.AttrTensor("value", ir.tensor(np.array(tensor.numpy())))
        return model

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def broken(
    name: str,
    model: str,
    pattern: Callable[..., Any],
    rewrite: Callable[..., Any],
    *,
    stage: str = "samples",
    guarantee: str = "equality",
    **config: Any,
) -> Broken:
    """A broken rewrite of a pattern."""
    made = type("BrokenRewrite", (Rewrite,), {"pattern": pattern, "rewrite": rewrite})
    return Broken(name=name, stage=stage, make=_GUARANTEES[guarantee](made), model=model, config=config)


def broken_graph(name: str, model: str, change: Callable[[ir.Model], object], *, stage: str = "structure") -> Broken:
    """A broken pass over the whole graph."""

    def call(self: Any, model: ir.Model) -> ir.passes.PassResult:
        change(model)
        return ir.passes.PassResult(model, True)

    made = type("BrokenGraphPass", (ir.passes.InPlacePass,), {"call": call})
    return Broken(name=name, stage=stage, make=verify.equality(made), model=model)


def constant(op: Any, value: Any, dtype: type[Any] = np.float32) -> Any:
    """A new constant."""
    return op.Constant(value=ir.tensor(np.asarray(value, dtype)))


def ranges(**limits: tuple[float, float]) -> dict[str, tuple[np.float64, np.float64]]:
    """A box, by input."""
    return {name: (np.float64(low), np.float64(high)) for name, (low, high) in limits.items()}
