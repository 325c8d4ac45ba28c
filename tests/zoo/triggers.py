"""Inputs and weights that trigger a documented defect, found by thought rather than by search.

Each family of architectures has a module `triggers_<family>.py` here with a table `TRIGGERS`, by the defect's id.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import helper, numpy_helper

from ranum_falsify.model_builder import BoxedVariable
from ranum_falsify.verify.replay.operator_facts import operator_facts
from ranum_falsify.verify.replay.worker import InspectedModel, Operators, Setting
from ranum_falsify.zoo.builder import Architecture

__all__ = ["SMALLEST_NORMAL", "Run", "Trigger", "all_triggers", "ancestors", "follows", "one_hot", "run"]

Array = NDArray[Any]
Values = Mapping[str, ArrayLike]

SMALLEST_NORMAL = float(np.finfo(np.float32).smallest_normal)


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """How a documented defect comes about.

    Attributes:
        values: Inputs and weights by name, broadcast to their shapes; what is left out is the middle of an input's
            range, or the initial value of a weight.
        path: Operators on a path from an input of the model to the defective node, that one included.
        also: Names of further nodes that fail by themselves on these values: a second instance of the same formula.
    """

    values: Values | Callable[[], Values]
    path: tuple[str, ...]
    also: tuple[str, ...] = ()

    def feeds(self, architecture: Architecture) -> dict[str, Array]:
        """Return an array for every input and weight.

        Raises:
            ValueError: A name is neither an input nor a weight, or a value lies outside its range.
        """
        given = dict(self.values() if callable(self.values) else self.values)
        initial = {t.name: numpy_helper.to_array(t) for t in architecture.model.graph.initializer}
        feeds = {}
        for variable in (*architecture.inputs, *architecture.weights):
            value = given.pop(variable.name, initial.get(variable.name, _middle(variable)))
            feeds[variable.name] = _within(variable, value)
        if given:
            raise ValueError(f"neither inputs nor weights: {', '.join(given)}")
        return feeds


@dataclass(frozen=True, kw_only=True)
class Run:
    """What ONNX Runtime computed.

    Attributes:
        culprits: Nodes whose operands are good and whose output is not, in topological order.
        operands: Least and greatest element of the first operand of the node in question.
    """

    culprits: tuple[str, ...]
    operands: tuple[float, float]


def run(architecture: Architecture, feeds: Mapping[str, Array], node: str, folder: Path) -> Run:
    """Run a model on ONNX Runtime, optimisations off, with its weights as inputs; look at one node's first operand."""
    model = onnx.ModelProto()
    model.CopyFrom(architecture.model)
    free = {variable.name for variable in architecture.weights}
    kept = [t for t in model.graph.initializer if t.name not in free]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    for variable in architecture.weights:
        model.graph.input.append(helper.make_tensor_value_info(variable.name, 1, variable.shape))
    operand = _named(model.graph, node).input[0]
    if operand not in feeds and all(operand != output.name for output in model.graph.output):
        model.graph.output.append(onnx.ValueInfoProto(name=operand))
    path = folder / "model.onnx"
    onnx.save(model, path)
    look = InspectedModel(str(path), Setting(str(folder), Operators(**operator_facts()), threads=1)).look(feeds)
    seen = feeds[operand] if operand in feeds else look.outputs[operand]
    return Run(
        culprits=tuple(finding["node"] for finding in look.findings.values()),
        operands=(float(seen.min()), float(seen.max())),
    )


def ancestors(graph: onnx.GraphProto, node: str) -> set[str]:
    """Return the names of all nodes that a node depends on."""
    made = {output: n for n in graph.node for output in n.output}
    found: dict[str, onnx.NodeProto] = {}
    waiting = [_named(graph, node)]
    while waiting:
        sources = {made[name].name: made[name] for name in waiting.pop().input if name in made}
        new = {name: n for name, n in sources.items() if name not in found}
        found |= new
        waiting += new.values()
    return set(found)


def follows(graph: onnx.GraphProto, path: tuple[str, ...], node: str) -> bool:
    """Whether some input of the graph reaches a node through exactly these operators, the node's own last."""
    made = {output: n for n in graph.node for output in n.output}
    end = _named(graph, node)
    reached = [end] if path and path[-1] == end.op_type else []
    for operator in reversed(path[:-1]):
        before = {made[name].name: made[name] for n in reached for name in n.input if name in made}
        reached = [n for n in before.values() if n.op_type == operator]
    inputs = {value.name for value in graph.input}
    return any(name in inputs for n in reached for name in n.input)


def one_hot(shape: Iterable[int], index: int) -> Array:
    """Return an array that is 1 at a position of its last axis and 0 elsewhere."""
    labels = np.zeros(tuple(shape), np.float32)
    labels[..., index] = 1.0
    return labels


def all_triggers() -> dict[str, Trigger]:
    """Return the triggers of all modules here.

    Raises:
        ValueError: Two modules have a trigger for the same defect.
    """
    found: dict[str, Trigger] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("triggers_"):
            table = importlib.import_module(f"tests.zoo.{module.name}").TRIGGERS
            if twice := found.keys() & table.keys():
                raise ValueError(f"{module.name}: there is a trigger for {', '.join(sorted(twice))} already")
            found |= table
    return found


def _named(graph: onnx.GraphProto, name: str) -> onnx.NodeProto:
    node: onnx.NodeProto = next(n for n in graph.node if n.name == name)
    return node


def _middle(variable: BoxedVariable) -> float:
    middle = (variable.low + variable.high) / 2
    return middle if variable.dtype.startswith("float") else float(int(middle))


def _within(variable: BoxedVariable, value: ArrayLike) -> Array:
    exact = np.broadcast_to(np.asarray(value, np.float64), variable.shape)
    array: Array = exact.astype(variable.dtype, order="C")
    low, high = (np.asarray(bound, np.float64).astype(variable.dtype) for bound in (variable.low, variable.high))
    if not ((array >= low) & (array <= high)).all():
        raise ValueError(f"{variable.name}: {exact.min():g} to {exact.max():g} leaves [{low:g}, {high:g}]")
    return array
