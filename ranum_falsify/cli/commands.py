"""The commands, and the classes of their options, whose docstrings say what they do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from ranum_falsify.cli.options.shared import CommonOptions

PROGRAM = "ranum-falsify"

ERROR_STATUS = 2
"""Exit status of usage and input errors."""


def find_near(name: str, names: Iterable[str]) -> str:
    """Return a question after the name that is meant, empty where none is similar."""
    from difflib import get_close_matches  # only after an error

    return "".join(f"; did you mean {near}?" for near in get_close_matches(name, names, n=1))


MAIN = "falsify"
"""The main command, whose name may be left out."""
COMMANDS: Mapping[str, tuple[str, str]] = {
    MAIN: ("questions:FalsifyOptions", "asking:falsify"),
    "check": ("questions:CheckOptions", "check:run"),
    "confirm": ("models:ConfirmOptions", "confirm:run"),
    "fix": ("models:FixOptions", "fix:run"),
    "replay": ("models:ReplayOptions", "replay:run"),
    "check-proof": ("questions:CheckProofOptions", "check_proof:run"),
    "transform": ("models:TransformOptions", "transform:run"),
    "simplify": ("models:SimplifyOptions", "transform:run"),
    "suite": ("questions:SuiteOptions", "suite:run"),
    "suite compare": ("questions:CompareOptions", "suite:compare_results"),
    "report": ("tools:ReportOptions", "report:run"),
    "operators": ("tools:OperatorsOptions", "operators:run"),
    "doctor": ("tools:DoctorOptions", "doctor:run"),
    "examples": ("tools:ExamplesOptions", "examples:run"),
    "zoo list": ("tools:ZooList", "zoo:list_defects"),
    "zoo show": ("tools:ZooShow", "zoo:show"),
    "zoo build": ("tools:ZooBuild", "zoo:build"),
    "zoo detect": ("tools:ZooDetect", "zoo:detect"),
    "zoo train": ("tools:ZooTrain", "zoo:train"),
    "completion": ("tools:CompletionOptions", "front:complete"),
}
"""The class of its options, in a module below `cli.options`, and the function that runs it."""


def load_options(command: str) -> type[CommonOptions]:
    """Return the class of the options of a command, imported when it is needed."""
    found: type[CommonOptions] = _load(f"options.{COMMANDS[command][0]}")
    return found


def load_function(command: str) -> Callable[..., int]:
    """Return what runs a command with its options, imported when it is needed."""
    found: Callable[..., int] = _load(COMMANDS[command][1])
    return found


def _load(name: str) -> Any:
    module, _, name = name.partition(":")
    return getattr(import_module(f"ranum_falsify.cli.{module}"), name)
