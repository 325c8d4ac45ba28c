"""Settings of a run, as frozen values that are passed as arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "RUNTIMES",
    "ConfirmConfig",
    "HalfPrecision",
    "Optimisations",
    "ProveConfig",
    "Reach",
    "Runtime",
    "SearchConfig",
]

Runtime = str
RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "torch", "exact")
"""ONNX Runtime on the CPU, PyTorch on the CPU, and an evaluation that rounds correctly."""

Reach = Literal["output", "masked"]
"""Whether a violation shows at an output of the network, or a later operator swallows it."""

Optimisations = Literal["any", "off", "default"]
"""Which graph optimisations of ONNX Runtime a violation shows with: any, none, those of the default level."""

HalfPrecision = Literal["float16", "bfloat16"]
"""Element types that a network may be converted to."""

_ENDLESS_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class ProveConfig:
    """How to prove.

    Attributes:
        timeout: Seconds for everything beyond one interval analysis: linear bounds and splitting of the inputs' box.
            They come after a first round of the search, and end with the whole run's timeout.
        runtimes: Runtimes that a proof must cover.
    """

    timeout: float = 10.0
    runtimes: tuple[Runtime, ...] = RUNTIMES


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How to look for a counterexample, or for a proof that there is none.

    Attributes:
        n_starts: Starting points per target, run as one batch; negative for as many as time allows.
        n_steps: Descent steps from each start.
        seed: Seed of every random choice; the same seed on the same device gives the same answer.
        timeout: Seconds for proof and search, None for no limit.  If it cuts them off, the answer depends on the
            machine's speed.
        device: torch device, such as `cpu` or `cuda`.
        backend: Attack back ends, tried in order: `pgd` (ours), `dnnf.pgd`, `foolbox.X`, `cleverhans.X`.
        parameters: Settings of back ends, by back end and name.
        reach: Report only violations of this reach, None for all.
        processors: Threads for torch and ONNX Runtime, None for all cores.
        prove: How to prove, before searching; None for a search alone.
    """

    n_starts: int = 100
    n_steps: int = 100
    seed: int = 0
    timeout: float | None = 45.0
    device: str = "cpu"
    backend: tuple[str, ...] = ("pgd",)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reach: Reach | None = None
    processors: int | None = None
    prove: ProveConfig | None = field(default_factory=ProveConfig)

    @property
    def batch(self) -> int:
        """Starts of one round: all of them, or a fixed number if there are as many rounds as time allows."""
        return self.n_starts if self.n_starts >= 0 else _ENDLESS_BATCH


@dataclass(frozen=True, kw_only=True)
class ConfirmConfig:
    """How to make unit tests.

    Attributes:
        runs: Tests per operator, each from a seed of its own.
        seed: Seed of the first run; the others count up.
        timeout: Seconds for the search of one run, and the same again for its span.
        nodes: Operators to make tests for, by name; None for all that are not proved.
        descend: Whether gradients guide the search; else it only draws points at random, for comparison.
        span: Whether a span around each test is proved.
        device: torch device.
        processors: Threads for torch and ONNX Runtime, None for all cores.
    """

    runs: int = 10
    seed: int = 0
    timeout: float = 10.0
    nodes: tuple[str, ...] | None = None
    descend: bool = True
    span: bool = True
    device: str = "cpu"
    processors: int | None = None
