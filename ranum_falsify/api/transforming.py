"""`transform`: rewrite a model by passes, each verified after it ran."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ranum_falsify.api.boxes import BoxLike
from ranum_falsify.api.loading import sample_box
from ranum_falsify.api.models import Model, ModelLike, load_model, parse_model
from ranum_falsify.api.plain_torch import PlainTorch
from ranum_falsify.config import Options
from ranum_falsify.errors import TransformError, UsageError
from ranum_falsify.network.fingerprint import Fingerprint
from ranum_falsify.results.transform_report import report_pass, transform_report
from ranum_falsify.rewrite.catalogue import all_passes, import_passes
from ranum_falsify.rewrite.checks.comparing import Tolerance
from ranum_falsify.rewrite.checks.inputs import Box
from ranum_falsify.rewrite.config import Reference, TransformConfig
from ranum_falsify.rewrite.model import (
    count_operators,
    from_proto,
    read_model,
    to_proto,
    to_whole_proto,
    write_model,
)
from ranum_falsify.rewrite.outcome import PassReport, PostconditionError, Transformed
from ranum_falsify.rewrite.runner import SECONDS
from ranum_falsify.rewrite.runner import transform as run_passes
from ranum_falsify.verify.prove.assumptions import Rewriting

_SHARE = 0.25
"""Share of the time of a question that its passes may take for proofs and searches."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Transformation:
    """A model after passes that were all verified.

    Attributes:
        done: The model as onnx-ir holds it, with what is known of it.
    """

    done: Transformed

    @property
    def model(self) -> onnx.ModelProto:
        """The model; tensors that lie in files of their own stay there."""
        return to_proto(self.done.model)

    @property
    def passes(self) -> tuple[PassReport, ...]:
        """What each pass did, and how that was verified."""
        return tuple(self.done.reports)

    @property
    def notices(self) -> tuple[str, ...]:
        """What a user should know, one sentence each."""
        return tuple(self.done.notices)

    @property
    def state(self) -> Mapping[str, Any]:
        """What analyses found, by the name of the pass."""
        return self.done.state

    @property
    def operators(self) -> Mapping[str, int]:
        """How often each operator occurs in the model."""
        return count_operators(self.done.model)

    def save(self, path: str | Path) -> None:
        """Write the model, with its weights in `<path>.data` where they lay in a file of their own.

        Raises:
            SaveError: It cannot be written.
        """
        write_model(self.done.model, Path(path))

    def to_json(self) -> dict[str, Any]:
        """Return the report as `transform --json` writes it; docs/transform.md explains it."""
        return transform_report(self.passes, operators=dict(self.operators), notices=list(self.notices))

    def __str__(self) -> str:
        lines = [line for report in self.passes for line in report_pass(report, verbose=True)]
        return "\n".join([*lines, *(f"notice: {notice}" for notice in self.notices)])

    def __repr__(self) -> str:
        return f"Transformation({', '.join(report.name for report in self.passes)})"


@PlainTorch()
def transform(
    model: ModelLike,
    passes: Sequence[str | type],
    *,
    box: BoxLike | None = None,
    references: Sequence[Mapping[str, np.ndarray] | Sequence[np.ndarray]] = (),
    samples: int | None = None,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    metrics: Mapping[str, tuple[float, float]] | None = None,
    verify_timeout: float | None = None,
    imports: Sequence[str | Path] = (),
    state: Mapping[str, Any] | None = None,
) -> Transformation:
    """Rewrite a model by passes, one after the other, each verified before the next runs.

    Args:
        model: A path, an `onnx.ModelProto`, bytes, or a loaded model.
        passes: Their names, `name=argument` for those that take one, or their classes.
        box: What inputs range over: `(lower, upper)` for all, or a mapping from names, in which `...` stands for all
            others. Inputs without a range are drawn from a quarter of what their type holds.
        references: Inputs to compare the models on, beside those that are drawn: arrays by name, or in order.
        samples: How many inputs are drawn; by default 64, or fewer where one takes long.
        seed: Seed of the draws.
        dims: Sizes of symbolic dimensions; by default several with which the model runs.
        rtol: Relative tolerance of passes that promise one; by default that of the element type.
        atol: Absolute tolerance, likewise.
        metrics: Least and greatest value by metric, for passes that promise one; see `ranum_falsify.rewrite.metric`.
        verify_timeout: Seconds for a proof or a search after each pass; by default 5 where all inputs have a range.
        imports: Python files that register passes and metrics, with all rights of the user.
        state: What analyses of earlier runs found: their `state`.

    Raises:
        PostconditionError: A pass did not keep its promise; it holds the model before the pass, and its cause the input
            that shows it.
        RanumFalsifyError: The model, a pass or an option is invalid; one line says what to do.
    """
    for path in imports:
        import_passes(Path(path))
    source, folder = _source_of(model)
    inputs = [value.name or "" for value in source.graph.inputs if not value.is_initializer()]
    config = TransformConfig(
        references=[Reference(one) for one in references],
        samples=samples,
        seed=seed,
        box={} if box is None else spread_box(box if isinstance(box, Mapping) else {...: box}, inputs),
        dims=dims or {},
        tolerance=Tolerance(rtol=rtol, atol=Tolerance.atol if atol is None else atol),
        metrics=metrics or {},
        verify_timeout=verify_timeout,
        state=state or {},
    )
    return Transformation(done=run_passes(source, [_name_of(one) for one in passes], config, folder=folder))


def rewrite_model(
    model: Model, passes: Sequence[str | type], *, box: BoxLike, imports: Sequence[str | Path], options: Options
) -> Model:
    """Return what passes make of a model, read in the same sizes; the same model where they change nothing.

    Args:
        model: The model.
        passes: As for `transform`.
        box: Where they must keep their promises.
        imports: Python files that register some of them.
        options: How the new model is read, and how much time there is: a quarter of it for all proofs and searches.

    Raises:
        RanumFalsifyError: A pass does not exist, does not apply, or did not keep its promise.
    """
    began = time.monotonic()
    sizes = {**model.graph.assumed_dims, **model.graph.options.dims}
    limit = math.inf if options.timeout is None else _SHARE * options.timeout / len(passes)
    try:
        made = transform(
            model, passes, box=box, dims=sizes, seed=options.seed, verify_timeout=min(SECONDS, limit), imports=imports
        )
    except PostconditionError as error:
        raise TransformError(
            f"{error} ({error.__cause__}); `ranum-falsify transform` writes the input that shows it"
        ) from error
    told = tuple(next(report_pass(report, verbose=False)) for report in made.passes)
    if not any(report.is_modified for report in made.passes):
        return replace(model, notices=(*told, "no pass changed the model, so the answer is about the model as it is"))
    found = load_model(
        to_whole_proto(made.done.model),
        dims=model.graph.options.dims,
        strict=options.strict,
        find_samples=partial(sample_box, box=box),
    )
    rewriting = Rewriting(passes=tuple(report.name for report in made.passes), before=model.source)
    source = Fingerprint(path=rewriting.title, sha256=hashlib.sha256(found.data()).hexdigest())
    return replace(
        found,
        source=source,
        seconds=model.seconds + time.monotonic() - began,
        rewriting=rewriting,
        notices=(*told, *made.notices),
    )


def spread_box(box: Mapping[str | EllipsisType, Any], inputs: Sequence[str]) -> Box:
    """Return the range of each input; an ellipsis stands for those that are not named.

    Raises:
        UsageError: A range holds no finite numbers.
    """
    ranges: dict[str, tuple[Any, Any]] = {}
    for name, bounds in box.items():
        pair = bounds if isinstance(bounds, tuple | list) else (bounds, bounds)
        low, high = (np.asarray(bound, dtype=np.float64)[()] for bound in pair)
        if not bool(np.all((-np.inf < low) & (low <= high) & (high < np.inf))):
            where = "" if name is ... else f" of {name!r}"
            raise UsageError(f"box{where}: holds no finite numbers; give LO and HI with LO <= HI")
        for key in inputs if isinstance(name, EllipsisType) else [name]:
            if name is not ... or key not in box:
                ranges[key] = low, high
    return ranges


def _source_of(model: ModelLike) -> tuple[ir.Model, Path]:
    """Return a model for passes, and the folder in which its external data lies."""
    if isinstance(model, Model):
        model = model.data() if model.path is None else model.path
    if isinstance(model, str | Path):
        return read_model(Path(model)), Path(model).resolve().parent
    return from_proto(parse_model(model), "model"), Path.cwd()


def _name_of(one: str | type) -> str:
    if isinstance(one, str):
        return one
    for spec in all_passes():
        if spec.make is one:
            return spec.name
    raise TransformError(f"pass {one!r} is not registered; put @register() above its class")
