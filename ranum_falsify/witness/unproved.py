"""The operators of a property that are not proved, for which there is something to test."""

from __future__ import annotations

from collections.abc import Collection

from dnnv.nn import Operation

from ranum_falsify.config import ProveConfig
from ranum_falsify.network import spec_of
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover


class Unproved:
    """The operators that one interval analysis of a property, as it is asked, leaves open.

    Tests use networks whose random operators are inputs that range over likely draws.  Proofs do not: they cover all
    possible draws.  Operators of both correspond by the tensors that they write.

    Attributes:
        proof: What the analysis proves.
    """

    def __init__(self, problem: Problem) -> None:
        self.proof: Proof = Prover(problem, ProveConfig(prove_timeout=0.0)).analyse()
        self._proved: dict[tuple[int, str], Operation] = {}
        self._open: dict[tuple[int, str], Operation] = {}
        for number, goal in enumerate(problem.goals):
            for op in goal.call.graph.nodes:
                known = self.proof.operators.get((number, op.name))
                if known is not None:
                    table = self._open if known.open else self._proved
                    table.update(((number, name), op) for name in op.output_names if name)

    def is_proved(self, goal: int, op: Operation) -> bool:
        """Tell whether an operator is proved, or open only because of others.

        Args:
            goal: Position of the validity goal.
            op: The operator, of the network as asked or of that with draws as inputs.
        """
        return any((goal, name) in self._proved for name in op.output_names)

    def list_besides(self, tested: Collection[tuple[int, Operation]]) -> tuple[str, ...]:
        """Return the titles of the open operators that no test is about: random ones themselves.

        Args:
            tested: Operators that tests are about, each with the position of the validity goal.
        """
        known = {(goal, name) for goal, op in tested for name in op.output_names}
        left = [op for key, op in self._open.items() if key not in known]
        return tuple(dict.fromkeys(f"{op.name} ({spec_of(op).op_type})" for op in left))
