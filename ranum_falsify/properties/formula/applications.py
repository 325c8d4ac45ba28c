"""Applications of networks: what a property applies them to, asks of them, and needs to run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ranum_falsify.network import Graph
from ranum_falsify.properties.formula.terms import Term


@dataclass(frozen=True, kw_only=True)
class Trainable:
    """What a property says about the training of a network.

    Attributes:
        weights: The freed initializers, which training changes.
        loss: Nodes or outputs whose sum training makes small.
        one_hot: Inputs each row of which is 0 but for a single 1.
    """

    weights: tuple[str, ...]
    loss: tuple[str, ...]
    one_hot: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkCall:
    """One application of a network; equal applications in a property are one object.

    Attributes:
        network: The network as the property writes it, such as `N` or `N[2:-3]`.
        graph: The graph applied.
        arguments: What it is applied to, in the order of the graph's inputs.
        trainable: How it is trained, None if the property does not say.
    """

    network: str
    graph: Graph
    arguments: tuple[Term, ...]
    trainable: Trainable | None = None

    @property
    def variables(self) -> tuple[str | None, ...]:
        """The variable that each argument is; None for an expression or a constant."""
        return tuple(argument.variable_name for argument in self.arguments)


@dataclass(frozen=True, kw_only=True, eq=False)
class ValidityGoal:
    """`no_invalid_input(N(x), ...)`: no operator of this application receives an invalid input.

    Attributes:
        call: The application.
        only: ONNX operator types to look at, all if None.
        nodes: ONNX node names to look at, all if None.
        gradient: Whether derivatives must be finite too.
    """

    call: NetworkCall
    only: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None
    gradient: bool = False


class Evaluator(Protocol):
    """Runs networks for a problem.  All tensors have one leading batch dimension."""

    def outputs(self, call: NetworkCall, arguments: tuple[Tensor, ...]) -> Sequence[Tensor]:
        """Return the outputs, each `(batch, *output_shape)`, for arguments `(batch, *input_shape)`.

        Arguments have the dtypes of the graph's inputs.  A constant argument has a batch of 1.
        """

    def validity(self, goal: ValidityGoal, arguments: tuple[Tensor, ...]) -> Tensor:
        """Return the least margin `(batch,)` of the goal's constraints; negative is violated."""
