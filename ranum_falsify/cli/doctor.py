"""The report of `doctor`: processor, libraries and the measurements of their kernels, on which proofs depend."""

from __future__ import annotations

import os
import platform
import signal
from collections import Counter
from collections.abc import Iterator

import torch

from ranum_falsify.api.kernels import check_kernels, measure_kernels
from ranum_falsify.cli.options.tools import DoctorOptions
from ranum_falsify.cli.output import say, show_progress
from ranum_falsify.config import library_of
from ranum_falsify.domain.kernels import Record, families
from ranum_falsify.network.resource_limits import limits_memory
from ranum_falsify.results.plain import versions
from ranum_falsify.results.progress import ProgressStep
from ranum_falsify.selfcheck import LIBRARIES, Outcome, family_here, processor, release_of, unmeasured


def run(options: DoctorOptions) -> int:
    """Run the command."""
    if options.measure:
        check_kernels()  # what was measured on this machine earlier counts
        with show_progress() as display:
            for runtime in unmeasured():
                for function, done in measure_kernels(runtime):
                    display(ProgressStep(f"measuring {LIBRARIES[runtime]} {release_of(runtime)}", done, function))
    say(describe(check_kernels() if options.self_check else None))
    return 0


def describe(outcome: Outcome | None) -> Iterator[str]:
    """Yield lines about processors, libraries and their kernels, as far as these were checked."""
    yield f"processor: {processor()}"
    yield "versions: " + ", ".join(f"{name} {number}" for name, number in versions().items())
    for runtime, name in LIBRARIES.items():
        yield f"{name}: kernels of the family {family_here(runtime)}; bounds cover"
        for record in families():
            if library_of(record.runtime) == runtime:
                place = record.runtime.removeprefix(runtime).removeprefix("-")
                yield f"  {f'{place} ' if place else ''}{record.family}: {_coverage(record)}"
                yield from (f"    {version}: {how}" for version, how in record.versions.items())
    yield from _check(outcome)
    yield f"graphics processor: {torch.cuda.get_device_name() if torch.cuda.is_available() else 'none'}"
    if lacking := _list_lacking():
        yield f"{platform.system()} lacks what Linux has: {'; '.join(lacking)}"


def _list_lacking() -> list[str]:
    """Return what does not work on this system."""
    lacking = []
    if not limits_memory():
        lacking.append("memory is not limited while files are read")
    if not hasattr(signal, "setitimer"):
        lacking.append("--timeout does not interrupt a library, but ends the process")
    if not hasattr(os, "fork"):
        lacking.append("suites do not run")
    return lacking


def _coverage(record: Record) -> str:
    """Tell how many functions were run, and on which float32 values most of them."""
    (swept, count) = Counter(record.swept.values()).most_common(1)[0]
    return f"{len(record.swept)} functions, {count} of them on {swept}"


def _check(outcome: Outcome | None) -> Iterator[str]:
    if outcome is None:
        yield "check of the installed kernels: skipped"
    else:
        when = " (on an earlier run)" if outcome.known else ""
        yield f"check of the installed kernels{when}: {'; '.join(outcome.notices) or 'all within the records'}"
