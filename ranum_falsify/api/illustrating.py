"""What a page draws of an answer."""

from __future__ import annotations

import time
from typing import Any

from ranum_falsify.api.loading import Loaded
from ranum_falsify.config import ProveConfig, SearchConfig
from ranum_falsify.prove.explaining import surroundings
from ranum_falsify.report.illustration import as_json
from ranum_falsify.search.result import Answer

__all__ = ["illustrate"]

_MOST_OPERATORS = 12
_PATIENCE = 10.0  # seconds


def illustrate(answer: Answer, loaded: Loaded, config: SearchConfig) -> dict[str, Any]:
    """Return what a page draws of an answer, as `illustration` of its JSON report.

    That is about the operators that are violated, and then about those that are open, as far as they are few; it takes
    one interval analysis of their networks, and no longer than some seconds.

    Args:
        answer: The answer.
        loaded: What was asked.
        config: How it was answered.
    """
    left = [operator for operator in answer.operators if operator.verdict != "proved"]
    ranked = sorted(left, key=lambda operator: (operator.verdict != "violated", bool(operator.after)))
    nodes = [(operator.network, operator.node) for operator in ranked[:_MOST_OPERATORS]]
    deadline = time.monotonic() + _PATIENCE
    return as_json(
        answer, surroundings(loaded.problem, nodes, config.prove or ProveConfig(), deadline=deadline) if nodes else ()
    )
