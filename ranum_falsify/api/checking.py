"""`check`: whether an operator of a model can receive invalid input, without a property file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Unpack

from ranum_falsify.api.asking import answer_loaded
from ranum_falsify.api.boxes import BoxLike, ranges_of
from ranum_falsify.api.loading import Loaded, load
from ranum_falsify.api.models import Model, ModelLike, model_of
from ranum_falsify.api.properties import Property
from ranum_falsify.api.result import Result
from ranum_falsify.api.settings import Options, settings_of
from ranum_falsify.api.statement import NETWORK, InputRange, Statement
from ranum_falsify.api.weights import DEFAULT_WEIGHTS, FreeLike, WeightsLike, describe_weights, weight_ranges
from ranum_falsify.config import HalfPrecision, Runtime

__all__ = ["check", "load_statement", "make_statement"]

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
            a tensor of zeros.
        **options: See `Options`. `runtime` is `onnxruntime` by default.

    Raises:
        TypeError: There is no such option.
        RanumFalsifyError: The model, the box or an option is invalid; one line says what to do.
    """
    settings = settings_of(options, runtimes=_OF_FILES)
    read = model_of(model, settings.dims)
    statement = make_statement(
        read, box=box, only=only, nodes=nodes, gradient=gradient, free=free or (), weights=weights
    )
    result = answer_loaded(load_statement(statement, read, dtype=settings.dtype), settings)
    return replace(result, statement=statement)


def make_statement(
    model: Model,
    *,
    box: BoxLike | None = None,
    only: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
    gradient: bool = False,
    free: FreeLike = (),
    weights: WeightsLike = DEFAULT_WEIGHTS,
    parameters: Sequence[str] | None = None,
) -> Statement:
    """Return what `check` asks of a model.

    Args:
        model: The model.
        box: See `check`, as for what follows.
        only: Operator types.
        nodes: Names of nodes.
        gradient: Whether derivatives must be finite.
        free: Initializers that range too.
        weights: What they range over.
        parameters: The initializers that `free="all"` means, None to find them.

    Raises:
        UsageError: The box does not fit the inputs, or an initializer cannot range.
        ModelError: There is no such initializer.
    """
    ranges = ranges_of(model.graph, box)
    freed = weight_ranges(model.graph, free, weights, parameters=parameters)
    return Statement(
        ranges=(*ranges, *freed),
        only=None if only is None else tuple(only),
        nodes=None if nodes is None else tuple(nodes),
        gradient=gradient,
        free=tuple(one.name for one in freed),
        notices=(*_describe_defaults(ranges), *([describe_weights(freed, weights)] if freed else [])),
    )


def _describe_defaults(ranges: Sequence[InputRange]) -> Iterator[str]:
    """Yield what users should know of ranges that they did not give, one sentence if there are any."""
    groups: dict[str, list[str]] = {}
    for one in ranges:
        if one.default:
            groups.setdefault(f"[{one.lower:.9g}, {one.upper:.9g}] ({one.default})", []).append(one.name)
    if groups:
        parts = ", ".join(f"{', '.join(names)} in {text}" for text, names in groups.items())
        yield f"no box was given for {parts}; box={{name: (lower, upper)}} gives one"


def load_statement(statement: Statement, model: Model, *, dtype: HalfPrecision | None = None) -> Loaded:
    """Reduce what `check` asks of a model.

    Args:
        statement: The question.
        model: The model.
        dtype: Half precision that it is converted to.

    Raises:
        PropertyError: The question does not fit the model.
        ModelError: The model cannot be converted.
    """
    loaded = load(Property(phi=statement.expression(), name="check"), {NETWORK: model}, dtype=dtype)
    return replace(loaded, notices=(*statement.notices, *loaded.notices), default_inputs=statement.defaults)
