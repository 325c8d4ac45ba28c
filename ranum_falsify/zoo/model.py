"""Entries of the zoo: models with their defects, their properties, and what the developers of the programs did."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

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


_HEAD = '''"""{summary}

    ranum-falsify {name}.py --network N {name}.onnx
"""

from dnnv.properties import *

from ranum_falsify.properties import *

N = Network("N")

'''


_LABELS = ("y", "y_", "label", "labels", "oh", "y_true")
"""Inputs that are labels, one-hot in training."""


def property_text(
    name: str,
    architecture: Architecture,
    *,
    summary: str,
    gradient: bool = False,
    parts: Sequence[str] | None = None,
) -> str:
    """Return a DNNP property over all inputs and weights of an architecture.

    Args:
        name: Name of the file, without suffix.
        architecture: The model that the property is about.
        summary: First line of the file.
        gradient: Whether derivatives must be finite too.
        parts: For each output, how the names of those weights begin whose loss it is; if empty, all outputs are of
            all; None where nothing is trained.
    """
    variables = [*architecture.inputs, *architecture.weights]
    names = [_identifier(v.name) for v in variables]
    bounds = [f"{v.low!r} <= {name} <= {v.high!r}" for name, v in zip(names, variables, strict=True)]
    network = "N"
    if architecture.weights:
        loss = "" if parts is None else f", loss={_loss(architecture, parts)}"
        network = f"free(N, {_list(v.name for v in architecture.weights)}{loss})"
    applied = f"{network}({', '.join(names)})"
    goal = f"no_invalid_input({applied}, gradient=True)" if gradient else f"no_invalid_input({applied})"
    lines = [f"{'    ' * depth}Forall(\n{'    ' * (depth + 1)}{n}," for depth, n in enumerate(names)]
    inner = "    " * len(names)
    condition = f"And({', '.join(bounds)})" if len(bounds) > 1 else bounds[0]
    lines.append(f"{inner}Implies(\n{inner}    {condition},\n{inner}    {goal},\n{inner}),")
    lines += [f"{'    ' * depth})," for depth in reversed(range(1, len(names)))]
    return _HEAD.format(summary=summary, name=name) + "\n".join([*lines, ")"]) + "\n"


def _identifier(name: str) -> str:
    """Return a tensor's name as a variable name that clashes with no word of DNNP."""
    word = re.sub(r"\W", "_", name)
    return f"{word}_" if word in ("N", "And", "Or", "free") else word


def _loss(architecture: Architecture, parts: Sequence[str]) -> str:
    words = [_list(output.name for output in architecture.model.graph.output)]
    labels = [v.name for v in architecture.inputs if v.name in _LABELS]
    words += [f"{key}=[{_list(names)}]" for key, names in (("one_hot", labels), ("parts", parts)) if names]
    return f"loss({', '.join(words)})"


def _list(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


Optimizer = Literal["SGD", "Momentum", "Adam", "Adagrad", "RMSProp"]
"""Optimisers of the programs, as TensorFlow 1 and PyTorch call them; what is not said has their defaults."""


class Build(Protocol):
    """Adds an architecture to a model; `safe` is the repaired one."""

    def __call__(self, g: ArchitectureBuilder, *, safe: bool) -> None:
        """See the modules of :mod:`ranum_falsify.zoo.architectures`."""


@dataclass(frozen=True, kw_only=True)
class Defect:
    """A documented defect.

    Attributes:
        id: Its number in RANUM's study; in that of the Soft Assertion Fuzzer, with `saf` before it.
        node: The node that receives invalid input.
        operator: Its ONNX operator.
        mechanism: How that happens, in a sentence.
        gradient: Whether the output stays finite and only the derivative does not.
        same: Other nodes with the same defect, where the study documents several instances as one.
        of_ranum: Nodes that RANUM's tests are about where these are others.
        developer_fix: What the developers did, None where nothing is recorded; the catalogue fills it in.
    """

    id: str
    node: str
    operator: str
    mechanism: str
    gradient: bool = False
    same: tuple[str, ...] = ()
    of_ranum: tuple[str, ...] = ()
    developer_fix: DeveloperFix | None = None


@dataclass(frozen=True)
class Training:
    """How a program trains its model.

    Attributes:
        optimizer: The optimiser.
        learning_rate: Its learning rate, at first.
        batch: Samples of a step.
        loss: What is made small, which is the model's output, in words.
        momentum: Of `Momentum`.
        epsilon: Of `RMSProp`; None for the framework's.
        centered: Whether `RMSProp` subtracts the mean of the gradients.
        decay: The factor by which the learning rate falls after every `decay_steps` steps.
        decay_steps: See `decay`.
        note: What the above does not say; else empty.
        parts: For each output, how the names of those weights begin whose loss it is; else all outputs are of all.
    """

    optimizer: Optimizer
    learning_rate: float
    batch: int
    loss: str
    momentum: float = 0.0
    epsilon: float | None = None
    centered: bool = False
    decay: float = 1.0
    decay_steps: int = 1
    note: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ZooModel:
    """A program's model.

    Attributes:
        id: The id of its defect, or the common part of its defects' ids.
        program: Name of the program.
        framework: The framework that it was written for.
        build: Builds it.
        defects: Its documented defects.
        repair: The change in the safe twin.
        training: How the program trains it, None if it does not; :mod:`ranum_falsify.zoo.catalogue` fills it in.
        of_ranum: Builds the graph that RANUM analysed, where that is another.
    """

    id: str
    program: str
    framework: Literal["tf", "torch", "numpy"]
    build: Build
    defects: tuple[Defect, ...]
    repair: str
    training: Training | None = None
    of_ranum: Build | None = None

    @property
    def number(self) -> int:
        """The program's number: 1 to 63, or 1 to 15 of those of the fuzzer."""
        return int(re.search(r"\d+", self.id)[0])  # type: ignore[index]

    @property
    def gradient(self) -> bool:
        """Whether its property demands finite derivatives."""
        return any(defect.gradient for defect in self.defects)

    def architecture(
        self,
        *,
        safe: bool = False,
        batch: int = 1,
        documented: bool = False,
        seed: int | None = None,
        drawn: bool = True,
        of_ranum: bool = False,
    ) -> Architecture:
        """Build the model.

        Args:
            safe: Whether to build its repaired twin.
            batch: Batch size, where the program leaves it open.
            documented: Whether inputs range over the program's data, also where the zoo widens that.
            seed: What initial weights are drawn from; the program's number by default.
            drawn: Whether they are drawn; else they are 0, which is enough, and faster, where only ranges matter.
            of_ranum: Whether to build the graph that RANUM analysed.
        """
        ids = ", ".join(defect.id for defect in self.defects)
        summary = f"{self.program}, repaired: {self.repair}" if safe else f"{self.program}, with defect {ids}"
        if drawn and seed is None:
            seed = self.number
        builder = ArchitectureBuilder(
            self.file_name(safe=safe), summary, batch=batch, seed=seed if drawn else None, documented=documented
        )
        build = self.of_ranum if of_ranum and self.of_ranum is not None else self.build
        build(builder, safe=safe)
        return builder.architecture()

    def developer_architecture(self, defect: Defect) -> Architecture | None:
        """Build the model with the change that the developers made for a defect; None where no change is known."""
        fix = defect.developer_fix
        if fix is None or not fix.changes_graph:
            return None
        if fix.build is None:
            return guard_operands(self.architecture(safe=fix.fused), fix.guards)
        summary = f"{self.program}, as its developers changed it: {fix.detail}"
        builder = ArchitectureBuilder(f"{self.id}.developers", summary, seed=self.number)
        fix.build(builder)
        return builder.architecture()

    def file_name(self, *, safe: bool = False) -> str:
        """Return the name of its files, without suffix."""
        return f"{self.id}.safe" if safe else self.id

    def property_text(self, architecture: Architecture, *, safe: bool = False) -> str:
        """Return the property that no operator receives invalid input."""
        summary = f"No operator of {self.program} receives invalid input, whatever its inputs and weights."
        parts = None if self.training is None else self.training.parts
        name = self.file_name(safe=safe)
        return property_text(name, architecture, summary=summary, gradient=self.gradient, parts=parts)
