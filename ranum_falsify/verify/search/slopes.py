"""Slopes where functions have none: straight-through estimates, and tensors accompanied by their logarithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_Function = Callable[..., Any]
_Entry = TypeVar("_Entry")


class Estimates(TorchFunctionMode):
    """While entered, derivatives of flat functions are estimated; values are what they are without it.

    By `FLAT` or `CLIPPED`, the derivatives of other functions stand for theirs.  `used` tells whether a gradient came
    through an estimate.
    """

    def __init__(self, functions: Mapping[_Function, _Function] | None = None) -> None:
        super().__init__()
        self._smooth = FLAT if functions is None else functions
        self.used = False
        # Tensors beside their companions, so that no other tensor gets the number of one that is gone.
        self._companions: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: _Function, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function of torch, and what estimates its derivative."""
        named = dict(kwargs or {})
        result = func(*args, **named)
        if not isinstance(result, Tensor) or not torch.is_grad_enabled():
            return result
        smooth = self._smooth.get(func)
        is_flat = smooth is not None and smooth is not _turn and not (smooth is _convert and result.is_floating_point())
        # What is not flat itself passes on the derivatives of what it reads.
        if not is_flat and not any(id(x) in self._companions for x in args if isinstance(x, Tensor)):
            return result
        return self._estimate(result, smooth or func, args, named)

    def _estimate(self, result: Tensor, smooth: _Function, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        """Return the result with the derivative of another function, or with a companion that has it."""
        try:
            slope = smooth(*map(self._find_companion, args), **named)
            slope = result + slope if smooth is _turn else slope
        except (RuntimeError, TypeError, IndexError):
            return result  # indices, masks and bits: numbers in between mean nothing
        if not isinstance(slope, Tensor) or not slope.is_floating_point() or slope.shape != result.shape:
            return result
        if result.is_floating_point():
            estimated: Tensor = _StraightThrough.apply(result, slope.to(result.dtype), self._note)  # type: ignore[no-untyped-call]
            return estimated
        self._companions[id(result)] = result, slope
        return result

    def _note(self) -> None:
        self.used = True

    def _find_companion(self, x: Any) -> Any:
        known = self._companions.get(id(x))
        return x if known is None else known[1]


class _StraightThrough(torch.autograd.Function):
    """The first operand's value, the second one's derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, slope: Tensor, note: Callable[[], None]) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Callable[[], None]], output: Tensor) -> None:
        ctx.note = inputs[2]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        ctx.note()
        return None, gradients[0], None


# functions that run near flat ones ----------------------------------------------------------------------------------


def _itself(x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x


def _bend(x: Tensor) -> Tensor:
    """Rise from -1 to 1, steepest at 0."""
    return x / (1 + x.abs())


def _exceed(a: Any, b: Any) -> Tensor:
    """Rise from 0 where `a` is far below `b` to 1 where it is far above."""
    return (1 + _bend(_as_float(a) - _as_float(b))) / 2


def _fall_below(a: Any, b: Any) -> Tensor:
    return _exceed(b, a)


def _as_float(x: Any) -> Tensor:
    tensor = torch.as_tensor(x)
    return tensor if tensor.is_floating_point() else tensor.float()


def _turn(condition: Tensor, a: Any, b: Any) -> Tensor:
    """Rise with the share of the condition; what is chosen has its own derivative."""
    if not condition.is_floating_point():
        raise TypeError("nothing is known of the condition")
    # An end that is infinite, as those of masks are, has no slope.
    high, low = (torch.nan_to_num(torch.as_tensor(x).detach().float(), posinf=0, neginf=0) for x in (a, b))
    return condition * (high - low)


def _both(a: Tensor, b: Tensor) -> Tensor:
    return _as_float(a) * _as_float(b)


def _either(a: Tensor, b: Tensor) -> Tensor:
    return _not(_both(_not(a), _not(b)))


def _one_of(a: Tensor, b: Tensor) -> Tensor:
    return _both(_either(a, b), _not(_both(a, b)))


def _not(a: Tensor) -> Tensor:
    return 1 - _as_float(a)


def _convert(x: Tensor, *_: Any, **__: Any) -> Tensor:
    return _as_float(x)


def _pass_constant(a: Tensor, b: Tensor) -> Tensor:
    """Return what is compared with a constant."""
    if _is_constant(a) == _is_constant(b):
        raise TypeError("neither is a limit")
    return b if _is_constant(a) else a


def _is_constant(x: Tensor) -> bool:
    return not (x.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(x))


_FAMILIES: dict[_Function, tuple[str, ...]] = {
    _itself: ("round", "floor", "ceil", "trunc", "fix"),
    _bend: ("sign", "sgn"),
    _exceed: ("gt", "ge", "greater", "greater_equal", "__gt__", "__ge__"),
    _fall_below: ("lt", "le", "less", "less_equal", "__lt__", "__le__"),
    _both: ("logical_and", "__and__", "bitwise_and"),
    _either: ("logical_or", "__or__", "bitwise_or"),
    _one_of: ("logical_xor", "__xor__", "bitwise_xor"),
    _not: ("logical_not", "__invert__", "bitwise_not"),
    _turn: ("where",),
    _convert: ("to", "type", "int", "long", "short", "char", "byte", "float", "double", "half", "bfloat16", "bool"),
}

_CLIPPED_FAMILIES: dict[_Function, tuple[str, ...]] = {
    _itself: ("clamp", "clip", "clamp_min", "clamp_max"),
    _pass_constant: ("minimum", "maximum"),
}


def _list_functions(families: Mapping[_Entry, tuple[str, ...]]) -> dict[_Function, _Entry]:
    """Return the functions of torch that have these names, each with the entry of its family."""
    return {
        found: entry
        for entry, names in families.items()
        for name in names
        for place in (torch, Tensor)
        if (found := getattr(place, name, None)) is not None and callable(found) and not isinstance(found, torch.dtype)
    }


FLAT = _list_functions(_FAMILIES)
"""Functions that are flat almost everywhere."""

CLIPPED = _list_functions(_CLIPPED_FAMILIES)
"""Functions that are flat beyond a constant."""


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


_LOGARITHM_FAMILIES: dict[_Rule, tuple[str, ...]] = {
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

_RULES = _list_functions(_LOGARITHM_FAMILIES)
