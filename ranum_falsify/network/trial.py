"""A trial: ONNX Runtime runs a network on a few inputs, as users do.

That a model loads does not say that it runs: kernels may refuse types, attributes or shapes when they get them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import psutil
from google.protobuf.message import EncodeError

from ranum_falsify.errors import is_out_of_memory
from ranum_falsify.network.blackbox import seconds_left
from ranum_falsify.network.child import Child, ChildDeathError
from ranum_falsify.network.graph import Graph
from ranum_falsify.network.messages import tidy_message
from ranum_falsify.network.optimised import model_with_all_inputs, optimiser
from ranum_falsify.network.tensors import stored_once

__all__ = ["TrialError", "TrialRunner"]

_SECONDS = 60.0
_SHARE = 0.7
"""Share of the time that is left which a run may take: the rest is for what follows from it."""

_MEMORY, _FACTOR = 2**30, 16
"""Bytes of memory for a small model, and for a large one as a multiple of its size; tensors come on top.

There may be more, up to half of what is free: what a loop collects takes many times the bytes of its numbers.
"""
_MOST = 2**32
"""Bytes beyond which a small model takes too much, however many are free."""


class TrialError(Exception):
    """ONNX Runtime does not run a network on some inputs; the message says why, to follow its name.

    Attributes:
        is_limit: Whether it is only that time or memory does not suffice.
    """

    def __init__(self, message: str, *, is_limit: bool = False) -> None:
        super().__init__(message)
        self.is_limit = is_limit


class TrialRunner:
    """Runs a network on one input after the other, in a context, in which ONNX Runtime loads it at most once.

    Args:
        graph: The network.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._uses = ExitStack()
        self._child: Child | None = None
        self._memory = 0

    def __enter__(self) -> TrialRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._uses.close()

    def run(self, feeds: Mapping[str, np.ndarray], *, seconds: float = math.inf) -> Mapping[str, np.ndarray]:
        """Return the outputs that are tensors of numbers, by name.

        Args:
            feeds: An array for each input, by name.
            seconds: How long it may take at most.

        Raises:
            TrialError: ONNX Runtime refuses, crashes, or takes too much time or memory.
        """
        arrays = {**feeds, **self._graph.options.fixed}
        seconds = min(_SECONDS, seconds, _SHARE * max(0.0, seconds_left()))
        try:
            given = {name: (stored_once(array), array.shape) for name, array in arrays.items()}
            answer = self._ask(self._load(seconds), "run", {"feeds": given}, seconds)
        except ChildDeathError as error:
            raise TrialError(_describe_death(error, seconds), is_limit=error.late or error.full) from error
        except (EncodeError, ValueError, OSError) as error:
            raise TrialError(f"cannot be given it ({error})") from error
        details = zip(self._graph.output_names, self._graph.output_details, strict=True)
        dtypes = {name: np.dtype(one.dtype) for name, one in details}
        return {name: _restore(array, dtypes[name]) for name, array in answer.items() if name in dtypes}

    def _load(self, seconds: float) -> Child:
        """Return the child that has loaded the network."""
        if self._child is not None and not self._child.is_closed:
            return self._child
        self._uses.close()
        child = self._uses.enter_context(optimiser.use())
        source = child.folder / "trial.onnx"
        try:
            source.write_bytes(model_with_all_inputs(self._graph).SerializeToString())
            needed = max(_MEMORY, _FACTOR * source.stat().st_size) + _size_of_tensors(self._graph)
            self._memory = max(needed, min(psutil.virtual_memory().available // 2, _MOST))
            self._ask(child, "load", {"source": str(source)}, seconds)
        finally:
            with suppress(OSError):
                source.unlink(missing_ok=True)
        self._uses.callback(_unload, child)
        self._child = child
        return child

    def _ask(self, child: Child, command: str, argument: Mapping[str, Any], seconds: float) -> Any:
        kind, answer = child.ask(command, argument, timeout=seconds, memory=self._memory)
        if kind != "ok":
            full = is_out_of_memory(RuntimeError(answer))
            raise TrialError(f"does not run it: {tidy_message(answer)}", is_limit=full)
        return answer


def _unload(child: Child) -> None:
    if not child.is_closed:
        with suppress(ChildDeathError):
            child.ask("unload", {}, timeout=_SECONDS)


def _restore(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return an array that came as its bits, where NumPy itself lacks the type, in that type."""
    return array.view(dtype) if dtype.kind == "V" else array


def _size_of_tensors(graph: Graph) -> int:
    return sum(math.prod(details.shape) * np.dtype(details.dtype).itemsize for details in graph.details.values())


def _describe_death(error: ChildDeathError, seconds: float) -> str:
    if error.full:
        return "needs too much memory to run it"
    if not error.late:
        return "crashes when it runs it"
    late = f"does not run it within {seconds:.2g} s"
    return late if seconds == _SECONDS else f"{late}, the time that was left for this trial; allow more (--timeout)"
