"""`check`: whether an operator of a model can receive invalid input, without a property file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from ranum_falsify.api.asking import answered
from ranum_falsify.api.boxes import BoxLike, ranges_of
from ranum_falsify.api.loading import load
from ranum_falsify.api.models import ModelLike, model_of
from ranum_falsify.api.properties import Property
from ranum_falsify.api.result import Result
from ranum_falsify.api.settings import Options, settings_of
from ranum_falsify.api.statement import NETWORK, Statement
from ranum_falsify.config import Runtime

__all__ = ["check"]

_OF_FILES: tuple[Runtime, ...] = ("onnxruntime",)


def check(
    model: ModelLike,
    *,
    box: BoxLike,
    only: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
    gradient: bool = False,
    **options: Unpack[Options],
) -> Result:
    """Ask whether an operator of a model can receive input on which it makes NaN or infinity.

    Args:
        model: A loaded model, a path, an `onnx.ModelProto`, or bytes.
        box: What the inputs range over: `(lower, upper)` for all, or a mapping from names of inputs, in which `...`
            stands for all others. Bounds are numbers, or arrays that broadcast to the input's shape; a single value in
            place of a pair does not vary.
        only: ONNX operator types to look at; all by default.
        nodes: Names of ONNX nodes to look at; all by default.
        gradient: Whether derivatives must be finite too.
        **options: See `Options`. `runtime` is `onnxruntime` by default.

    Raises:
        TypeError: There is no such option.
        RanumFalsifyError: The model, the box or an option is invalid; one line says what to do.
    """
    settings = settings_of(options, runtimes=_OF_FILES)
    read = model_of(model, settings.dims)
    statement = Statement(
        ranges=ranges_of(read.graph, box),
        only=None if only is None else tuple(only),
        nodes=None if nodes is None else tuple(nodes),
        gradient=gradient,
    )
    prop = Property(phi=statement.expression(), name="check")
    result = answered(load(prop, {NETWORK: read}, dtype=settings.dtype), settings)
    return replace(result, property_text=statement.text())
