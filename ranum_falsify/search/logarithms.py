"""Slopes where exponentials have none: tensors that come from exponentials, accompanied by their logarithms.

A sum of exponentials that overflow, or are all 0, says nothing about what it is made of; its logarithm does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["Logarithms"]

_Function = Callable[..., Any]


class Logarithms(TorchFunctionMode):
    """While entered, knows the logarithms of what is computed from exponentials; values stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        # Tensors beside their logarithms, so that no other tensor gets the number of one that is gone.
        self._known: dict[int, tuple[Tensor, Tensor]] = {}

    def find(self, x: Tensor) -> Tensor | None:
        """Return the logarithm of a tensor, None where it is not known."""
        known = self._known.get(id(x))
        return None if known is None else known[1]

    def __torch_function__(
        self, func: _Function, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function of torch, and find the logarithm of its result."""
        named = dict(kwargs or {})
        result = func(*args, **named)
        rule = _RULES.get(func)
        if rule is None or not isinstance(result, Tensor) or not result.is_floating_point():
            return result
        logarithm = rule(self, func, args, named)
        if logarithm is not None and logarithm.shape == result.shape:
            self._known[id(result)] = result, logarithm
        return result

    def find_term(self, x: Any, like: Tensor) -> Tensor | None:
        """Return the logarithm of an operand, which may be a positive number."""
        if isinstance(x, Tensor):
            found = self.find(x)
            if found is None and x.numel() == 1 and not torch._C._functorch.is_functorch_wrapped_tensor(x) and x > 0:
                return x.detach().log()
            return found
        return torch.as_tensor(float(x), dtype=like.dtype).log() if x > 0 else None


_Rule = Callable[[Logarithms, _Function, tuple[Any, ...], dict[str, Any]], Tensor | None]


def _exponent(known: Logarithms, func: _Function, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor | None:
    exponent: Tensor = args[0]
    return exponent


def _through(log_of: _Function) -> _Rule:
    """Return the rule of a function that has a kernel for its logarithm."""

    def rule(known: Logarithms, func: _Function, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor | None:
        found: Tensor = log_of(*args, **named)
        return found

    return rule


def _same(known: Logarithms, func: _Function, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor | None:
    """Magnitudes, conversions, selections and whatever is monotone: the same of the logarithm."""
    logarithm = known.find(args[0])
    if logarithm is None:
        return None
    found: Tensor = logarithm if func in _MAGNITUDES else func(logarithm, *args[1:], **named)
    return found


def _total(known: Logarithms, func: _Function, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor | None:
    logarithm = known.find(args[0])
    if logarithm is None:
        return None
    dims = named.get("dim", args[1] if len(args) > 1 else None)
    dims = tuple(range(logarithm.dim())) if dims is None else dims
    keep = named.get("keepdim", args[2] if len(args) > 2 else False)
    return torch.logsumexp(logarithm, dims, keep)


def _combine(combine: _Function) -> _Rule:
    """Return the rule of a function of two operands whose logarithms are combined."""

    def rule(known: Logarithms, func: _Function, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor | None:
        like = next((x for x in args if isinstance(x, Tensor) and known.find(x) is not None), None)
        if like is None or len(args) != 2 or named:
            return None
        first, second = (known.find_term(x, like) for x in args)
        return None if first is None or second is None else combine(first, second)

    return rule


def _chosen(known: Logarithms, func: _Function, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor | None:
    """Of a value and what replaces it in places: the logarithm of the value."""
    values = [known.find(x) for x in args[:0:-1] if isinstance(x, Tensor)] if len(args) == 3 else []
    found = next((x for x in values if x is not None), None)
    return None if found is None else found.expand(np.broadcast_shapes(args[0].shape, found.shape))


def _joined(known: Logarithms, func: _Function, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor | None:
    parts: Sequence[Tensor] = args[0]
    logarithms = [known.find(x) for x in parts]
    if all(x is None for x in logarithms):
        return None
    # Where others are negative, the sign tells enough.
    filled = [x if y is None else y for x, y in zip(parts, logarithms, strict=True)]
    found: Tensor = func(filled, *args[1:], **named)
    return found


_FAMILIES: dict[_Rule, tuple[str, ...]] = {
    _exponent: ("exp",),
    _through(torch.log_softmax): ("softmax",),
    _through(torch.nn.functional.logsigmoid): ("sigmoid",),
    _total: ("sum",),
    _combine(torch.add): ("mul", "__mul__", "__rmul__", "multiply"),
    _combine(torch.sub): ("div", "__truediv__", "true_divide", "divide"),
    _combine(torch.logaddexp): ("add", "__add__", "__radd__"),
    _combine(torch.maximum): ("maximum",),
    _combine(torch.minimum): ("minimum",),
    _chosen: ("where",),
    _joined: ("stack", "cat", "concat"),
    _same: (
        *("abs", "double", "float", "to", "amin", "amax", "nan_to_num", "reshape", "view", "flatten", "unsqueeze"),
        *("squeeze", "expand", "permute", "transpose", "__getitem__", "index_select", "gather", "movedim", "clone"),
    ),
}

_MAGNITUDES = (torch.abs, Tensor.abs)

_RULES: dict[_Function, _Rule] = {
    found: rule
    for rule, names in _FAMILIES.items()
    for name in names
    for place in (torch, Tensor)
    if (found := getattr(place, name, None)) is not None and callable(found)
}
