"""Words that property files may use beside DNNV's.

DNNV's parser turns every call into a `Call` expression of the called object, and calls it at once where all arguments
are constants.  So the words are objects: the reduction recognises them, and a call that gets through is a mistake.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ranum_falsify.errors import PropertyError

__all__ = ["FiniteOutputs", "Free", "NoInvalidInput", "finite_outputs", "free", "no_invalid_input"]


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
    """`free(N, "W", "b")`: the network with these initializers as further inputs, after the others."""

    usage = 'free(N, "W", "b")'


no_invalid_input = NoInvalidInput()
finite_outputs = FiniteOutputs()
free = Free()
