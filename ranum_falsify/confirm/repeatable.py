"""From a property to one whose networks draw nothing at random: draws are additional inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ranum_falsify.errors import PropertyError
from ranum_falsify.network.draws import DEVIATIONS, Draw, expose_draws, is_cut
from ranum_falsify.network.naming import UniqueNames
from ranum_falsify.properties.formula.applications import NetworkCall
from ranum_falsify.properties.formula.formula import Goal
from ranum_falsify.properties.formula.terms import Variable
from ranum_falsify.properties.problem.problem import InputVariable, Problem

__all__ = ["make_repeatable", "notices_of"]


def make_repeatable(problem: Problem) -> Problem:
    """Return the validity goals of a problem, with the draws of random operators as additional inputs.

    Raises:
        PropertyError: The property asks for something other than validity.
    """
    if not problem.is_pure_validity:
        raise PropertyError(
            "confirm: the property asks for more than valid operands; write one whose conclusion is no_invalid_input"
        )
    names = UniqueNames(variable.name for variable in problem.inputs)
    draws: list[InputVariable] = []
    calls: dict[int, NetworkCall] = {}
    for goal in problem.goals:
        if id(goal.call) in calls:
            continue
        graph, found = expose_draws(goal.call.graph)
        known = len(goal.call.graph.inputs)
        new = [
            _variable(names.take(draw.name), draw, details.shape, details.dtype)
            for draw, details in zip(found, graph.input_details[known:], strict=True)
        ]
        draws += new
        arguments = (*goal.call.arguments, *(Variable(v.name, v.shape, v.dtype) for v in new))
        calls[id(goal.call)] = replace(goal.call, graph=graph, arguments=arguments) if new else goal.call
    goals = tuple(replace(goal, call=calls[id(goal.call)]) for goal in problem.goals)
    # Side conditions still apply the original networks.
    others = problem.calls if problem.penalties else ()
    return Problem(
        inputs=(*problem.inputs, *draws),
        regions=tuple((*region, *draws) for region in problem.regions),
        calls=tuple({id(call): call for call in (*others, *calls.values())}.values()),
        goals=goals,
        clauses=tuple(Goal(goal) for goal in goals),
        penalties=problem.penalties,
    )


def notices_of(problem: Problem) -> Iterator[str]:
    """Yield what users should know about draws that a repeatable problem leaves out."""
    for graph in {id(goal.call.graph): goal.call.graph for goal in problem.goals}.values():
        cut = [op.name for op in graph.nodes if is_cut(op)]
        if cut:
            yield (
                f"tests keep normal draws ({', '.join(cut)}) within {DEVIATIONS:g} standard deviations of the mean; "
                "proofs cover all draws"
            )


def _variable(name: str, draw: Draw, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> InputVariable:
    lower, upper = (np.full(shape, end, dtype=dtype) for end in (draw.low, draw.high))
    return InputVariable(name=name, shape=shape, dtype=dtype, lower=lower, upper=upper)
