"""The command `check`: whether operators of models can receive invalid input, without a property file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranum_falsify.api.sizes import list_sizes
from ranum_falsify.cli.asking import STATUS, ask, write_reports
from ranum_falsify.cli.commands import PROGRAM
from ranum_falsify.cli.files import check_writable, write_text
from ranum_falsify.cli.options.questions import CheckOptions
from ranum_falsify.cli.output import complain
from ranum_falsify.cli.parser import list_options
from ranum_falsify.config import defaults_of_check
from ranum_falsify.errors import RanumFalsifyError, UsageError
from ranum_falsify.option_marks import MODELS
from ranum_falsify.results.forms import error_record
from ranum_falsify.suite.record import Instance, InstanceRecord

if TYPE_CHECKING:
    from ranum_falsify.api.check_request import ValidityQuestion
    from ranum_falsify.api.loading import BoundProblem
    from ranum_falsify.api.models import Model

_NETWORK = "N"
_UNREADABLE = 2
_WORST_FIRST = (_UNREADABLE, STATUS["violated"], STATUS["unknown"], STATUS["holds"])
_ASKED = ("only", "nodes", "gradient", "free", "passes")
_OF_ONE = ("json", "save_violation", "proof", "print_property", "explain", "list_operators")
"""Options that write or show something of one model."""


def run(options: CheckOptions, *, owns_process: bool = False) -> int:
    """Run the command; see `ask`."""
    options = options.with_defaults(**defaults_of_check(gradient=options.gradient))
    models = list(_list_models(options.models))
    if len(models) > 1:
        return _check_all(options, models)
    if options.print_property is not None:
        _print_property(options, models[0], options.print_property)
        return 0
    load = partial(_load, options, models[0])
    return ask(options, _instance(options, models[0]), load, owns_process=owns_process)


def _list_models(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files as they are given, and the models that folders hold."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = sorted(path.rglob("*.onnx"))
        if not found:
            raise UsageError(f"{path}: holds no *.onnx; give the path of {MODELS}")
        yield from found


def _check_all(options: CheckOptions, models: Sequence[Path]) -> int:
    """Check several models, one after another; one that cannot be read does not prevent the others."""
    given = (one for one in list_options(CheckOptions) if one.field in _OF_ONE and getattr(options, one.field))
    if (single := next(given, None)) is not None:
        raise UsageError(f"{single.name}: is about one model, and {len(models)} are given; give one, or leave it out")
    statuses, records = set[int](), list[InstanceRecord]()
    for model in models:
        asked, load = _instance(options, model), partial(_load, options, model)
        try:
            statuses.add(ask(options, asked, load, owns_process=False, gather=records.append))
        except RanumFalsifyError as error:
            complain([f"{PROGRAM}: {error}"])
            statuses.add(_UNREADABLE)
            records.append(error_record(asked, str(error)))
    write_reports(options, lambda: records, of_suite=True)
    return next(status for status in _WORST_FIRST if status in statuses)


def _instance(options: CheckOptions, model: Path) -> Instance:
    return Instance(
        id=" ".join((str(model), *(("after", *options.passes) if options.passes else ()))),
        category="",
        model=str(model),
        property="",
        networks={_NETWORK: str(model)},
        question=_question(options),
        timeout=options.timeout,
    )


def _read(options: CheckOptions, path: Path, sizes: Mapping[str, int]) -> tuple[ValidityQuestion, Model]:
    """Return the question, and the model after the passes."""
    from ranum_falsify.api.check_request import ValidityQuestion
    from ranum_falsify.api.loading import sample_box
    from ranum_falsify.api.models import load_model  # imports torch
    from ranum_falsify.network.resource_limits import memory_limit

    find_samples = partial(sample_box, box=options.box)
    question = ValidityQuestion(**{name: getattr(options, name) for name in (*_ASKED, "box", "weights", "imports")})
    with memory_limit(options.memory):
        model = load_model(path, dims=sizes, strict=options.strict, find_samples=find_samples)
    # What verifies passes takes more memory than the size of the file explains.
    return question.rewrite(model, options)


def _load(options: CheckOptions, path: Path, sizes: Mapping[str, int]) -> BoundProblem:
    from ranum_falsify.api.check_request import load_statement  # imports torch
    from ranum_falsify.network.resource_limits import memory_limit

    question, model = _read(options, path, sizes)
    with memory_limit(options.memory):
        return load_statement(question.make_statement(model), model, dtype=options.dtype)


def _question(options: CheckOptions) -> Mapping[str, Any]:
    """Return what is asked beside the box, as the arguments of the Python API."""
    given: dict[str, Any] = {name: getattr(options, name) for name in _ASKED}
    if options.free:
        given["weights"] = options.weights
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value}


def _print_property(options: CheckOptions, path: Path, target: str) -> None:
    """Write what is asked as a property file; `-` is standard output."""
    if target != "-":
        check_writable("--print-property", Path(target))
    from ranum_falsify.network.resource_limits import memory_limit  # imports torch

    question, model = _read(options, path, list_sizes(options.dims)[0])
    with memory_limit(options.memory):
        statement = question.make_statement(model)
    runtime = f"--runtime {','.join(options.runtimes)}" if options.prove else "--no-prove"
    made = "" if model.rewriting is None else f"# MODEL: what {PROGRAM} transform makes by {' '.join(options.passes)}\n"
    write_text(target, f"# {PROGRAM} THIS_FILE --network {_NETWORK} MODEL {runtime}\n{made}{statement.text()}")
