"""Arguments of `confirm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from ranum_falsify.cli import words
from ranum_falsify.cli.options.shared import (
    PROGRAM,
    add_instance,
    add_networks,
    add_processors,
    add_self_check,
    add_verbosity,
    make_parser,
)
from ranum_falsify.cli.usage import Parser, UsageError
from ranum_falsify.config import ConfirmConfig, HalfPrecision

__all__ = ["ConfirmOptions", "parse_confirm"]

_DEFAULT = ConfirmConfig()


@dataclass(frozen=True, kw_only=True)
class ConfirmOptions:
    """What `confirm` is asked for.

    Attributes:
        property_path: The property file.
        networks: Model files by the names that the property gives the networks.
        parameters: Values of the property's parameters, as text, by name.
        dims: Sizes of symbolic dimensions, by name.
        dtype: Half precision that the networks are converted to, None to leave them as they are.
        memory: Bytes that reading may take beyond what the files' sizes explain, None for the default.
        config: How to make the tests.
        out: Folder of the files, None for no files.
        json: Where the JSON report also goes, `-` for standard output.
        self_check: Whether the installed kernels are checked before anything is proved.
        verbosity: -1 quiet, 0, 1 verbose.
    """

    property_path: Path
    networks: Mapping[str, Path] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    dtype: HalfPrecision | None = None
    memory: int | None = None
    config: ConfirmConfig = _DEFAULT
    out: Path | None = None
    json: str | None = None
    self_check: bool = True
    verbosity: int = 0


_EPILOG = """\
For each operator that is not proved: inputs, and weights that the property leaves free, that make it invalid on ONNX
Runtime; and a span around them, a box in every point of which it is proved to be invalid.

In DIR: model.onnx, a .npz file for each test, test_PROPERTY.py, which runs them all with pytest and needs NumPy and
ONNX Runtime only, and confirm.json.

exit status: 0 every operator is proved, 1 something is triggered, 2 usage or input error,
             3 operators are not proved, and nothing is triggered
"""


def _confirm_parser() -> Parser:
    parser = make_parser("confirm", "Make unit tests for the operators of a network that can fail.", epilog=_EPILOG)
    parser.add_argument("property_path", nargs="?", type=Path, metavar="PROPERTY", help="property file (.py)")
    add_networks(parser)
    add_instance(parser)
    parser.add_argument(
        "--dtype", choices=get_args(HalfPrecision), help="treat the networks as if converted to this type"
    )
    _add_search(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the files; created if its parent exists")
    parser.add_argument("--json", metavar="PATH", help="also write the report here; - is standard output")
    add_self_check(parser)
    add_processors(parser)
    add_verbosity(parser, quiet="print only how many operators are triggered, and what that rests on")
    return parser


def _add_search(parser: Parser) -> None:
    parser.add_argument(
        "--node",
        action="append",
        dest="nodes",
        metavar="NAME",
        help="test only this operator, proved or not; may be repeated",
    )
    parser.add_argument(
        "--runs",
        type=words.make_whole_converter(1),
        default=_DEFAULT.runs,
        metavar="N",
        help="tests per operator, each from its own seed (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=words.make_whole_converter(0),
        default=_DEFAULT.seed,
        metavar="N",
        help="seed of the first run; later runs count up from it (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=words.seconds,
        default=_DEFAULT.timeout,
        metavar="SECONDS",
        help="time for the search of one run (default: %(default)g)",
    )
    parser.add_argument("--no-span", action="store_false", dest="span", help="do not compute spans around the tests")
    parser.add_argument(
        "--random", action="store_false", dest="descend", help="only sample points at random, for comparison"
    )
    parser.add_argument(
        "--device", default=_DEFAULT.device, metavar="DEVICE", help="torch device (default: %(default)s)"
    )


def parse_confirm(arguments: Sequence[str]) -> ConfirmOptions:
    """Return what `confirm` is asked for.

    Raises:
        UsageError: The arguments contradict each other, or do not exist.
    """
    rest, parameters = words.split_parameters(arguments)
    given = _confirm_parser().parse_args(rest)
    if given.property_path is None:
        raise UsageError(
            f"confirm: no property file is given; write {PROGRAM} confirm PROPERTY --network NAME MODEL --out DIR"
        )
    config = ConfirmConfig(
        runs=given.runs,
        seed=given.seed,
        timeout=given.timeout,
        nodes=None if given.nodes is None else tuple(dict.fromkeys(given.nodes)),
        descend=given.descend,
        span=given.span,
        device=given.device,
        processors=given.processors,
    )
    return ConfirmOptions(
        property_path=given.property_path,
        networks=words.networks(given.networks),
        parameters=parameters,
        dims=words.map_by_name("--dim", given.dims),
        dtype=given.dtype,
        memory=given.memory,
        config=config,
        out=given.out,
        json=given.json,
        self_check=given.self_check,
        verbosity=given.verbosity,
    )
