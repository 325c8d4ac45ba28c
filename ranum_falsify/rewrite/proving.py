"""Proofs of a model spelled in other operators: stable forms that are equal in real arithmetic.

A verdict is about the model that users run.  So what is found here changes none: it says of an operator that is not
proved with which passes it would be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
import onnx_ir as ir

from ranum_falsify.config import ProveConfig
from ranum_falsify.errors import RanumFalsifyError, is_interruption
from ranum_falsify.network import read
from ranum_falsify.process.deadline import Deadline, OutOfTime
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.rewrite.apply import apply_stable, equal_passes, infer_shapes
from ranum_falsify.rewrite.model import name_nodes, to_proto
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover


@dataclass(frozen=True)
class RewriteProofs:
    """Operators that are proved in a rewritten model.

    Attributes:
        passes: The passes to run, in order, by network and name of the operator.
        is_complete: Whether there was time to try all.
    """

    passes: Mapping[tuple[str, str], Sequence[str]]
    is_complete: bool = True


def prove_after_rewriting(
    problem: Problem, config: ProveConfig, wanted: Collection[tuple[str, str]], *, deadline: Deadline
) -> RewriteProofs:
    """Try operators that are not proved again, after stable forms.

    An operator counts if it is gone or proved in the rewritten model, and all operators that are new there are proved.
    Networks that are applied to expressions, and parts of networks, are left out.

    Args:
        problem: The problem, which asks about operators alone.
        config: How to prove.
        wanted: The operators, by network and name.
        deadline: When to stop.
    """
    found: dict[tuple[str, str], Sequence[str]] = {}
    is_complete = True
    for call in problem.calls:
        names = {node for network, node in wanted if network == call.network}
        if not names or call.graph.read_again is None or None in call.variables:
            continue
        search = _RewriteSearch(problem, config, call, names, deadline)
        try:
            search.run()
        except OutOfTime:
            is_complete = False
        except (KeyboardInterrupt, RuntimeError) as error:
            if not is_interruption(error):
                raise
            is_complete = False
        found |= {(call.network, node): passes for node, passes in search.found.items()}
    return RewriteProofs(found, is_complete)


class _RewriteSearch:
    """Passes tried on one network: each alone, then all of them, one after the other.

    Attributes:
        found: The passes by operator.
    """

    def __init__(
        self, problem: Problem, config: ProveConfig, call: NetworkCall, wanted: Collection[str], deadline: Deadline
    ) -> None:
        goals = [replace(goal, only=None, nodes=None) for goal in problem.goals if goal.call is call]
        self._problem = replace(problem, goals=tuple(goals), calls=(call,))
        self._config = config
        self._call = call
        self._deadline = deadline
        self._left = set(wanted)
        self._known = {op.name for op in call.graph.nodes}
        self.found: dict[str, Sequence[str]] = {}

    def run(self) -> None:
        """Try the passes."""
        whole = infer_shapes(ir.from_proto(name_nodes(self._call.graph)))
        alone = list(self._apply(whole))
        for name, model in alone:
            self._try([name], model)
        if len(alone) < 2 or not self._left:
            return
        model, applied = whole, list[str]()
        for name in equal_passes():
            self._deadline.check()
            made = apply_stable(name, model)
            if made is not None:
                model, applied = made, [*applied, name]
        self._try(applied, model)

    def _apply(self, model: ir.Model) -> Iterator[tuple[str, ir.Model]]:
        """Yield each pass that finds something, and what it makes."""
        for name in equal_passes():
            self._deadline.check()
            made = apply_stable(name, model)
            if made is not None:
                yield name, made

    def _try(self, passes: Sequence[str], model: ir.Model) -> None:
        """Remember what is proved in a model."""
        if not self._left:
            return
        proof = self._prove(to_proto(model))
        if proof is None:
            return
        open_ones = {operator.node for operator in proof.operators.values() if not operator.proved}
        if open_ones - self._known:
            return
        for node in sorted(self._left - open_ones):
            self.found[node] = tuple(passes)
            self._left.discard(node)

    def _prove(self, proto: onnx.ModelProto) -> Proof | None:
        """Return what is proved of a model, None if it cannot be read in place of the old one."""
        old = self._call.graph
        try:
            new = read(
                proto,
                dims=old.options.dims,
                free=old.options.free,
                fixed=old.options.fixed,
                sample=old.options.sample,
            )
        except RanumFalsifyError:
            return None
        if [op.name for op in new.inputs] != [op.name for op in old.inputs]:
            return None
        return Prover(self._problem, self._config, {id(self._call): new}, tick=self._deadline.check).analyse()
