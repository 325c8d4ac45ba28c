"""Arguments of `replay`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ranum_falsify.cli import words
from ranum_falsify.cli.options.shared import add_memory, add_model_options, add_parameters, make_parser
from ranum_falsify.cli.usage import Parser, UsageError
from ranum_falsify.config import Reach

__all__ = ["ReplayOptions", "parse_replay"]


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """What `replay` is asked for.

    Attributes:
        counterexample: The .npy file, or the .json file that describes several; None where `inputs` are given.
        networks: Model files by name.
        property_path: The property, for what the models alone do not decide.
        vnnlib: Whether it is VNN-LIB even if its suffix does not say so.
        parameters: Values of its parameters, as text, by name.
        inputs: .npy files by ONNX input name.
        memory: Bytes that reading may take beyond what the files' sizes explain, None for the default.
        reach: Count only violations of this reach, None for all.
        processors: Threads of ONNX Runtime.
        verbosity: -1 quiet, 0, 1 verbose.
    """

    counterexample: Path | None = None
    networks: Mapping[str, Path] = field(default_factory=dict)
    property_path: Path | None = None
    vnnlib: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Path] = field(default_factory=dict)
    memory: int | None = None
    reach: Reach | None = None
    processors: int | None = None
    verbosity: int = 0


_EPILOG = """\
Counterexamples from elsewhere: cex.json says which arrays beside it belong to which network, and is only read. Models
and properties are opened where you name them; the paths in cex.json are not. Where operators fail, the models decide.
Where a property over outputs is false, it is needed again: give --property. A .py property is a program, which runs
with all your rights; a .vnnlib property is data.

exit status: 0 nothing fails, 1 violated, 2 usage or input error
"""


def _replay_parser() -> Parser:
    parser = make_parser(
        "replay",
        "Run a counterexample on ONNX Runtime again and name the operators that fail.",
        epilog=_EPILOG,
    )
    parser.add_argument("counterexample", nargs="?", type=Path, help="cex.npy, or its cex.json")
    add_model_options(parser)
    add_memory(parser)
    parser.add_argument(
        "--input",
        action="append",
        type=words.pair,
        dest="inputs",
        metavar="NAME=FILE",
        help="an input of the model, as .npy",
    )
    parser.add_argument(
        "--property",
        type=Path,
        dest="property_path",
        metavar="PATH",
        help="the property, if it is about outputs; a .py file is a program and runs",
    )
    parser.add_argument("--vnnlib", action="store_true", help="read the property as VNN-LIB, whatever its name")
    add_parameters(parser)
    return parser


def parse_replay(arguments: Sequence[str]) -> ReplayOptions:
    """Return what `replay` is asked for.

    Raises:
        UsageError: The arguments contradict each other, or are none that it has.
    """
    rest, parameters = words.split_parameters(arguments)
    given = _replay_parser().parse_args(rest)
    inputs = {name: Path(path) for name, path in words.map_by_name("--input", given.inputs).items()}
    if (given.counterexample is None) == (not inputs):
        raise UsageError("replay: give either a counterexample (cex.npy, cex.json) or inputs as --input NAME=FILE")
    return ReplayOptions(
        counterexample=given.counterexample,
        networks=words.networks(given.networks),
        property_path=given.property_path,
        vnnlib=given.vnnlib,
        parameters=parameters,
        inputs=inputs,
        memory=given.memory,
        reach=given.reach,
        processors=given.processors,
        verbosity=given.verbosity,
    )
