"""The command `fix`: repair a model so that a property of it is proved."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranum_falsify.cli.files import check_json, check_writable, load_files, show
from ranum_falsify.cli.options.models import FixOptions
from ranum_falsify.cli.output import show_progress
from ranum_falsify.errors import UsageError

if TYPE_CHECKING:
    from ranum_falsify.api.loading import BoundProblem
    from ranum_falsify.repair.repairing import Repairs

_PROVED, _OPEN, _AT_A_LOSS = 0, 3, 4


def run(options: FixOptions) -> int:
    """Run the command."""
    began = time.monotonic()
    assert options.output is not None
    check_writable("--output", options.output)
    check_json(options.json)
    if options.json not in (None, "-") and Path(str(options.json)).resolve() == options.output.resolve():
        raise UsageError(f"--json {options.json}: the repaired model goes there; choose another name")
    loaded = load_files(options, options.dims)
    from ranum_falsify.api.fixing import find_repairs  # imports onnxscript

    with show_progress(options.verbosity) as progress:
        found = find_repairs(loaded, options, self_check=options.self_check, progress=progress)
    if found.repairs:
        import onnx_ir as ir

        from ranum_falsify.rewrite.model import write_model

        write_model(ir.from_proto(found.repairs[0].model), options.output)
    _report(found, loaded, options, time.monotonic() - began)
    if not found.repairs or found.repairs[0].standing != "proved":
        return _OPEN
    return _AT_A_LOSS if found.repairs[0].loss else _PROVED


def _report(found: Repairs, loaded: BoundProblem, options: FixOptions, seconds: float) -> None:
    from ranum_falsify.results import fix_report

    known = found.answer.assumptions
    about: dict[str, Any] = {
        "output": options.output if found.repairs else None,
        "seconds": seconds,
        "assumptions": None if known is None else replace(known, sources=loaded.sources),
    }
    lines = fix_report.lines(found, **about, verbosity=options.verbosity)
    show(options.json, fix_report.as_json(found, **about), lines)
