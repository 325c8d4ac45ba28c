"""Options of the main command."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ranum_falsify.cli.options.fields import Values
from ranum_falsify.cli.options.shared import PropertyOptions, SearchOptions
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.config import SearchConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.option import Argument, Switch, parse_whole

__all__ = ["FALSIFY_EPILOG", "FalsifyOptions", "finish_search"]

FALSIFY_EPILOG = """\
other commands:
  ranum-falsify check model.onnx --box 0 1       the same of a model, without a property file
  ranum-falsify confirm PROPERTY -N N model.onnx make unit tests for the operators that can fail
  ranum-falsify fix PROPERTY -N N model.onnx -o fixed.onnx   repair the model, and prove the repaired one
  ranum-falsify replay cex.npy -N N model.onnx   run a counterexample on ONNX Runtime again
  ranum-falsify check-proof PROOF -N N m.onnx    check a proof file, step by step
  ranum-falsify report results.jsonl -o r.html   show the results of a suite
  ranum-falsify operators                        list the supported operators
  ranum-falsify doctor                           show what proofs depend on here
  ranum-falsify examples FOLDER                  write small models and properties to try
  ranum-falsify suite FOLDER                     ask about many models; compare results
  ranum-falsify zoo list|show|build|detect       real defects, rebuilt as models

exit status: 0 holds, 1 violated, 2 usage or input error, 3 unknown
"""
_MISSING = f"no property file is given; write {PROGRAM} PROPERTY --network NAME MODEL, or {PROGRAM} --help for more"
_OWN_SETTINGS = {"n_starts": -1, "n_steps": 0}
"""Parameters of our own back end, which also have options of their own, with their least values."""


@dataclass(frozen=True, kw_only=True)
class FalsifyOptions(SearchOptions, PropertyOptions):
    """What the main command is asked for.

    Attributes:
        property_path: Property file: .py is a program, which runs with all your rights; .vnnlib is data.
        vnnlib: Read the property as VNN-LIB, whatever its name.
    """

    property_path: Annotated[Path, Argument("PROPERTY", missing=_MISSING)]
    vnnlib: Annotated[bool, Switch()] = False


def finish_search(values: Values, typed: Collection[str]) -> Values:
    """Give parameters of our own back end to the fields that hold them.

    Args:
        values: All values.
        typed: The fields that were typed; a file may have parameters of back ends that this run does not use.

    Raises:
        UsageError: There is no such back end or parameter, or it does not take that value.
    """
    backends = values.get("config.backend", SearchConfig.backend)
    parameters = dict(values.pop("config.parameters", {}))
    if "config.parameters" not in typed:
        parameters = {backend: settings for backend, settings in parameters.items() if backend in backends}
    for backend, settings in parameters.items():
        if backend not in backends:
            named = next(iter(settings))
            listed = ", ".join(backends)
            raise UsageError(f"--set {backend} {named}: {backend!r} is not among the back ends ({listed})")
    for name, value in parameters.pop("pgd", {}).items():
        if name not in _OWN_SETTINGS:
            raise UsageError(f"--set pgd {name}: pgd has no such parameter; it has {', '.join(_OWN_SETTINGS)}")
        try:
            values[f"config.{name}"] = parse_whole(str(value), _OWN_SETTINGS[name])
        except ValueError as error:
            raise UsageError(f"--set pgd {name}: {error}") from error
    return values | {"config.parameters": parameters}
