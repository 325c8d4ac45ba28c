"""`check`: whether an operator of a model can receive invalid input, without a property file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ranum_falsify.api.boxes import BoxLike
from ranum_falsify.api.models import ModelLike, model_of
from ranum_falsify.api.question import ValidityQuestion
from ranum_falsify.api.result import Result
from ranum_falsify.api.settings import Options, settings_of
from ranum_falsify.api.weights import DEFAULT_WEIGHTS, FreeLike, WeightsLike
from ranum_falsify.config import Runtime

__all__ = ["check"]

_OF_FILES: tuple[Runtime, ...] = ("onnxruntime",)


def check(
    model: ModelLike,
    *,
    box: BoxLike | None = None,
    only: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
    gradient: bool = False,
    free: FreeLike | None = None,
    weights: WeightsLike = DEFAULT_WEIGHTS,
    **options: Unpack[Options],
) -> Result:
    """Ask whether an operator of a model can receive input on which it makes NaN or infinity.

    Args:
        model: A loaded model, a path, an `onnx.ModelProto`, or bytes.
        box: What the inputs range over: `(lower, upper)` for all, or a mapping from names of inputs, in which `...`
            stands for all others. Bounds are numbers, or arrays that broadcast to the input's shape; a single value in
            place of a pair does not vary. What is left out has a default, which the answer names: images [0, 1], other
            floating numbers [-1, 1], indices those of the table that they choose from, booleans both.
        only: ONNX operator types to look at; all by default.
        nodes: Names of ONNX nodes to look at; all by default.
        gradient: Whether derivatives must be finite too.
        free: Initializers that range too, as weights do in training: their names, or "all", which leaves out scalars.
        weights: What they range over: a share of each value, or `(lower, upper)` for all. With a share of 0.1 a value
            ranges over itself +- 10 %, a value of 0 over +- 10 % of the largest magnitude of its tensor, and +- 0.1 in
            a tensor of zeros. `box` says otherwise of those that it names.
        **options: See `Options`. `runtime` is `onnxruntime` by default.

    Raises:
        TypeError: There is no such option.
        RanumFalsifyError: The model, the box or an option is invalid; one line says what to do.
    """
    settings = settings_of(options, runtimes=_OF_FILES)
    question = ValidityQuestion(box=box, only=only, nodes=nodes, gradient=gradient, free=free, weights=weights)
    return question.ask(model_of(model, settings.dims), settings)
