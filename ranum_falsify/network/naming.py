"""Unique names, for nodes and tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

_MOST_NAMED = 4


class UniqueNames:
    """Hands out names that differ from each other and from those taken before."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._next: dict[str, int] = dict.fromkeys(taken, 2)

    def copy(self) -> UniqueNames:
        """Return a twin that takes names by itself."""
        return UniqueNames(self._next)

    def take(self, name: str) -> str:
        """Return the name, with a number appended if it is taken."""
        if name not in self._next:
            self._next[name] = 2
            return name
        while (numbered := f"{name}_{self._next[name]}") in self._next:
            self._next[name] += 1
        self._next[numbered] = 2
        return numbered


def tensor_name(op: Operation) -> str:
    """Return the ONNX name of an operation's first output, or of the output that an output selection selects."""
    if isinstance(op, Input):
        return str(op.name)
    names, index = (op.operation.output_names, op.index) if isinstance(op, OutputSelect) else (op.output_names, 0)
    return str(names[index])


def list_names(noun: str, names: Sequence[str]) -> str:
    """Return what sentences call things of one kind: `input 'x'`, or `inputs 'x', 'y'`, and how many more there are."""
    listed = ", ".join(map(repr, names[:_MOST_NAMED]))
    more = len(names) - _MOST_NAMED
    return f"{noun}{'s' * (len(names) > 1)} {listed}" + (f" and {more} more" if more > 0 else "")
