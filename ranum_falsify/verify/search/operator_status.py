"""The status of an operator, by a proof or by a replay."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from dnnv.nn import Operation

from ranum_falsify.config import Runtime
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.replay.broken import operand_ranges
from ranum_falsify.verify.replay.replayer import Finding
from ranum_falsify.verify.search.result import Counterexample, OperatorResult, Oracle
from ranum_falsify.verify.search.torch_replay import TorchFailure


def describe_status(target: Target, proof: Proof) -> OperatorResult:
    """Return what a proof says about the operator of a target without a known counterexample."""
    known = proof.operators.get((target.goal, target.op.name))
    condition = known.open[0] if known is not None and known.open else target.constraint
    return OperatorResult(
        network=target.network,
        node=target.op.name,
        op_type=target.spec.op_type,
        verdict="proved" if known is not None and known.proved else "masked" if proof.holds else "open",
        constraint=condition.as_read(target.dtype).describe(),
        reason=condition.reason,
        after=known.after if known is not None and not known.open else (),
        inside=known.inside if known is not None and known.open else (),
        rewritten=known is not None and known.is_open_as_executed,
    )


def is_shadowed(target: Target, proof: Proof, found: Collection[tuple[int, str]]) -> bool:
    """Tell whether a target can fail only behind a violation already found, and ONNX Runtime enforces its condition.

    Known violations go by position of the validity goal and name of the node.
    """
    known = proof.operators.get((target.goal, target.op.name))
    if known is None or known.open or not target.constraint.refuses:
        return False
    return any((target.goal, name) in found for name in known.after)


def describe_shown(
    finding: Finding, name: str, constraint: Constraint | None, counterexample: Counterexample | None = None
) -> OperatorResult:
    """Return what a replay shows about an operator, with the inputs if they are to be kept.

    `constraint` is the condition that fails, None where the network that was searched lacks the operator.
    """
    return _describe_violated(
        name,
        finding.op_type,
        constraint,
        counterexample,
        kind=finding.kind,
        reach=finding.reach,
        optimisations=finding.optimisations,
        fused=finding.fused,
        oracle=finding.oracle,
        operands=finding.operands,
        returned=finding.returned,
    )


def describe_failing(
    failure: TorchFailure,
    name: str,
    counterexample: Counterexample | None = None,
    runtimes: tuple[Runtime, ...] = ("torch",),
) -> OperatorResult:
    """Return what PyTorch shows about an operator, on the runtimes that fail; see `describe_shown`."""
    return _describe_violated(
        name,
        failure.op_type,
        failure.broken,
        counterexample,
        kind=failure.kind,
        reach=failure.reach,
        runtimes=runtimes,
        oracle="torch",
        operands=failure.operands,
    )


def describe_steep(
    op: Operation,
    operands: Sequence[np.ndarray | None],
    oracle: Oracle,
    constraint: Constraint | None = None,
    counterexample: Counterexample | None = None,
) -> OperatorResult:
    """Return an operator whose derivative is not finite at some operands; see `describe_shown`."""
    ranges, op_type = operand_ranges(op, operands), type(op).__name__
    return _describe_violated(
        op.name, op_type, constraint, counterexample, kind="gradient", oracle=oracle, operands=ranges
    )


def _describe_violated(
    name: str, op_type: str, broken: Constraint | None, counterexample: Counterexample | None, **facts: Any
) -> OperatorResult:
    return OperatorResult(
        network="" if counterexample is None else counterexample.network,
        node=name,
        op_type=op_type,
        verdict="violated",
        constraint="" if broken is None else broken.describe(),
        reason="" if broken is None else broken.reason,
        counterexample=counterexample,
        **facts,
    )
