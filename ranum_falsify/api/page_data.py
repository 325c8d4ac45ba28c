"""What a page draws of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.config import ProveConfig, SearchConfig
from ranum_falsify.errors import is_out_of_memory
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.results.illustration import as_json
from ranum_falsify.verify.prove.explaining import NodeSurroundings, surroundings
from ranum_falsify.verify.search.result import Answer

_MOST_OPERATORS = 12
ILLUSTRATION_SECONDS = 4.0
"""How long the analysis for a page may take."""


def illustrate(
    answer: Answer, loaded: BoundProblem, config: SearchConfig, patience: float = ILLUSTRATION_SECONDS
) -> dict[str, Any]:
    """Return what a page draws of an answer, as `illustration` of its JSON report.

    That is about the operators that are violated, and then about those that are open, as far as they are few; it takes
    one interval analysis of their networks. Where there is not the time or the memory for it, only counterexamples are
    drawn.

    Args:
        answer: The answer.
        loaded: What was asked.
        config: How it was answered.
        patience: Seconds for the analysis.
    """
    left = [operator for operator in answer.operators if operator.verdict != "proved"]
    ranked = sorted(left, key=lambda operator: (operator.verdict != "violated", bool(operator.after)))
    nodes = [(operator.network, operator.node) for operator in ranked[:_MOST_OPERATORS]]
    return as_json(answer, _look_around(nodes, loaded, config, patience) if nodes else ())


def _look_around(
    nodes: Sequence[tuple[str, str]], loaded: BoundProblem, config: ProveConfig, patience: float
) -> Sequence[NodeSurroundings]:
    try:
        return surroundings(loaded.problem, nodes, config, deadline=Deadline.after(patience))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return ()
