"""The question that `check` asks about a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ranum_falsify.api.boxes import (
    DEFAULT_WEIGHTS,
    BoxLike,
    FreeLike,
    WeightsLike,
    describe_weights,
    ranges_of,
    weight_ranges,
)
from ranum_falsify.api.entry_points import Refute, answer_loaded, ask_in_time
from ranum_falsify.api.generated_property import NETWORK, InputRange, Statement
from ranum_falsify.api.loading import BoundProblem, load
from ranum_falsify.api.models import Model
from ranum_falsify.api.properties import Property
from ranum_falsify.api.result import Result
from ranum_falsify.config import HalfPrecision, Options
from ranum_falsify.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ValidityQuestion:
    """Whether an operator can receive invalid input.

    Attributes:
        box: What the inputs range over, and by name what freed initializers do; inputs that it leaves out have a
            default.
        only: ONNX operator types to look at; all if None.
        nodes: ONNX node names to look at; all if None.
        gradient: Whether the derivative of every operator must be finite too.
        free: Initializers that range too; "all" for those that are weights, none if None.
        weights: What they range over, those in `box` aside.
        passes: Passes of `transform` that make the model that is asked about of the one that is given.
        imports: Python files that register some of them.
        ranges: What the inputs range over where that is known, in place of `box`.
    """

    box: BoxLike | None = None
    only: Sequence[str] | None = None
    nodes: Sequence[str] | None = None
    gradient: bool = False
    free: FreeLike | None = None
    weights: WeightsLike = DEFAULT_WEIGHTS
    passes: Sequence[str | type] = ()
    imports: Sequence[str | Path] = ()
    ranges: Sequence[InputRange] | None = None

    def __post_init__(self) -> None:
        """Check the passes."""
        if isinstance(self.passes, str):
            raise UsageError(f"passes={self.passes!r}: is no list; give [{self.passes!r}]")
        if self.imports and not self.passes:
            raise UsageError("imports: no pass is named; name some by --passes NAME (passes= in Python)")

    def ask(self, read: Callable[[], Model], options: Options, refute: Refute = lambda _: None) -> Result:
        """Answer the question about a model.

        Args:
            read: Reads the model.
            options: How to answer; the timeout is for reading, too.
            refute: See `decide.falsify`.

        Raises:
            RanumFalsifyError: The model cannot be read, or the question does not fit it.
        """

        def state() -> tuple[Statement, BoundProblem]:
            question, model = self.rewrite(read(), options)
            statement = question.make_statement(model)
            return statement, load_statement(statement, model, dtype=options.dtype)

        def answer(found: tuple[Statement, BoundProblem], left: Options) -> Result:
            statement, loaded = found
            return replace(answer_loaded(loaded, left, refute), statement=statement)

        return ask_in_time(state, answer, options)

    def rewrite(self, model: Model, options: Options) -> tuple[ValidityQuestion, Model]:
        """Return the question and the model after the passes; both as they are where there are none.

        The passes are verified where the inputs of the model range, defaults included, which hold for the new one, too.

        Raises:
            TransformError: A pass does not keep its promise, or there is no such pass.
            UsageError: The box does not fit the inputs.
        """
        if not self.passes:
            return self, model
        from ranum_falsify.api.transforming import rewrite_model  # imports onnxscript

        ranges, _ = self._find_ranges(model)
        made = rewrite_model(
            model,
            self.passes,
            box={one.name: (one.lower, one.upper) for one in ranges},
            imports=self.imports,
            options=options,
        )
        return replace(self, ranges=ranges), made

    def _find_ranges(self, model: Model) -> tuple[Sequence[InputRange], Sequence[InputRange]]:
        """Return what the inputs of a model range over, and what freed initializers do."""
        given = self.box if isinstance(self.box, Mapping) else {}
        freed = weight_ranges(model.graph, self.free or (), self.weights, given)
        if self.ranges is not None:
            return self.ranges, freed
        names = {one.name for one in freed}
        box = {name: one for name, one in given.items() if name not in names} if given else self.box
        return ranges_of(model.graph, box), freed

    def make_statement(self, model: Model) -> Statement:
        """Return the question as a property of a model.

        Raises:
            UsageError: The box does not fit the inputs, or an initializer cannot range.
        """
        ranges, freed = self._find_ranges(model)
        if not (ranges or freed):
            raise UsageError(
                "the model has no inputs, so one run of it shows all that it does; to ask about its weights, let some "
                "range by --free NAME (free= in Python)"
            )
        named = self.box if isinstance(self.box, Mapping) else {}
        described = [describe_weights(freed, self.weights, named)] if freed else []
        return Statement(
            ranges=(*ranges, *freed),
            only=None if self.only is None else tuple(self.only),
            nodes=None if self.nodes is None else tuple(self.nodes),
            gradient=self.gradient,
            free=tuple(one.name for one in freed),
            notices=(*_describe_defaults(ranges), *described),
        )


def load_statement(statement: Statement, model: Model, *, dtype: HalfPrecision | None = None) -> BoundProblem:
    """Reduce what is asked of a model."""
    loaded = load(Property(phi=statement.expression(), name="check"), {NETWORK: model}, dtype=dtype)
    return replace(loaded, notices=(*statement.notices, *loaded.notices), default_inputs=statement.defaults)


def _describe_defaults(ranges: Sequence[InputRange]) -> Iterator[str]:
    """Yield what users should know of ranges that they did not give, one sentence if there are any."""
    groups: dict[str, list[str]] = {}
    for one in ranges:
        if one.default:
            groups.setdefault(f"[{one.lower:.9g}, {one.upper:.9g}] ({one.default})", []).append(one.name)
    if groups:
        parts = ", ".join(f"{', '.join(names)} in {text}" for text, names in groups.items())
        yield f"no box was given for {parts}; box={{name: (lower, upper)}}, or --box NAME=LO,HI, gives one"
