"""The command `fix`: repair a model so that a property of it is proved."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ranum_falsify.cli.files import check_writable, is_stream, write_json
from ranum_falsify.cli.options.fix import FixOptions
from ranum_falsify.cli.output import say
from ranum_falsify.cli.progress import show_progress
from ranum_falsify.cli.reading import load_files
from ranum_falsify.cli.streams import verdict_stands
from ranum_falsify.errors import UsageError

if TYPE_CHECKING:
    from ranum_falsify.api.loading import BoundProblem
    from ranum_falsify.repair.repairing import Repairs
    from ranum_falsify.verify.prove.assumptions import Assumptions

_PROVED, _OPEN, _AT_A_LOSS = 0, 3, 4


def run(options: FixOptions) -> int:
    """Run the command.

    Raises:
        RanumFalsifyError: The user's input is invalid, or there is nothing to repair.
    """
    began = time.monotonic()
    assert options.output is not None
    check_writable("--output", options.output)
    if options.json is not None and options.json != "-" and not is_stream(Path(options.json)):
        check_writable("--json", Path(options.json))
        if Path(options.json).resolve() == options.output.resolve():
            raise UsageError(f"--json {options.json}: the repaired model goes there; choose another name")
    loaded = load_files(
        options.property_path,
        options.networks,
        vnnlib=options.vnnlib,
        parameters=options.parameters,
        dims=options.dims,
        strict=options.strict,
        memory=options.memory,
    )
    from ranum_falsify.api.fixing import find_repairs  # imports onnxscript

    with show_progress(options.verbosity) as progress:
        found = find_repairs(loaded, options, self_check=options.self_check, progress=progress)
    _write(found, options.output)
    _report(found, loaded, options, time.monotonic() - began)
    return _status(found)


def _status(found: Repairs) -> int:
    """Return the exit status of the repair that is written."""
    if not found.repairs or found.repairs[0].standing != "proved":
        return _OPEN
    return _AT_A_LOSS if found.repairs[0].loss else _PROVED


def _write(found: Repairs, output: Path) -> None:
    """Write the best repair whole or not at all.

    Raises:
        SaveError: It cannot be written.
    """
    if not found.repairs:
        return
    import onnx_ir as ir

    from ranum_falsify.rewrite.model import write_model

    write_model(ir.from_proto(found.repairs[0].model), output)


def _report(found: Repairs, loaded: BoundProblem, options: FixOptions, seconds: float) -> None:
    from ranum_falsify.results import fix_report

    output = options.output if found.repairs else None
    assumptions = _assumptions(found, loaded)
    if options.json is not None:
        with verdict_stands():
            write_json(options.json, fix_report.as_json(found, output=output, seconds=seconds, assumptions=assumptions))
    if options.json != "-":
        with verdict_stands():
            say(
                fix_report.lines(
                    found, output=output, seconds=seconds, assumptions=assumptions, verbosity=options.verbosity
                )
            )


def _assumptions(found: Repairs, loaded: BoundProblem) -> Assumptions | None:
    """Return what proofs rest on, with the files that the property was read from."""
    known = found.answer.assumptions
    return None if known is None else replace(known, sources=loaded.sources)
