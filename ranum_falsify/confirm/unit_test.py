"""Unit tests as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ranum_falsify.config import Runtime, ViolationKind

__all__ = ["OperatorTests", "Span", "Trigger", "UnitTest"]


@dataclass(frozen=True, kw_only=True)
class Span:
    """A box of inputs and weights in which every point makes the operator invalid.

    Attributes:
        lower: Least value of each input of the network, by ONNX name.
        upper: Greatest value.
        radius: Its reach on each side, as a share of the width of the property's box, fixed elements aside.
        fixed: Share of the elements, of all that have a range, that keep their value.
        runtimes: Runtimes that the proof covers.
    """

    lower: Mapping[str, np.ndarray]
    upper: Mapping[str, np.ndarray]
    radius: float
    fixed: float
    runtimes: tuple[Runtime, ...]


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """Inputs and weights that ONNX Runtime has confirmed to make an operator invalid.

    Attributes:
        feeds: One array per input of the network (weights and random draws among them), by ONNX name.
        kind: What comes out; `error` and `crash` where integers have no quotient, `gradient` is a derivative that is
            not finite.
        tensor: The tensor in question: the operator's output, or, for a derivative, the operand.
        index: Position of the offending element in it.
        alone: Whether no earlier operator is invalid too.
        oracle: Who saw it; the reference evaluator where ONNX Runtime hides NaN, as in LSTM and GRU, and
            `autograd-flushed` where a derivative is not finite only with denormal numbers flushed to 0.
    """

    feeds: Mapping[str, np.ndarray]
    kind: ViolationKind
    tensor: str
    index: tuple[int, ...]
    alone: bool
    oracle: Literal["onnxruntime", "reference", "autograd", "autograd-flushed"]

    @property
    def flushed(self) -> bool:
        """Whether it shows only if denormal numbers are replaced by 0."""
        return self.oracle == "autograd-flushed"


@dataclass(frozen=True, kw_only=True)
class UnitTest(Trigger):
    """A trigger, and what is known about its surroundings.

    Attributes:
        seed: Seed of the search.
        span: A box around it, None where none was proved.
        seconds: Time to `search`, `replay` and prove the `span`.
    """

    seed: int
    span: Span | None
    seconds: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class OperatorTests:
    """The unit tests of one operator.

    Attributes:
        network: Name of the network.
        node: Name of the operator.
        op_type: ONNX operator.
        condition: What its operands and outputs must satisfy.
        output: Its first output tensor, by ONNX name.
        runs: How many tests were wanted.
        tests: Those that trigger.
        seconds: Time of every run.
    """

    network: str
    node: str
    op_type: str
    condition: str
    output: str
    runs: int
    tests: tuple[UnitTest, ...]
    seconds: tuple[float, ...]
