"""Settings of a run, as frozen values that are passed as arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Reach", "SearchConfig"]

Reach = Literal["output", "masked"]
"""Whether a violation shows at an output of the network, or a later operator swallows it."""


_ENDLESS_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How to search for a counterexample.

    Attributes:
        n_starts: Starting points per target, run as one batch; negative for as many as time allows.
        n_steps: Descent steps from each start.
        seed: Seed of every random choice; the same seed on the same device gives the same answer.
        timeout: Seconds for the search, None for no limit.  Where it cuts the search off, the answer depends on the
            machine's speed.
        device: torch device, such as `cpu` or `cuda`.
        backend: Attack back ends, tried in order: `pgd` (ours), `dnnf.pgd`, `foolbox.X`, `cleverhans.X`.
        parameters: Settings of back ends, by back end and name.
        reach: Report only violations of this reach, None for all.
        processors: Threads for torch and ONNX Runtime, None for all cores.
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

    @property
    def batch(self) -> int:
        """Starts of one round: all of them, or a fixed number where there are as many rounds as time allows."""
        return self.n_starts if self.n_starts >= 0 else _ENDLESS_BATCH
