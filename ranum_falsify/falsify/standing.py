"""What is known of an operator of which no counterexample is."""

from __future__ import annotations

from ranum_falsify.falsify.result import OperatorResult
from ranum_falsify.properties.targets import Target
from ranum_falsify.prove.proof import Proof

__all__ = ["standing"]


def standing(target: Target, proof: Proof) -> OperatorResult:
    """Return what a proof says of a target's operator, of which no counterexample is known."""
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
        rewritten=known is not None and known.is_open_as_executed,
    )
