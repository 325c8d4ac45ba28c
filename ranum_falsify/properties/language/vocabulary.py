"""Words that property files may use beside DNNV's, and the options of `no_invalid_input`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, NoReturn

import onnx.defs

from ranum_falsify.errors import PropertyError
from ranum_falsify.network import list_supported
from ranum_falsify.properties.language.walk import shorten

__all__ = [
    "FiniteOutputs",
    "Free",
    "LossName",
    "NoInvalidInput",
    "check_operators",
    "finite_outputs",
    "free",
    "loss",
    "names_option",
    "no_invalid_input",
]


class _Word:
    """A callable of DNNP that has a meaning only around a network."""

    usage: str

    def __init__(self) -> None:
        self.__name__ = self.__qualname__ = self.usage.partition("(")[0]

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise PropertyError(f"{self.__name__} is written as {self.usage}, with N a network of the property")

    def __repr__(self) -> str:
        return self.__name__


class NoInvalidInput(_Word):
    """`no_invalid_input(N(x), only=["Log"], nodes=["log_3"], gradient=False)`.

    True where no operator of the application receives an invalid input: from inputs without NaN it makes no NaN, from
    finite inputs no infinity.

    Args of a call:
        only: ONNX operator types to look at; all by default.
        nodes: ONNX node names to look at; all by default.
        gradient: Demand finite derivatives too; at 0, `Sqrt` has none.
    """

    usage = "no_invalid_input(N(x), only=[...], nodes=[...], gradient=False)"


class FiniteOutputs(_Word):
    """`finite_outputs(N(x))`: no output of the application is NaN or infinite, wherever that would come from."""

    usage = "finite_outputs(N(x))"


class Free(_Word):
    """`free(N, "W", "b")`: the network with these initializers as further inputs, after the others.

    `free(N, "W", "b", loss=loss("cost"))` also says that training changes them, and what it makes small.
    """

    usage = 'free(N, "W", "b")'


@dataclass(frozen=True)
class LossName:
    """What training makes small.

    Attributes:
        names: Nodes or outputs, whose sum it is.
        one_hot: Labels; each row of one of floating type is 0 but for a single 1.
        parts: For each name, how the names of those weights begin that make it small; if empty, all weights do.
    """

    names: tuple[str, ...]
    one_hot: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


class _Loss:
    """`loss("cost", one_hot=["y"])`: what training makes small, a node or an output, and labels that are one-hot.

    `loss("d_cost", "g_cost", parts=["D_", "G_"])` gives each loss its own weights, by how their names begin.
    """

    def __init__(self) -> None:
        self.__name__ = self.__qualname__ = "loss"

    def __call__(self, *names: Any, one_hot: Any = (), parts: Any = ()) -> LossName:
        labels, starts = (tuple(given) if isinstance(given, list | tuple) else (given,) for given in (one_hot, parts))
        if not names or not all(isinstance(name, str) for name in (*names, *labels, *starts)):
            raise PropertyError(
                'loss is written as loss("cost"), with the name of a node or of an output; '
                "one_hot and parts are lists of names"
            )
        if len(starts) not in (0, len(names)):
            raise PropertyError(
                f"loss: {len(starts)} parts for {len(names)} losses; for each, say how the names of its weights begin"
            )
        return LossName(names, labels, starts)

    def __repr__(self) -> str:
        return "loss"


no_invalid_input = NoInvalidInput()
finite_outputs = FiniteOutputs()
free = Free()
loss = _Loss()


def names_option(name: str, value: Any, source: Any) -> tuple[str, ...] | None:
    """Return the names given for `only` or `nodes`, None if the option is not used.

    Raises:
        PropertyError: It is not a list of names, or an empty one.
    """
    if value is None:
        return None
    if (
        isinstance(value, str)
        or not isinstance(value, list | tuple | set)
        or not all(isinstance(v, str) for v in value)
    ):
        raise PropertyError(f'property: {shorten(source)}: {name} takes a list of names, such as {name}=["Log"]')
    if not value:
        raise PropertyError(f"property: {shorten(source)}: {name} is empty, so nothing would be checked")
    return tuple(value)


def check_operators(only: tuple[str, ...] | None) -> None:
    """Refuse operator types that are not in ONNX and have no row.

    Raises:
        PropertyError: One of them is unknown; the message suggests a similar one.
    """
    rows = {spec.op_type for spec in list_supported()}
    for name in only or ():
        if not onnx.defs.has(name) and name not in rows:
            known = sorted(rows | {schema.name for schema in onnx.defs.get_all_schemas()})
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise PropertyError(f"property: only={name!r} is not an ONNX operator{hint}")
