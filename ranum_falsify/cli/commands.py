"""The commands, and the classes of their options, whose docstrings say what they do."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from ranum_falsify.cli.options.shared import CommonOptions

MAIN = "falsify"
"""The main command, whose name may be left out."""
COMMANDS: Mapping[str, str] = {
    MAIN: "falsify:FalsifyOptions",
    "check": "check:CheckOptions",
    "confirm": "confirm:ConfirmOptions",
    "fix": "fix:FixOptions",
    "replay": "replay:ReplayOptions",
    "check-proof": "check_proof:CheckProofOptions",
    "transform": "transform:TransformOptions",
    "simplify": "transform:SimplifyOptions",
    "suite": "suite:SuiteOptions",
    "suite compare": "suite_compare:CompareOptions",
    "report": "report:ReportOptions",
    "operators": "operators:OperatorsOptions",
    "doctor": "doctor:DoctorOptions",
    "examples": "examples:ExamplesOptions",
    "zoo list": "zoo:ZooList",
    "zoo show": "zoo:ZooShow",
    "zoo build": "zoo:ZooBuild",
    "zoo detect": "zoo:ZooDetect",
    "zoo train": "zoo:ZooTrain",
    "completion": "completion:CompletionOptions",
}
"""The module below `cli.options` and the class; the module of that name in `cli` runs the command."""


def load_options(command: str) -> type[CommonOptions]:
    """Return the class of the options of a command, imported when it is needed."""
    module, _, name = COMMANDS[command].partition(":")
    found: type[CommonOptions] = getattr(import_module(f"ranum_falsify.cli.options.{module}"), name)
    return found
