"""Entries of the zoo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol

from ranum_falsify.zoo.builder import Architecture, ArchitectureBuilder
from ranum_falsify.zoo.developer import DeveloperFix, guard_operands
from ranum_falsify.zoo.property_file import property_text

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
