"""Words that property files may use beside DNNV's.

DNNV's parser turns every call into a `Call` expression of the called object, and calls it at once where all arguments
are constants.  So the words are objects: the reduction recognises them, and a call that gets through is a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from ranum_falsify.errors import PropertyError

__all__ = ["FiniteOutputs", "Free", "LossName", "NoInvalidInput", "finite_outputs", "free", "loss", "no_invalid_input"]


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
        one_hot: Inputs each row of which is 0 but for a single 1.
    """

    names: tuple[str, ...]
    one_hot: tuple[str, ...] = ()


class _Loss:
    """`loss("cost", one_hot=["y"])`: what training makes small, a node or an output, and labels that are one-hot."""

    def __init__(self) -> None:
        self.__name__ = self.__qualname__ = "loss"

    def __call__(self, *names: Any, one_hot: Any = ()) -> LossName:
        labels = (one_hot,) if isinstance(one_hot, str) else tuple(one_hot)
        if not names or not all(isinstance(name, str) for name in (*names, *labels)):
            raise PropertyError('loss is written as loss("cost"), with the name of a node or of an output')
        return LossName(names, labels)

    def __repr__(self) -> str:
        return "loss"


no_invalid_input = NoInvalidInput()
finite_outputs = FiniteOutputs()
free = Free()
loss = _Loss()
