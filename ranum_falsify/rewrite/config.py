"""What a transformation is asked for, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ranum_falsify.rewrite.checks.comparing import Tolerance
from ranum_falsify.rewrite.checks.inputs import Box


@dataclass(frozen=True)
class Reference:
    """Inputs that the user gives, and what comes out.

    Attributes:
        inputs: Arrays in the order of the model's inputs, or by name.
        outputs: Arrays in the order of the model's outputs, or by name; empty where they are the model's own matter.
    """

    inputs: Sequence[np.ndarray] | Mapping[str, np.ndarray]
    outputs: Sequence[np.ndarray] | Mapping[str, np.ndarray] = ()


@dataclass(frozen=True, kw_only=True)
class TransformConfig:
    """How passes are verified.

    Attributes:
        references: Inputs that the user gives.
        samples: How many further inputs are drawn; None for 64, or as many as run in 0.4 s of a core, at least 8.
        seed: Seed of the draws.
        box: Where inputs lie; those that are not in it range over a quarter of what their element type holds.
        dims: Sizes of symbolic dimensions; where none is given, several with which the model runs.
        tolerance: For passes with the guarantee `tolerance`.
        metrics: Least and greatest value by metric, for passes with the guarantee `metric`.
        model_checker: Whether the ONNX checker must accept each model, if it accepts the first.
        threads: ONNX Runtime's threads.
        timeout: Seconds that ONNX Runtime may take for each run.
        providers: ONNX Runtime's execution providers, in order of preference; by default the CPU.
        verify_timeout: Seconds for the proof and the search after each pass, 0 for none; None for 5 where all inputs
            have a range.
        state: What analyses of earlier runs found, by the name of the pass.
    """

    references: Sequence[Reference] = ()
    samples: int | None = None
    seed: int = 0
    box: Box = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)
    metrics: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    model_checker: bool = True
    threads: int = 1
    timeout: float = 60.0
    providers: Sequence[str] = ()
    verify_timeout: float | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
