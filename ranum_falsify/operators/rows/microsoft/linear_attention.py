"""Attention without softmax, and convolutions with a state, as ONNX Runtime had them before ONNX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.rules.support.building import infinity_aware
from ranum_falsify.domain.site import Site
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.rows.transformer_parts import (
    CausalConvWithState,
    LinearAttention,
    convolve_causally,
    convolve_causally_bounds,
    linear_attention,
    linear_attention_bounds,
)
from ranum_falsify.operators.support.microsoft_parts import doing_as
from ranum_falsify.operators.support.microsoft_schemas import DOMAIN, FLOATS, schema

Operand = TypeVar("Operand", Tensor, Interval)


def _refuse(op: Operation, form: str) -> UnsupportedAttributeError:
    return UnsupportedAttributeError(
        f"{DOMAIN}::{type(op).__name__.removeprefix('Microsoft')}: {form} is not supported"
    )


# attention ------------------------------------------------------------------------------------------------------


def _choose(op: Operation, decay: Operand | None, beta: Operand | None) -> tuple[Operand | None, Operand | None]:
    """Return the operands that the rule of a node reads; its kernel leaves out the others.

    Raises:
        UnsupportedAttributeError: ONNX Runtime does not run the form.
    """
    if op.state_window or op.q_num_heads % op.kv_num_heads:
        raise _refuse(op, "a state_window, or fewer queries than keys,")
    reads = {"decay": "gated" in op.update_rule, "beta": "delta" in op.update_rule}
    for (name, is_read), operand in zip(reads.items(), (decay, beta), strict=True):
        if is_read and operand is None:
            raise _refuse(op, f"update_rule {op.update_rule!r} without {name}")
    return decay if reads["decay"] else None, beta if reads["beta"] else None


def _linear(op: Operation, q: Tensor, k: Tensor, v: Tensor, *rest: Tensor | None) -> tuple[Tensor, ...]:
    past, decay, beta = rest
    return linear_attention(op, q, k, v, past, *_choose(op, decay, beta))


def _linear_bounds(site: Site, q: Interval, k: Interval, v: Interval, *rest: Interval | None) -> tuple[Interval, ...]:
    past, decay, beta = rest
    return linear_attention_bounds(site, q, k, v, past, *_choose(site.op, decay, beta))


@doing_as(
    LinearAttention,
    schema(
        "LinearAttention",
        "query:T key:T value:T past_state:T? decay:T? beta:T?",
        "output:T present_state:T",
        {"T": FLOATS},
        defaults={"update_rule": "gated_delta", "scale": 0.0, "chunk_size": 64, "state_window": 0},
        kinds={"q_num_heads": "int", "kv_num_heads": "int"},
    ),
    torch=_linear,
    interval=_linear_bounds,
)
class MicrosoftLinearAttention(LinearAttention):
    """A sum of outer products of keys and values, which queries read."""


# convolutions ---------------------------------------------------------------------------------------------------


def _in_front(op: Operation, x: Tensor) -> Tensor:
    """Return a tensor with its channels, all in one dimension, before its places."""
    return x.flatten(2).transpose(1, 2) if op.channels_last else x


def _behind(op: Operation, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x.transpose(1, 2).reshape(*x.shape[::2], *shape[2:]) if op.channels_last else x


def _check(op: Operation) -> None:
    if op.ndim != 1 or op.state_window:
        raise _refuse(op, "a state_window, or an ndim other than 1,")


def _causal(op: Operation, x: Tensor, w: Tensor, b: Tensor | None, past: Tensor | None) -> tuple[Tensor, ...]:
    _check(op)
    written = convolve_causally(op, _in_front(op, x), w, b, None if past is None else _in_front(op, past))
    return tuple(_behind(op, y, x.shape) for y in written)


@infinity_aware
def _causal_bounds(
    site: Site, x: Interval, w: Interval, b: Interval | None, past: Interval | None
) -> tuple[Interval, ...]:
    op = site.op
    _check(op)
    turn: Callable[[Tensor], Tensor] = lambda bound: _in_front(op, bound)  # noqa: E731
    written = convolve_causally_bounds(site, x.move(turn), w, b, past and past.move(turn))
    return tuple(
        replace(y.move(lambda bound: _behind(op, bound, x.shape)), nan=y.nan, overflows=y.overflows) for y in written
    )


@doing_as(
    CausalConvWithState,
    schema(
        "CausalConvWithState",
        "input:T weight:T bias:T? past_state:T?",
        "output:T present_state:T",
        {"T": FLOATS},
        defaults={"activation": "none", "ndim": 1, "dilation": 1, "channels_last": 0, "state_window": 0},
    ),
    torch=_causal,
    interval=_causal_bounds,
)
class MicrosoftCausalConvWithState(CausalConvWithState):
    """Convolution of each channel with what came before, whose steps may be wide and whose channels may come last."""
