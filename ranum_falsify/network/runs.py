"""ONNX Runtime runs a network on a few inputs: as users do, and with all tensors exposed.

That a model loads does not say that it runs: kernels may refuse types, attributes or shapes when they get them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import psutil
from google.protobuf.message import EncodeError

from ranum_falsify.errors import is_out_of_memory
from ranum_falsify.network.blackbox import seconds_left
from ranum_falsify.network.graph import Graph
from ranum_falsify.network.messages import tidy_message
from ranum_falsify.network.optimised import model_with_all_inputs, optimiser
from ranum_falsify.network.tensors import stored_once
from ranum_falsify.process.child import Child, ChildDeathError

Level = Literal["default", "written", "optimised"]
"""A model as users run it; unoptimised; or what the optimiser made of it, run as it is."""

Point = Mapping[str, np.ndarray]

_SECONDS = 60.0
_SHARE = 0.7
"""Share of the time that is left which a run may take: the rest is for what follows from it."""

_MEMORY, _FACTOR = 2**30, 16
"""Bytes of memory for a small model, and for a large one as a multiple of its size; tensors come on top.

There may be more, up to half of what is free: what a loop collects takes many times the bytes of its numbers.
"""
_MOST = 2**32
"""Bytes beyond which a small model takes too much, however many are free."""


class RunError(Exception):
    """ONNX Runtime does not run a network on some inputs; the message says why, to follow its name.

    Attributes:
        is_limit: Whether it is only that time or memory does not suffice.
    """

    def __init__(self, message: str, *, is_limit: bool = False) -> None:
        super().__init__(message)
        self.is_limit = is_limit


@dataclass(frozen=True)
class ModelRuns:
    """What a model gives on the first of some points.

    Attributes:
        values: By name of the tensor, its value on each of them, `(count, *shape)`, or a list where shapes differ.
        count: How many there are.
        refusal: Why it does not run on the next one; None where that was not tried.
        seconds: Processor time of the runs, and of loading the model if it was.
    """

    values: Mapping[str, np.ndarray | Sequence[np.ndarray]]
    count: int
    refusal: RunError | None = None
    seconds: float = 0.0


class ModelRunner:
    """Runs a network on points, in a context, in which ONNX Runtime loads it at most once for each level.

    Args:
        graph: The network.
        optimised: What ONNX Runtime's optimiser makes of it; None if that is not known, or the same.
    """

    def __init__(self, graph: Graph, optimised: Graph | None = None) -> None:
        self._graphs: Mapping[Level, Graph | None] = {"default": graph, "written": graph, "optimised": optimised}
        self._uses = ExitStack()
        self._child: Child | None = None
        self._loaded: set[Level] = set()
        self._contents: dict[int, bytes] = {}
        self._memory = 0

    def __enter__(self) -> ModelRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._uses.close()

    def run(
        self,
        points: Sequence[Point],
        *,
        level: Level = "default",
        seconds: float = math.inf,
        patience: float = math.inf,
    ) -> ModelRuns:
        """Return what a model gives on points: its outputs that are tensors of numbers, or all tensors of a bare model.

        Args:
            points: For each point, an array for each input, by name.
            level: Which model.
            seconds: How long it may take at most.
            patience: After how much processor time no further point is begun.

        Raises:
            RunError: ONNX Runtime crashes, does not load the model, or takes too much time or memory.
        """
        graph = self._graphs[level]
        assert graph is not None, "nothing is known of the model"
        seconds = min(_SECONDS, seconds, _SHARE * max(0.0, seconds_left()))
        try:
            given = [
                {name: (stored_once(array), array.shape) for name, array in {**point, **graph.options.fixed}.items()}
                for point in points
            ]
            request = {"name": level, "points": given, "seconds": patience}
            child, loading = self._load(level, graph, seconds)
            values, count, refusal, running = self._ask(child, "run", request, seconds)
        except ChildDeathError as error:
            raise RunError(_describe_death(error, seconds), is_limit=error.late or error.full) from error
        except (EncodeError, ValueError, OSError) as error:
            raise RunError(f"cannot be given it ({error})") from error
        return ModelRuns(values, count, _refuse(refusal) if refusal else None, loading + running)

    def _load(self, level: Level, graph: Graph, seconds: float) -> tuple[Child, float]:
        """Return the child that has loaded a model, and the processor time that this took."""
        child = self._child
        if child is None or child.is_closed:
            self._uses.close()
            self._loaded.clear()
            child = self._child = self._uses.enter_context(optimiser.use())
            self._uses.callback(_unload, child)
        if level in self._loaded:
            return child, 0.0
        source = child.folder / f"{level}.onnx"
        try:
            with source.open("wb") as file:
                file.write(self._content(graph))
                # Messages that are written one after the other are merged: these are further outputs.
                file.write(b"" if level == "default" else _expose(graph))
            needed = max(_MEMORY, _FACTOR * source.stat().st_size) + 2 * find_size(graph)
            self._memory = max(self._memory, needed, min(psutil.virtual_memory().available // 2, _MOST))
            request = {"name": level, "source": str(source), "plain": level != "default"}
            spent: float = self._ask(child, "load", request, seconds)
        finally:
            with suppress(OSError):
                source.unlink(missing_ok=True)
        self._loaded.add(level)
        return child, spent

    def _content(self, graph: Graph) -> bytes:
        if id(graph) not in self._contents:
            self._contents[id(graph)] = model_with_all_inputs(graph).SerializeToString()
        return self._contents[id(graph)]

    def _ask(self, child: Child, command: str, argument: Mapping[str, Any], seconds: float) -> Any:
        kind, answer = child.ask(command, argument, timeout=seconds, memory=self._memory)
        if kind != "ok":
            raise _refuse(answer)
        return answer


def _refuse(message: str) -> RunError:
    return RunError(f"does not run it: {tidy_message(message)}", is_limit=is_out_of_memory(RuntimeError(message)))


def _expose(graph: Graph) -> bytes:
    """Return a message that makes all tensors of a graph's model outputs, where it follows that of the model."""
    own = model_with_all_inputs(graph).graph
    names = dict.fromkeys(name for node in own.node for name in node.output if name)
    shown = {value.name for value in own.output}
    more = onnx.GraphProto(output=[onnx.ValueInfoProto(name=name) for name in names if name not in shown])
    return bytes(onnx.ModelProto(graph=more).SerializeToString())


def _unload(child: Child) -> None:
    if not child.is_closed:
        with suppress(ChildDeathError):
            child.ask("unload", {}, timeout=_SECONDS)


def find_size(graph: Graph) -> int:
    """Return the number of bytes of all tensors of a graph that a run computes."""
    return sum(math.prod(details.shape) * np.dtype(details.dtype).itemsize for details in graph.details.values())


def _describe_death(error: ChildDeathError, seconds: float) -> str:
    if error.full:
        return "needs too much memory to run it"
    if not error.late:
        return "crashes when it runs it"
    late = f"does not run it within {seconds:.2g} s"
    return late if seconds == _SECONDS else f"{late}, the time that was left for this run; allow more (--timeout)"
