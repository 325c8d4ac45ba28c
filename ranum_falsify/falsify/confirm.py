"""Confirmation: only what ONNX Runtime shows on the original model counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import numpy as np
from dnnv.nn import Operation

from ranum_falsify.falsify.replay import Replay, Replayer
from ranum_falsify.network import Graph

__all__ = ["Confirmer"]


class Confirmer:
    """Replays candidates on the networks of a problem; one child process per network, started at once.

    A context manager; leaving it ends the child processes.
    """

    def __init__(self, graphs: Sequence[Graph], *, threads: int = 1) -> None:
        self._replayers = {id(graph): Replayer(graph.model, threads=threads) for graph in graphs}
        self._writers = {id(graph): _writers(graph) for graph in graphs}

    def __enter__(self) -> Self:
        """Start the child processes, which boot while the search begins."""
        for replayer in self._replayers.values():
            replayer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the child processes."""
        for replayer in self._replayers.values():
            replayer.close()

    def run(self, graph: Graph, feeds: Mapping[str, np.ndarray]) -> Replay:
        """Run the graph's model with every intermediate exposed."""
        return self._replayers[id(graph)].run(feeds)

    def outputs(self, graph: Graph, feeds: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Run the graph's model; return its outputs in order."""
        return tuple(self._replayers[id(graph)].outputs(feeds).values())

    def operation(self, graph: Graph, tensor: str) -> Operation | None:
        """Return the operation that writes an ONNX tensor, None where it was folded or lies in a subgraph."""
        return self._writers[id(graph)].get(tensor)


def _writers(graph: Graph) -> dict[str, Operation]:
    return {name: op for op in graph.nodes for name in op.output_names if name}
