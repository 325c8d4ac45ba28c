"""The command `check`: whether an operator of a model can receive invalid input, without a property file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranum_falsify.api.sizes import list_sizes
from ranum_falsify.cli.asking import ask
from ranum_falsify.cli.files import check_writable, write_text
from ranum_falsify.cli.options.check import CheckOptions
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.suite.instance import Instance

if TYPE_CHECKING:
    from ranum_falsify.api.loading import Loaded
    from ranum_falsify.api.models import Model
    from ranum_falsify.api.statement import Statement

__all__ = ["run"]

_NETWORK = "N"


def run(options: CheckOptions, *, owns_process: bool = False) -> int:
    """Run the command.

    Args:
        options: What the user asks for.
        owns_process: Whether the process may be ended where a library does not return in time.

    Raises:
        RanumFalsifyError: The user's input is invalid.
    """
    options = options if options.runtime is not None else replace(options, runtime="onnxruntime")
    if options.print_property is not None:
        _print_property(options, options.print_property)
        return 0
    asked = Instance(
        id=str(options.model),
        category="",
        model=str(options.model),
        property="",
        networks={_NETWORK: str(options.model)},
        question=_question(options),
        timeout=options.timeout,
    )
    return ask(options, asked, lambda sizes: _load(options, sizes), owns_process=owns_process)


def _state(options: CheckOptions, sizes: Mapping[str, int]) -> tuple[Model, Statement]:
    from ranum_falsify.api.models import load_model  # imports torch
    from ranum_falsify.api.question import ValidityQuestion
    from ranum_falsify.api.samples import sample_box

    find_samples = partial(sample_box, box=options.box)
    model = load_model(options.model, dims=sizes, strict=options.strict, find_samples=find_samples)
    question = ValidityQuestion(
        box=options.box,
        only=options.only,
        nodes=options.nodes,
        gradient=options.gradient,
        free=options.free,
        weights=options.weights,
    )
    return model, question.make_statement(model)


def _load(options: CheckOptions, sizes: Mapping[str, int]) -> Loaded:
    from ranum_falsify.api.question import load_statement  # imports torch
    from ranum_falsify.network.guards import memory_limit

    with memory_limit(options.memory):
        model, statement = _state(options, sizes)
        return load_statement(statement, model, dtype=options.dtype)


def _question(options: CheckOptions) -> Mapping[str, Any]:
    """Return what is asked beside the box, as the arguments of the Python API."""
    given: dict[str, Any] = {name: getattr(options, name) for name in ("only", "nodes", "gradient", "free")}
    if options.free:
        given["weights"] = options.weights
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value}


def _print_property(options: CheckOptions, target: str) -> None:
    """Write what is asked as a property file; `-` is standard output.

    Raises:
        RanumFalsifyError: The question does not fit the model, or the file cannot be written.
    """
    if target != "-":
        check_writable("--print-property", Path(target))
    from ranum_falsify.network.guards import memory_limit  # imports torch

    with memory_limit(options.memory):
        _, statement = _state(options, list_sizes(options.dims)[0])
    runtime = f"--runtime {','.join(options.runtimes)}" if options.prove else "--no-prove"
    write_text(target, f"# {PROGRAM} THIS_FILE --network {_NETWORK} MODEL {runtime}\n{statement.text()}")
