"""Entries of the zoo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol

from ranum_falsify.zoo.builder import Architecture, ArchitectureBuilder
from ranum_falsify.zoo.property_file import property_text

__all__ = ["Build", "Defect", "ZooModel"]


class Build(Protocol):
    """Adds an architecture to a model; `safe` is the repaired one."""

    def __call__(self, g: ArchitectureBuilder, *, safe: bool) -> None:
        """See the modules of :mod:`ranum_falsify.zoo.architectures`."""


@dataclass(frozen=True, kw_only=True)
class Defect:
    """A documented defect.

    Attributes:
        id: Its number in RANUM's study.
        node: The node that receives invalid input.
        operator: Its ONNX operator.
        mechanism: How that happens, in a sentence.
        gradient: Whether the output stays finite and only the derivative does not.
    """

    id: str
    node: str
    operator: str
    mechanism: str
    gradient: bool = False


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
    """

    id: str
    program: str
    framework: Literal["tf", "torch"]
    build: Build
    defects: tuple[Defect, ...]
    repair: str

    @property
    def number(self) -> int:
        """The program's number, 1 to 63."""
        return int(re.match(r"\d+", self.id)[0])  # type: ignore[index]

    @property
    def gradient(self) -> bool:
        """Whether its property demands finite derivatives."""
        return any(defect.gradient for defect in self.defects)

    def architecture(self, *, safe: bool = False, batch: int = 1) -> Architecture:
        """Build the model, or its safe twin."""
        ids = ", ".join(defect.id for defect in self.defects)
        summary = f"{self.program}, repaired: {self.repair}" if safe else f"{self.program}, with defect {ids}"
        builder = ArchitectureBuilder(self.file_name(safe=safe), summary, batch=batch, seed=self.number)
        self.build(builder, safe=safe)
        return builder.architecture()

    def file_name(self, *, safe: bool = False) -> str:
        """Return the name of its files, without suffix."""
        return f"{self.id}.safe" if safe else self.id

    def property_text(self, architecture: Architecture, *, safe: bool = False) -> str:
        """Return the property that no operator receives invalid input."""
        summary = f"No operator of {self.program} receives invalid input, whatever its inputs and weights."
        return property_text(self.file_name(safe=safe), architecture, summary=summary, gradient=self.gradient)
