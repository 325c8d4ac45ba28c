"""What was proved, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ranum_falsify.config import RUNTIMES, Runtime
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.prove.optimised_graph import ValidWhenOptimised


@dataclass(frozen=True, kw_only=True)
class OperatorProof:
    """What is known about one operator in question.

    Attributes:
        network: Name of its network.
        node: Its name in the graph.
        op_type: ONNX operator.
        open: Its conditions that the bounds do not prove.
        after: The first operators before it with open conditions; its bounds hold only while these are valid.
        inside: The operators in its subgraphs that are not proved.
    """

    network: str
    node: str
    op_type: str
    open: tuple[Constraint, ...] = ()
    after: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether no input of the box makes it invalid."""
        return not self.open and not self.after

    @property
    def is_open_as_executed(self) -> bool:
        """Whether it is open only because of ONNX Runtime's graph optimisations."""
        return bool(self.open) and all(isinstance(condition, ValidWhenOptimised) for condition in self.open)


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What holds on every input of the property's regions.

    Attributes:
        holds: Whether the property does.
        operators: The operators in question, by position of the validity goal and name of the node, in topological
            order.
        runtimes: Runtimes that it covers.
        notices: What users should know about the graphs that run.
        held_regions: Positions of the regions on which the property holds.
        steep: If all operators in question are valid and nothing is asked about their derivatives: titles of those
            whose derivatives are not shown to be finite.
        elsewhere: By library, why the proof does not cover processors of ARM64, or "" where it does; none where nobody
            asked.
        departure: Inputs of a network, by name, on which ONNX Runtime left the bounds; empty where it did not.
    """

    holds: bool = False
    operators: Mapping[tuple[int, str], OperatorProof] = field(default_factory=dict)
    runtimes: tuple[Runtime, ...] = RUNTIMES
    notices: tuple[str, ...] = ()
    held_regions: frozenset[int] = frozenset()
    steep: tuple[str, ...] = ()
    elsewhere: Mapping[Runtime, str] = field(default_factory=dict)
    departure: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def proves(self, goal: int, node: str) -> bool:
        """Tell whether an operator is proved; one that was not looked at is not."""
        found = self.operators.get((goal, node))
        return found is not None and found.proved


NOTHING = Proof(runtimes=())
"""The proof, if none was tried."""


def join_operators(
    regions: Sequence[Mapping[tuple[int, str], OperatorProof]],
) -> Mapping[tuple[int, str], OperatorProof]:
    """Return what is known about the operators in question on all of some regions."""
    result = dict(regions[0]) if regions else {}
    for region in regions[1:]:
        for key, other in region.items():
            mine = result[key]
            result[key] = replace(
                mine,
                open=tuple(dict.fromkeys((*mine.open, *other.open))),
                after=tuple(dict.fromkeys((*mine.after, *other.after))),
                inside=tuple(dict.fromkeys((*mine.inside, *other.inside))),
            )
    return result
