"""The search of this project, as run by the command, without reading and reduction."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from lab.bench.case import Case
from ranum_falsify.config import SearchConfig
from ranum_falsify.network import read
from ranum_falsify.process.deadline import NEVER
from ranum_falsify.properties.language.parse import parse_dnnp
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.verify.replay.confirmer import Confirmer
from ranum_falsify.verify.search.clauses import ClauseSearch
from ranum_falsify.verify.search.converter import convert
from ranum_falsify.verify.search.search import Budget, SearchContext

__all__ = ["CPU", "OurRun"]

CPU = torch.device("cpu")


class OurRun:
    """Searches of one case on a device, whose network is read and converted once.

    A context manager; leaving it ends the child process for replays.
    """

    def __init__(self, case: Case, starts: int, device: torch.device = CPU) -> None:
        self._starts, self._device = starts, device
        graph = read(case.model)
        self._problem = reduce(parse_dnnp(case.property_text, Path("property.py")), {"N": graph})
        self._model = convert(graph).to(device)
        self._confirmer = Confirmer([graph])

    @property
    def mode(self) -> str:
        """How samples are batched: `along` dimension 0, by `vmap`, or in a `loop`."""
        return "along" if self._model.batches else "vmap" if self._model.separable else "loop"

    def __enter__(self) -> Self:
        self._confirmer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._confirmer.__exit__(kind, error, traceback)

    def seconds(self, steps: int) -> float:
        """Return the time of one search, without replays on ONNX Runtime.

        Raises:
            AssertionError: Steps are missing, or a violation was found although the property holds.
        """
        config = SearchConfig(n_starts=self._starts, n_steps=steps, timeout=None, prove=False)
        budget = Budget(NEVER)
        models = [self._model] * len(self._problem.calls)
        began = time.perf_counter()
        context = SearchContext(self._problem, config, models, self._confirmer, budget, self._device, lambda _: None)
        search = ClauseSearch(context)
        search.run()
        elapsed = time.perf_counter() - began - budget.replay_seconds
        assert search.counterexample is None, "the property holds"
        assert budget.steps == steps, f"{budget.steps} of {steps} steps were made"
        return elapsed
