"""Recurrent layers as their nodes describe them: weights by gate and direction, activations, lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ranum_falsify.transform.attributes import float_attribute, given_attribute, integer_attribute, text_attribute
from ranum_falsify.transform.operands import (
    FLOATS,
    constant_array,
    dtype_of,
    length_of,
    operand,
    rank_of,
    required_constant,
)
from ranum_falsify.transform.rewrite import RefusedError

__all__ = ["ActivationCall", "RecurrentLayer", "Way", "read_layer"]

_LONGEST = 256

_NO_PARAMETERS = ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")
# ONNX Runtime takes 0 for missing parameters of Affine, ScaledTanh and ThresholdedRelu, against the standard.
_DEFAULTS: dict[str, tuple[float | None, ...]] = {
    "Affine": (None, None),
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01,),
    "ScaledTanh": (None, None),
    "ThresholdedRelu": (None,),
}
_THRESHOLDED_RELU = 10  # opset


@dataclass(frozen=True)
class ActivationCall:
    """An activation function.

    Attributes:
        name: The operator of its name, or `Affine` or `ScaledTanh`, which there are none of.
        parameters: Its alpha and beta, as far as it has them.
    """

    name: str
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True)
class Way:
    """One direction of a layer.

    Attributes:
        is_reverse: Whether time runs backwards.
        w: The input weights of each gate, `(input, hidden)`.
        r: The recurrence weights of each gate, `(hidden, hidden)`.
        input_bias: The bias of each gate beside the input, `(hidden)`; None without.
        recurrent_bias: The bias of each gate beside the state, `(hidden)`; None without.
        peepholes: Those of input, output and forget gate, `(hidden)`; None without.
        activations: The activation functions, in the operator's order.
    """

    is_reverse: bool
    w: Sequence[np.ndarray]
    r: Sequence[np.ndarray]
    input_bias: Sequence[np.ndarray] | None
    recurrent_bias: Sequence[np.ndarray] | None
    peepholes: Sequence[np.ndarray] | None
    activations: Sequence[ActivationCall]


@dataclass(frozen=True)
class RecurrentLayer:
    """A recurrent layer with constant weights.

    Attributes:
        x: Its input.
        dtype: The element type.
        steps: How many time steps it takes.
        hidden: The size of its state.
        is_batch_first: Whether the first axis of its input is the batch, not time.
        clip: What the operands of activations are clipped to, 0 for nothing.
        initial: The states that it starts from; None for zeros.
        ways: Its directions.
    """

    x: ir.Value
    dtype: ir.DataType
    steps: int
    hidden: int
    is_batch_first: bool
    clip: float
    initial: Sequence[ir.Value | None]
    ways: Sequence[Way]


def read_layer(node: ir.Node, *, gates: int, functions: Sequence[str], states: int, opset: int) -> RecurrentLayer:
    """Return the layer that a node is.

    Args:
        node: An RNN, a GRU or an LSTM.
        gates: How many gates it has.
        functions: The activation functions of a direction, where the node names none.
        states: How many states it has.
        opset: The opset.

    Raises:
        RefusedError: It cannot be written step by step.
    """
    x = node.inputs[0]
    assert x is not None
    dtype = dtype_of(x, FLOATS)
    if rank_of(x) != 3:
        raise RefusedError(f"{x.name!r} has rank {rank_of(x)}; 3 is wanted")
    is_batch_first = bool(integer_attribute(node, "layout", 0))
    steps = length_of(x, 1 if is_batch_first else 0)
    if steps > _LONGEST:
        raise RefusedError(f"it takes {steps:,} time steps; at most {_LONGEST} are written out")
    _check_lengths(operand(node, 4), steps)
    initial = [_start(operand(node, 5 + state)) for state in range(states)]
    ways = _read_ways(node, gates, functions, opset)
    return RecurrentLayer(
        x=x,
        dtype=dtype,
        steps=steps,
        hidden=len(ways[0].r[0]),
        is_batch_first=is_batch_first,
        clip=max(float_attribute(node, "clip", 0.0), 0.0),
        initial=initial,
        ways=ways,
    )


def _check_lengths(lengths: ir.Value | None, steps: int) -> None:
    if lengths is None:
        return
    array = required_constant(lengths, "the lengths of its sequences (sequence_lens) are")
    if (array != steps).any():
        raise RefusedError(f"its sequences have lengths of their own (sequence_lens); all must be {steps}")


def _start(value: ir.Value | None) -> ir.Value | None:
    """Return an initial state, None where it is zero."""
    array = None if value is None else constant_array(value)
    return None if array is not None and not array.any() else value


def _read_ways(node: ir.Node, gates: int, functions: Sequence[str], opset: int) -> list[Way]:
    name = text_attribute(node, "direction", "forward")
    reversals = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(name)
    if reversals is None:
        raise RefusedError(f"direction {name!r} is unknown")
    w, r = _weights(node, 1, "W"), _weights(node, 2, "R")
    bias, peepholes = _weights(node, 3, "B"), _weights(node, 7, "P")
    assert w is not None and r is not None
    if w.ndim != 3 or r.shape != (len(reversals), gates * r.shape[-1], r.shape[-1]) or w.shape[:2] != r.shape[:2]:
        raise RefusedError(f"its weights have shapes {list(w.shape)} and {list(r.shape)}, which do not fit")
    called = _read_activations(node, functions, len(reversals), opset)
    ways = []
    for number, is_reverse in enumerate(reversals):
        biases = None if bias is None else np.split(bias[number], 2 * gates)
        ways.append(
            Way(
                is_reverse=is_reverse,
                w=[part.T for part in np.split(w[number], gates)],
                r=[part.T for part in np.split(r[number], gates)],
                input_bias=None if biases is None else biases[:gates],
                recurrent_bias=None if biases is None else biases[gates:],
                peepholes=None if peepholes is None else np.split(peepholes[number], 3),
                activations=called[number * len(functions) :][: len(functions)],
            )
        )
    return ways


def _weights(node: ir.Node, position: int, name: str) -> np.ndarray | None:
    value = operand(node, position)
    return None if value is None else required_constant(value, f"its weights {name} are")


def _read_activations(node: ir.Node, functions: Sequence[str], directions: int, opset: int) -> list[ActivationCall]:
    """Return the activation functions of all directions; those with parameters take them in order."""
    given = given_attribute(node, "activations")
    names = [*functions] * directions if given is None else list(given.as_strings())
    if len(names) < len(functions) * directions:
        raise RefusedError(f"it names {len(names)} activations; {len(functions) * directions} are needed")
    known = {name.lower(): name for name in (*_NO_PARAMETERS, *_DEFAULTS)}
    sources: list[list[float]] = []
    for attribute_name in ("activation_alpha", "activation_beta"):
        found = given_attribute(node, attribute_name)
        sources.append([] if found is None else list(found.as_floats()))
    calls = []
    for name in names[: len(functions) * directions]:
        if name.lower() not in known:
            raise RefusedError(f"activation {name!r} is unknown")
        calls.append(_take_parameters(known[name.lower()], sources, opset))
    return calls


def _take_parameters(name: str, sources: Sequence[list[float]], opset: int) -> ActivationCall:
    if name == "ThresholdedRelu" and opset < _THRESHOLDED_RELU:
        raise RefusedError(f"ThresholdedRelu needs opset {_THRESHOLDED_RELU}; convert the model")
    parameters = []
    for source, default in zip(sources, _DEFAULTS.get(name, ()), strict=False):
        value = source.pop(0) if source else default
        if value is None:
            raise RefusedError(f"activation {name} has no parameters; runtimes differ in what they take instead")
        parameters.append(value)
    return ActivationCall(name, tuple(parameters))
