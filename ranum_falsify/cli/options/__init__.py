"""Arguments of the commands, as text; nothing here looks at a file or imports more than the settings.

An option stands once: as a field of its command's class, or of the settings that the class holds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranum_falsify import __version__
from ranum_falsify.cli.options.check import CHECK_EPILOG, CheckOptions
from ranum_falsify.cli.options.check_proof import CHECK_PROOF_EPILOG, CheckProofOptions
from ranum_falsify.cli.options.confirm import CONFIRM_EPILOG, ConfirmOptions
from ranum_falsify.cli.options.doctor import DoctorOptions
from ranum_falsify.cli.options.examples import ExamplesOptions
from ranum_falsify.cli.options.falsify import FALSIFY_EPILOG, FalsifyOptions, finish_search
from ranum_falsify.cli.options.fields import Values, add_fields, build, overlay, read, require
from ranum_falsify.cli.options.fix import FIX_EPILOG, FixOptions
from ranum_falsify.cli.options.operators import OperatorsOptions
from ranum_falsify.cli.options.pyproject import find_settings
from ranum_falsify.cli.options.replay import REPLAY_EPILOG, ReplayOptions
from ranum_falsify.cli.options.report import REPORT_EPILOG, ReportOptions
from ranum_falsify.cli.options.shared import CommonOptions, PropertyOptions, SearchOptions
from ranum_falsify.cli.options.suite import COMPARE_EPILOG, SUITE_EPILOG, CompareOptions, SuiteOptions, finish_suite
from ranum_falsify.cli.options.transform import TRANSFORM_EPILOG, SimplifyOptions, TransformOptions
from ranum_falsify.cli.options.zoo import (
    DETECT_EPILOG,
    TRAIN_EPILOG,
    ZOO_EPILOG,
    ZooBuild,
    ZooDetect,
    ZooList,
    ZooOptions,
    ZooShow,
    ZooTrain,
)
from ranum_falsify.cli.output import say
from ranum_falsify.cli.streams import complain
from ranum_falsify.cli.usage import PROGRAM, Parser
from ranum_falsify.errors import UsageError

__all__ = [
    "PROGRAM",
    "CheckOptions",
    "Command",
    "CompareOptions",
    "ConfirmOptions",
    "DoctorOptions",
    "ExamplesOptions",
    "FalsifyOptions",
    "FixOptions",
    "OperatorsOptions",
    "PropertyOptions",
    "ReplayOptions",
    "ReportOptions",
    "SearchOptions",
    "SimplifyOptions",
    "SuiteOptions",
    "TransformOptions",
    "ZooBuild",
    "ZooDetect",
    "ZooList",
    "ZooOptions",
    "ZooShow",
    "ZooTrain",
    "parse",
]


@dataclass(frozen=True)
class Command:
    """One of the commands, with its options."""

    name: str
    options: Any


@dataclass(frozen=True)
class _Form:
    """What a command takes.

    Attributes:
        options: The class of its options.
        summary: What it does.
        epilog: What its help ends with.
        finish: Returns what becomes of all values, given the fields that were typed.
    """

    options: type
    summary: str
    epilog: str = ""
    finish: Callable[[Values, Collection[str]], Values] = lambda values, typed: values


_FORMS: Mapping[str, _Form] = {
    "": _Form(
        FalsifyOptions,
        "Find inputs on which an operator of an ONNX network produces NaN or infinity, or prove that there are none.",
        FALSIFY_EPILOG,
        finish_search,
    ),
    "check": _Form(
        CheckOptions,
        "Find inputs of a model on which one of its operators produces NaN or infinity, or prove that there are none.",
        CHECK_EPILOG,
        finish_search,
    ),
    "check-proof": _Form(CheckProofOptions, "Check a proof file of a model, step by step.", CHECK_PROOF_EPILOG),
    "confirm": _Form(ConfirmOptions, "Make unit tests for the operators of a network that can fail.", CONFIRM_EPILOG),
    "doctor": _Form(
        DoctorOptions,
        "Show what proofs depend on here: the processor, the libraries and what was measured of their kernels.",
    ),
    "examples": _Form(ExamplesOptions, "Write small models and properties to try."),
    "fix": _Form(FixOptions, "Repair a model so that a property of it is proved.", FIX_EPILOG),
    "operators": _Form(OperatorsOptions, "List the supported operators with what makes their operands valid."),
    "replay": _Form(
        ReplayOptions, "Run a counterexample on ONNX Runtime again and name the operators that fail.", REPLAY_EPILOG
    ),
    "report": _Form(ReportOptions, "Show the results of a suite as a page, or as CI systems read them.", REPORT_EPILOG),
    "simplify": _Form(
        SimplifyOptions, "Rewrite a model by the passes that a file lists, and verify each.", TRANSFORM_EPILOG
    ),
    "suite": _Form(
        SuiteOptions, "Ask about many models: benchmark suites, or all that a folder holds.", SUITE_EPILOG, finish_suite
    ),
    "suite compare": _Form(CompareOptions, "Compare the results of two runs of a suite, or two tools.", COMPARE_EPILOG),
    "transform": _Form(TransformOptions, "Rewrite a model by passes, and verify each.", TRANSFORM_EPILOG),
    "zoo list": _Form(ZooList, "List the defects."),
    "zoo show": _Form(ZooShow, "Show inputs, weights, documented operators and property of one model."),
    "zoo build": _Form(ZooBuild, "Write models and their properties: ID.onnx, ID.py, ID.safe.onnx, ID.safe.py."),
    "zoo detect": _Form(ZooDetect, "Analyse models and compare the result with the documented defects.", DETECT_EPILOG),
    "zoo train": _Form(
        ZooTrain, "Search for training data that lead training into the documented defects.", TRAIN_EPILOG
    ),
}
_ZOO = "Real numerical defects of published programs, rebuilt as ONNX models, each with a repaired twin."


def parse(arguments: Sequence[str]) -> Command:
    """Return the command that the arguments name.

    Raises:
        UsageError: They name none.
        SystemExit: They asked for help or the version, which has been printed.
    """
    first = arguments[0] if arguments else ""
    words = 2 if first == "zoo" or " ".join(arguments[:2]) in _FORMS else 1 if first in _FORMS else 0
    name = " ".join(arguments[:words])
    if name not in _FORMS:
        _refuse_action(arguments[1:])
    form = _FORMS[name]
    parser = _make_parser(name, form.summary, form.epilog)
    add_fields(parser, form.options)
    if not name:
        parser.add_argument("--long-help", action=_LongHelp, help="show this help and the back ends that are installed")
        parser.add_argument("-V", "--version", action="version", version=f"{PROGRAM} {__version__}")
    given = read(parser, form.options, arguments[words:])
    require(form.options, given)
    values = form.finish(overlay(_read_file(name, parser, given), given), given)
    return Command((name.split(" ")[0] if first == "zoo" else name) or "falsify", build(form.options, values))


def _read_file(name: str, parser: Parser, typed: Values) -> Values:
    """Return what a file gives a command.

    Raises:
        UsageError: The file is invalid.
    """
    with suppress(FileNotFoundError):  # the working folder was deleted
        found = None if typed.get("isolated") else find_settings(Path.cwd())
        if found is not None:
            values = found.read(name, parser, {name: form.options for name, form in _FORMS.items()})
            if (values | typed).get("verbosity", 0) > 0:
                complain([f"{PROGRAM}: options from {found.path}"])
            return values
    return {}


def _make_parser(name: str, summary: str, epilog: str) -> Parser:
    return Parser(
        prog=f"{PROGRAM} {name}".strip(),
        description=summary,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _refuse_action(arguments: Sequence[str]) -> None:
    """Refuse what is no action of `zoo`, if it does not ask for help.

    Raises:
        UsageError: Always.
        SystemExit: It asks for help.
    """
    parser = _make_parser("zoo", _ZOO, ZOO_EPILOG)
    add_fields(parser, CommonOptions)
    parser.parse_known_args(arguments)
    actions = [name.removeprefix("zoo ") for name in _FORMS if name.startswith("zoo ")]
    found = f"there is no action {arguments[0]!r}" if arguments else "no action is given"
    raise UsageError(f"zoo: {found}; write {PROGRAM} zoo {'|'.join(actions)}")


class _LongHelp(argparse.Action):
    """Prints the help, then the back ends that can be used here."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from ranum_falsify.search.attacks import available  # imports torch

        say([*parser.format_help().split("\n"), "back ends:", *(f"  {line}" for line in available())])
        parser.exit()
