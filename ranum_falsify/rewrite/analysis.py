"""Analyses: passes that look at a model and change nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir


class AnalysisPass(ABC):
    """A pass that changes nothing; what it finds is told, and known to the passes after it.

    Attributes:
        state: What analyses before it found, by the name of the pass.
    """

    state: Mapping[str, Any] = {}

    @abstractmethod
    def analyse(self, model: ir.Model) -> Any:
        """Return what is found, made of numbers, texts, lists and mappings, as JSON holds them."""
