"""What the tests of the zoo share: a model of the catalogue and its twin, built, reduced and analysed once."""

from __future__ import annotations

from ranum_falsify.lazy import cached_property
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.detect import Detection, analysis_of, problem_of
from ranum_falsify.zoo.model import ZooModel

__all__ = ["Pair"]


class Pair:
    """A model and its repaired twin; where there are two, the second is the twin's.

    Attributes:
        model: The model.
        architectures: Both, built.
    """

    def __init__(self, model: ZooModel) -> None:
        self.model = model
        self.architectures: tuple[Architecture, Architecture] = (model.architecture(), model.architecture(safe=True))

    @property
    def faulty(self) -> Architecture:
        """The model as the program has it."""
        return self.architectures[False]

    @property
    def repaired(self) -> Architecture:
        """Its twin."""
        return self.architectures[True]

    @cached_property
    def of_data(self) -> Architecture:
        """The model whose inputs range over the program's data."""
        return self.model.architecture(documented=True) if self.faulty.widened else self.faulty

    @cached_property
    def problems(self) -> tuple[Problem, Problem]:
        """What their properties become."""
        faulty, repaired = (problem_of(self.model, self.architectures[safe], safe=safe) for safe in (False, True))
        return faulty, repaired

    @cached_property
    def detection(self) -> Detection:
        """What the analysis says of them."""
        faulty, repaired = (analysis_of(self.model, self.problems[safe], safe=safe) for safe in (False, True))
        return Detection(faulty=faulty, repaired=repaired)
