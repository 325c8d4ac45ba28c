"""What is known about an operator, by a proof or by a replay."""

from __future__ import annotations

from collections.abc import Collection

from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.prove.proof import Proof
from ranum_falsify.replay.replayer import Finding
from ranum_falsify.search.result import Counterexample, OperatorResult
from ranum_falsify.validity import Constraint

__all__ = ["describe_shown", "describe_standing", "is_aside"]


def describe_standing(target: Target, proof: Proof) -> OperatorResult:
    """Return what a proof says about the operator of a target without a known counterexample."""
    known = proof.operators.get((target.goal, target.op.name))
    condition = known.open[0] if known is not None and known.open else target.constraint
    return OperatorResult(
        network=target.network,
        node=target.op.name,
        op_type=target.spec.op_type,
        verdict="proved" if known is not None and known.proved else "open",
        constraint=condition.describe(),
        reason=condition.reason,
        after=known.after if known is not None and not known.open else (),
        inside=known.inside if known is not None and known.open else (),
        rewritten=known is not None and known.is_open_as_executed,
    )


def is_aside(target: Target, proof: Proof, found: Collection[tuple[int, str]]) -> bool:
    """Tell whether ONNX Runtime insists on the condition of a target, and only a failure that is known may break it.

    Args:
        target: The target.
        proof: What is proved.
        found: Operators that are known to fail, by position of the validity goal and name of the node.
    """
    known = proof.operators.get((target.goal, target.op.name))
    if known is None or known.open or not target.constraint.refuses:
        return False
    return any((target.goal, name) in found for name in known.after)


def describe_shown(
    finding: Finding, name: str, constraint: Constraint | None, counterexample: Counterexample
) -> OperatorResult:
    """Return what a replay shows about an operator.

    Args:
        finding: The finding of the replay.
        name: The operator's name.
        constraint: The condition that fails, None where the network that was searched lacks the operator.
        counterexample: What was replayed.
    """
    return OperatorResult(
        network=counterexample.network,
        node=name,
        op_type=finding.op_type,
        verdict="violated",
        constraint="" if constraint is None else constraint.describe(),
        reason="" if constraint is None else constraint.reason,
        kind=finding.kind,
        reach=finding.reach,
        optimisations=finding.optimisations,
        fused=finding.fused,
        oracle=finding.oracle,
        operands=finding.operands,
        returned=finding.returned,
        counterexample=counterexample,
    )
