"""What the tests of the search share: problems in a box, short searches, and the oracle that no verdict passes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import torch
from numpy.typing import NDArray

from ranum_falsify.config import ProveConfig, SearchConfig
from ranum_falsify.network import Graph, read
from ranum_falsify.process.deadline import NEVER
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.verify.replay.confirmer import Confirmer
from ranum_falsify.verify.replay.replayer import Replayer
from ranum_falsify.verify.search.converter import convert
from ranum_falsify.verify.search.result import Answer, OperatorResult
from ranum_falsify.verify.search.search import Budget, SearchContext
from tests.networks.probing import natural_box
from tests.properties.properties_kit import NETWORKS, network, problem

__all__ = [
    "NETWORKS",
    "Array",
    "context",
    "found",
    "in_box",
    "natural",
    "network",
    "problem",
    "search",
    "valid_in_box",
]

Array = NDArray[Any]
Bounds = tuple[float, float]


def in_box(bounds: Sequence[Bounds], consequent: str, extra: str = "") -> str:
    """Return `Forall(v0, ...)` over variables v0, v1, ... in their bounds, with further antecedents."""
    conditions = [f"{low!r} <= v{i} <= {high!r}" for i, (low, high) in enumerate(bounds)] + [extra] * bool(extra)
    antecedent = conditions[0] if len(conditions) == 1 else f"And({', '.join(conditions)})"
    formula = f"Implies({antecedent}, {consequent})"
    for i in reversed(range(len(bounds))):
        formula = f"Forall(v{i}, {formula})"
    return formula


def valid_in_box(
    graph: Graph, bounds: Sequence[Bounds], *, free: Sequence[str] = (), options: str = "", extra: str = ""
) -> Problem:
    """Return the problem that no operator of the network receives an invalid input in a box."""
    words = "".join(f", {name!r}" for name in free)
    applied = f"free(N{words})" if free else "N"
    arguments = ", ".join(f"v{i}" for i in range(len(bounds)))
    goal = f"no_invalid_input({applied}({arguments}){options and ', '}{options})"
    return problem(in_box(bounds, goal, extra), networks={"N": graph})


def natural(name: str, *, free: Mapping[str, Bounds] | None = None, **options: Any) -> Problem:
    """Return the problem of one of our networks in its natural box."""
    model = onnx.load(NETWORKS / f"{name}.onnx")
    bounds = [(low, high) for _, low, high in natural_box(model).values()]
    free = free or {}
    return valid_in_box(read(model), [*bounds, *free.values()], free=list(free), **options)


def search(reduced: Problem, **config: Any) -> Answer:
    """Search shortly on one thread, also for what is proved, and check that whatever is violated replays."""
    settings = {"n_starts": 40, "n_steps": 60, "timeout": 30.0, "processors": 1, "prove": False} | config
    result = falsify(reduced, SearchConfig(**settings))
    check(reduced, result)
    return result


def check(reduced: Problem, result: Answer) -> None:
    """Assert that every violated operator fails on ONNX Runtime at its counterexample, which lies in the box."""
    assert (result.verdict == "violated") == (result.counterexample is not None)
    calls = {call.network: call for call in reduced.calls}
    proof = Prover(reduced, ProveConfig()).analyse()
    assert not (proof.holds and result.verdict == "violated"), "what is violated is proved"
    proved = {node for (_, node), operator in proof.operators.items() if operator.proved}
    assert not proved & found(result).keys()
    for operator in result.operators:
        if operator.verdict not in ("violated", "masked"):
            assert operator.counterexample is None
            continue
        example = operator.counterexample
        assert example is not None
        assert reduced.contains(example.inputs)
        for variable in reduced.inputs:
            array = example.inputs[variable.name]
            assert (array.dtype, array.shape) == (variable.dtype, variable.shape)
        if operator.kind == "gradient":
            continue
        with Replayer(calls[example.network].graph.model) as replayer:
            findings = replayer.run(example.feeds).findings
        # Of a branch, ONNX Runtime shows the If.
        assert {operator.op_type, "If"} & {finding.op_type for finding in findings}


def found(result: Answer) -> dict[str, OperatorResult]:
    """Return the violated operators by node."""
    return {operator.node: operator for operator in result.operators if operator.verdict == "violated"}


def context(reduced: Problem, **config: Any) -> SearchContext:
    """Return what a search works with; its child processes start only when asked."""
    graphs = {id(call.graph): call.graph for call in reduced.calls}
    return SearchContext(
        reduced,
        SearchConfig(**config),
        [convert(call.graph) for call in reduced.calls],
        Confirmer(list(graphs.values())),
        Budget(NEVER),
        torch.device("cpu"),
        lambda _: None,
    )
