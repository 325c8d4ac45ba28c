"""The command `replay`: run a counterexample on ONNX Runtime again."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path

from ranum_falsify.cli.options.models import STEP_SUFFIX, ReplayOptions
from ranum_falsify.cli.output import say, verdict_stands


def run(options: ReplayOptions) -> int:
    """Run the command."""
    if options.counterexample is not None and options.counterexample.suffix == STEP_SUFFIX:
        return _replay_step(options.counterexample)
    from ranum_falsify.api.models import Runnable
    from ranum_falsify.api.replayed import ReplaySettings  # imports torch
    from ranum_falsify.api.replaying import ReplayRequest
    from ranum_falsify.network.resource_limits import memory_limit

    request = ReplayRequest(
        networks={name: Runnable(path) for name, path in options.networks.items()},
        property=options.property_path,
        vnnlib=options.vnnlib,
        parameters=options.parameters,
        settings=ReplaySettings(
            outputs_alone=options.fail_on == "output",
            threads=options.processors or 1,
            reading=partial(memory_limit, options.memory),
        ),
    )
    if options.inputs:
        report = request.replay_arrays(options.inputs)
    else:
        assert options.counterexample is not None
        report = request.replay_file(options.counterexample)
    with verdict_stands():
        say(islice(report.lines(), 1 if options.verbosity < 0 else None))
    return 1 if report.violated else 0


def _replay_step(path: Path) -> int:
    from ranum_falsify.monitor.saved import replay_step  # imports torch

    lines, again = replay_step(path)
    with verdict_stands():
        say(lines)
    return 1 if again else 0
