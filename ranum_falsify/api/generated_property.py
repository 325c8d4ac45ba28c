"""The property that `check` asks about: what the inputs range over, and that no operator receives invalid input.

It exists as an expression, which is reduced, and as the text of a DNNP file, which means the same.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dnnv.properties import Expression, expressions
from dnnv.properties.expressions import And, Call, Constant, Context, Forall, Implies, LessThanOrEqual, Network, Symbol

from ranum_falsify.errors import UsageError
from ranum_falsify.properties.language import vocabulary

NETWORK = "N"
"""Name of the network in the property."""

_MOST_ELEMENTS = 100
"""Elements of a bound that a property's text holds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class InputRange:
    """What an input ranges over.

    Attributes:
        name: Its ONNX name.
        lower: Lower bound: a number for all elements, or an array of its shape.
        upper: Upper bound, likewise.
        default: What it is taken for, where users did not say what it ranges over.
        is_guess: Whether it may be something else.
    """

    name: str
    lower: float | np.ndarray
    upper: float | np.ndarray
    default: str = ""
    is_guess: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Statement:
    """That no operator of a network receives invalid input while its inputs stay in a box.

    Attributes:
        ranges: What the network's inputs range over, in their order, and after them what freed initializers do.
        only: ONNX operator types to look at, all if None.
        nodes: ONNX node names to look at, all if None.
        gradient: Whether derivatives must be finite too.
        free: Names of the initializers that range too.
        notices: What users should know of it.
    """

    ranges: Sequence[InputRange]
    only: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None
    gradient: bool = False
    free: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def defaults(self) -> tuple[str, ...]:
        """Names of the inputs whose ranges users did not give."""
        return tuple(given.name for given in self.ranges if given.default)

    @property
    def _options(self) -> dict[str, Any]:
        options = {"only": self.only and list(self.only), "nodes": self.nodes and list(self.nodes)}
        chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        return chosen | ({"gradient": True} if self.gradient else {})

    def expression(self) -> Expression:
        """Return the property as an expression."""
        with Context():
            several = len(self.ranges) > 1
            symbol = Symbol("x" if several else self.ranges[0].name)
            parts = []
            for position, given in enumerate(self.ranges):
                variable = symbol[Constant(position)] if several else symbol
                parts += [LessThanOrEqual(Constant(given.lower), variable)]
                parts += [LessThanOrEqual(variable, Constant(given.upper))]
            network: Expression = Network(NETWORK)
            if self.free:
                network = Call(Constant(vocabulary.free), (network, *map(Constant, self.free)), {})
            applied = Call(network, (symbol,), {})
            options = {name: Constant(value) for name, value in self._options.items()}
            goal = Call(Constant(vocabulary.no_invalid_input), (applied,), options)
            return Forall(symbol, Implies(And(*parts), goal))

    def text(self) -> str:
        """Return the property as the text of a DNNP file; small arrays stand in it in full.

        Raises:
            UsageError: There are larger ones.
        """
        several = len(self.ranges) > 1
        name = "x" if several or not _is_free(self.ranges[0].name) else self.ranges[0].name
        variables = [f"{name}[{position}]" for position in range(len(self.ranges))] if several else [name]
        bounds = [
            f"{_number(given.name, given.lower)} <= {variable} <= {_number(given.name, given.upper)}"
            for variable, given in zip(variables, self.ranges, strict=True)
        ]
        options = "".join(f", {option}={value!r}" for option, value in self._options.items())
        box = bounds[0] if len(bounds) == 1 else f"And({', '.join(bounds)})"
        freed = "".join(f", {initializer!r}" for initializer in self.free)
        network = f"free({NETWORK}{freed})" if freed else NETWORK
        return "\n".join(
            [
                *self._imports(),
                "from dnnv.properties import *",
                "from ranum_falsify.properties import *",
                "",
                f'{NETWORK} = Network("{NETWORK}")',
                "",
                *self._comment(variables),
                f"Forall({name}, Implies({box}, no_invalid_input({network}({name}){options})))",
                "",
            ]
        )

    def _imports(self) -> Iterator[str]:
        if any(isinstance(bound, np.ndarray) for given in self.ranges for bound in (given.lower, given.upper)):
            yield "import numpy as np"

    def _comment(self, variables: Sequence[str]) -> Iterator[str]:
        for variable, given in zip(variables, self.ranges, strict=True):
            if variable != given.name:
                kind = "initializer" if given.name in self.free else "input"
                yield f"# {variable} is the {kind} {given.name!r}."


def _number(name: str, bound: float | np.ndarray) -> str:
    if isinstance(bound, np.ndarray):
        if bound.size > _MOST_ELEMENTS:
            raise UsageError(
                f"property: {bound.size} numbers bound {name!r}, too many to write down; give one for all elements"
            )
        return f"np.array({bound.tolist()!r})"
    return repr(bound)


def _is_free(name: str) -> bool:
    """Tell whether a name means nothing else in a property file."""
    taken = {*vars(builtins), *vars(expressions), *vocabulary.__all__, NETWORK, "np"}
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and name not in taken
