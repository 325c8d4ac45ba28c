"""Outcomes of passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from ranum_falsify.rewrite.rewrite import Refusal
from ranum_falsify.rewrite.verify import Guarantee


@dataclass(frozen=True, kw_only=True)
class PassReport:
    """What a pass did, and how that was verified.

    Attributes:
        name: The pass.
        guarantee: What it promises.
        is_modified: Whether it changed the model.
        replaced: How many matches it replaced, None for a pass over the whole graph.
        refusals: Nodes that it left, with the reasons.
        verified: How it was verified, cheapest first: `structure`, `sampled 64`.
        largest: The largest difference of an output on samples.
        seconds: How long it took, verification included.
        found: What an analysis found, None for other passes.
    """

    name: str
    guarantee: Guarantee
    is_modified: bool
    replaced: int | None = None
    refusals: Sequence[Refusal] = ()
    verified: Sequence[str] = ()
    largest: float = 0.0
    seconds: float = 0.0
    found: Any = None


@dataclass(frozen=True, kw_only=True)
class Transformed:
    """A model after passes that were all verified.

    Attributes:
        model: The model.
        reports: What each pass did.
        notices: What to know of the verification as a whole.
        state: What analyses found, by the name of the pass, and what was known before.
    """

    model: ir.Model
    reports: Sequence[PassReport]
    notices: Sequence[str] = ()
    state: Mapping[str, Any] = field(default_factory=dict)


class VerificationError(Exception):
    """What a pass promised and did not keep, in one line.

    Attributes:
        inputs: Inputs that show it, None where none are needed to see it.
    """

    def __init__(self, what: str, inputs: Mapping[str, np.ndarray] | None = None) -> None:
        super().__init__(what)
        self.inputs = inputs


class PostconditionError(Exception):
    """A pass whose model is not what it promised; the cause is a `VerificationError`.

    Attributes:
        name: The pass.
        checkpoint: The model before it.
        reports: What the passes before it did.
    """

    def __init__(self, name: str, *, checkpoint: ir.Model, reports: Sequence[PassReport]) -> None:
        super().__init__(f"post-condition of pass {name!r} failed")
        self.name = name
        self.checkpoint = checkpoint
        self.reports = reports
