"""A trial: ONNX Runtime runs a network once, as users do.

That a model loads does not say that it runs: kernels may refuse types, attributes or shapes when they get them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import psutil
from google.protobuf.message import EncodeError

from ranum_falsify.network.blackbox import seconds_left
from ranum_falsify.network.child import Child, ChildDeathError
from ranum_falsify.network.graph import Graph
from ranum_falsify.network.messages import tidy_message
from ranum_falsify.network.optimised import model_with_all_inputs, optimiser

__all__ = ["TrialError", "run_once"]

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
    """ONNX Runtime does not run a network on some inputs; the message says why, to follow its name."""


_Arrays = Mapping[str, np.ndarray]
_latest: WeakKeyDictionary[Graph, tuple[_Arrays, _Arrays]] = WeakKeyDictionary()
"""The inputs of the last run of a graph, and what it gave."""


def run_once(graph: Graph, feeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Return the outputs of a network that are tensors of numbers, by name.

    A graph that has just run on the same inputs does not run again.

    Args:
        graph: The network.
        feeds: An array for each of its inputs, by name.

    Raises:
        TrialError: ONNX Runtime refuses, crashes, or takes too much time or memory.
    """
    given = {**feeds, **graph.options.fixed}
    arrays = {name: np.array(array, order="C") for name, array in given.items()}  # copies, which nobody changes
    known = _latest.get(graph)
    if known is None or not _are_same(known[0], arrays):
        # Other threads may run the graph on other inputs: what is returned is not read from there again.
        known = _latest[graph] = arrays, _run(graph, arrays)
    return known[1]


def _are_same(these: _Arrays, those: _Arrays) -> bool:
    """Tell whether all bits of the arrays of two runs are equal: a zero may differ from a negative zero."""
    pairs = ((array, those[name]) for name, array in these.items())
    return all(a.dtype == b.dtype and a.shape == b.shape and np.array_equal(_bits(a), _bits(b)) for a, b in pairs)


def _bits(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.hasobject else array.reshape(-1).view(np.uint8)


def _run(graph: Graph, arrays: _Arrays) -> _Arrays:
    seconds = min(_SECONDS, _SHARE * max(0.0, seconds_left()))
    try:
        with optimiser.use() as child:
            kind, answer = _run_in(child, graph, arrays, seconds)
    except ChildDeathError as error:
        raise TrialError(_describe_death(error, seconds)) from error
    except (EncodeError, ValueError, OSError) as error:
        raise TrialError(f"cannot be given it ({error})") from error
    if kind != "ok":
        raise TrialError(f"does not run it: {tidy_message(answer)}")
    dtypes = {name: np.dtype(d.dtype) for name, d in zip(graph.output_names, graph.output_details, strict=True)}
    return {name: _restore(array, dtypes[name]) for name, array in answer.items() if name in dtypes}


def _run_in(child: Child, graph: Graph, arrays: _Arrays, seconds: float) -> tuple[str, Any]:
    source = child.folder / "trial.onnx"
    try:
        source.write_bytes(model_with_all_inputs(graph).SerializeToString())
        needed = max(_MEMORY, _FACTOR * source.stat().st_size) + _size_of_tensors(graph)
        memory = max(needed, min(psutil.virtual_memory().available // 2, _MOST))
        return child.ask("run", {"source": str(source), "feeds": arrays}, timeout=seconds, memory=memory)
    finally:
        with suppress(OSError):
            source.unlink(missing_ok=True)


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
