"""What a page draws of a run: the graph around operators, how their bounds came about, and counterexamples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ranum_falsify.domain.explanation import ChainLink, OperandHistory
from ranum_falsify.domain.neighbours import Neighbours
from ranum_falsify.results.counterexample import describe_groups, number
from ranum_falsify.results.pictures import describe_array
from ranum_falsify.verify.prove.explaining import NodeSurroundings
from ranum_falsify.verify.search.result import Answer

_MOST_COUNTEREXAMPLES = 6
_MOST_ARRAYS = 8
_LONGEST_CHAIN = 24


def as_json(answer: Answer, around: Iterable[NodeSurroundings]) -> dict[str, Any]:
    """Return what a page draws of an answer, as `illustration` of the JSON report; docs/json.md explains it.

    Args:
        answer: What was found.
        around: What stands around the operators that are not proved.
    """
    return {
        "operators": [
            {
                "network": one.network,
                "node": one.node,
                "graph": _graph(one.neighbours),
                "histories": [_history(history) for history in one.histories],
            }
            for one in around
        ],
        "counterexamples": [_counterexample(*group) for group in describe_groups(answer)[:_MOST_COUNTEREXAMPLES]],
    }


def _counterexample(
    network: str, arrays: Mapping[str, np.ndarray], violations: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    shown = list(arrays.items())[:_MOST_ARRAYS]
    return {
        "network": network,
        "nodes": [violation["node"] for violation in violations],
        "inputs": {name: describe_array(np.asarray(array)) for name, array in shown},
    }


def _graph(neighbours: Neighbours) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "name": node.name,
                "op_type": node.op_type,
                "constants": {name: _limits(limits) for name, limits in node.constants},
                "results": [{"shape": list(result.shape), "bounds": _limits(result.bounds)} for result in node.results],
                "hidden": node.hidden,
            }
            for node in neighbours.nodes
        ],
        "edges": [list(edge) for edge in neighbours.edges],
        "focus": neighbours.focus,
    }


def _history(history: OperandHistory) -> dict[str, Any]:
    return {
        "operand": history.name,
        "bounds": _limits(history.bounds),
        "length": len(history.chain),
        "chain": [_link(link) for link in history.chain[:_LONGEST_CHAIN]],
    }


def _link(link: ChainLink) -> dict[str, Any]:
    return {
        "node": link.node,
        "op_type": link.op_type,
        "bounds": _limits(link.bounds),
        "width": number(link.width),
        "growth": number(link.growth),
    }


def _limits(limits: tuple[float, float] | None) -> list[float | str] | None:
    return None if limits is None else [number(limit) for limit in limits]
