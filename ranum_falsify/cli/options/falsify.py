"""Arguments of the main command."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from ranum_falsify import __version__
from ranum_falsify.cli import words
from ranum_falsify.cli.options.shared import PROGRAM, add_instance, add_model_options, add_self_check, make_parser
from ranum_falsify.cli.output import say
from ranum_falsify.cli.usage import Parser, UsageError
from ranum_falsify.config import RUNTIMES, HalfPrecision, ProveConfig, SearchConfig

__all__ = ["FalsifyOptions", "parse_falsify"]

_DEFAULT = SearchConfig()


@dataclass(frozen=True, kw_only=True)
class FalsifyOptions:
    """What the main command is asked for.

    Attributes:
        property_path: The property file.
        vnnlib: Whether it is VNN-LIB even if its suffix does not say so.
        networks: Model files by the names that the property gives the networks.
        parameters: Values of the property's parameters, as text, by name.
        dims: Sizes of symbolic dimensions, by name.
        dtype: Half precision that the networks are converted to, None to leave them as they are.
        memory: Bytes that reading may take beyond what the files' sizes explain, None for the default.
        explain: Node whose operands' bounds are to be explained.
        config: How to search.
        save_violation: Where the counterexample goes.
        json: Where the JSON report goes, `-` for standard output.
        list_operators: List the operators in question instead of searching.
        self_check: Whether the installed kernels are checked before anything is proved.
        verbosity: -1 quiet, 0, 1 verbose.
    """

    property_path: Path
    vnnlib: bool = False
    networks: Mapping[str, Path] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    dtype: HalfPrecision | None = None
    memory: int | None = None
    explain: str | None = None
    config: SearchConfig = _DEFAULT
    save_violation: Path | None = None
    json: str | None = None
    list_operators: bool = False
    self_check: bool = True
    verbosity: int = 0


_EPILOG = """\
other commands:
  ranum-falsify confirm PROPERTY -N N model.onnx make unit tests for the operators that can fail
  ranum-falsify replay cex.npy -N N model.onnx   run a counterexample on ONNX Runtime again
  ranum-falsify operators                        list the supported operators
  ranum-falsify doctor                           show what proofs depend on here
  ranum-falsify zoo list|show|build|detect       real defects, rebuilt as models

exit status: 0 holds, 1 violated, 2 usage or input error, 3 unknown
"""


_PROPERTY = "property file: .py is a program, which runs with all your rights; .vnnlib is data"


class _LongHelp(argparse.Action):
    """Prints the help, then the back ends that can be used here."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from ranum_falsify.search.attacks import available  # imports torch

        say([*parser.format_help().split("\n"), "back ends:", *(f"  {line}" for line in available())])
        parser.exit()


def _falsify_parser() -> Parser:
    parser = make_parser(
        "",
        "Find inputs on which an operator of an ONNX network produces NaN or infinity, or prove that there are none.",
        epilog=_EPILOG,
    )
    parser.add_argument("property_path", nargs="?", type=Path, metavar="PROPERTY", help=_PROPERTY)
    add_model_options(parser)
    parser.add_argument("--vnnlib", action="store_true", help="read the property as VNN-LIB, whatever its name")
    add_instance(parser)
    parser.add_argument(
        "--dtype",
        choices=get_args(HalfPrecision),
        help="treat the networks as if converted to this type; report what must stay in float32",
    )
    _add_search(parser.add_argument_group("search"))
    _add_proof(parser.add_argument_group("proof"))
    output = parser.add_argument_group("output")
    output.add_argument(
        "--save-violation", type=Path, metavar="PATH", help="write the counterexample here, such as cex.npy"
    )
    output.add_argument("--json", metavar="PATH", help="write a report as JSON; - is standard output")
    output.add_argument(
        "--explain", metavar="NODE", help="show how the operands of a node came to their bounds; do not search"
    )
    output.add_argument("--list-operators", action="store_true", help="list the operators in question; do not search")
    parser.add_argument("--long-help", action=_LongHelp, help="show this help and the back ends that are installed")
    parser.add_argument("-V", "--version", action="version", version=f"{PROGRAM} {__version__}")
    return parser


def _add_search(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--n_starts",
        type=words.make_whole_converter(-1),
        default=_DEFAULT.n_starts,
        metavar="N",
        help="starting points, searched as one batch; -1 for as many as time allows (default: %(default)s)",
    )
    group.add_argument(
        "--n_steps",
        type=words.make_whole_converter(0),
        default=_DEFAULT.n_steps,
        metavar="N",
        help="steps from each start (default: %(default)s)",
    )
    group.add_argument(
        "--seed",
        type=words.make_whole_converter(0),
        default=_DEFAULT.seed,
        metavar="N",
        help="seed of all random choices (default: %(default)s)",
    )
    group.add_argument(
        "--timeout",
        type=words.seconds,
        default=_DEFAULT.timeout,
        metavar="SECONDS",
        help="end with the best answer so far after this time (default: %(default)g; inf for no limit)",
    )
    group.add_argument(
        "--device",
        default=_DEFAULT.device,
        metavar="DEVICE",
        help="torch device, such as cuda:1 (default: %(default)s)",
    )
    group.add_argument("--cuda", action="store_true", help="the same as --device cuda")
    _add_backends(group)


def _add_backends(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--backend",
        nargs="+",
        type=words.backend,
        default=list(_DEFAULT.backend),
        metavar="BACKEND",
        help="pgd (default), dnnf.pgd, foolbox.NAME or cleverhans.NAME; several are tried in order",
    )
    group.add_argument(
        "--set",
        nargs=3,
        action="append",
        dest="settings",
        metavar=("BACKEND", "PARAM", "VALUE"),
        help="set a parameter of a back end, such as: --set pgd n_steps 200",
    )


def _add_proof(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--no-prove", action="store_false", dest="prove", help="search only")
    group.add_argument(
        "--prove-timeout",
        type=words.duration,
        metavar="SECONDS",
        help="time for proofs beyond one interval analysis, after a first round of the search "
        f"(default: {ProveConfig().timeout:g}; 0 for none)",
    )
    group.add_argument(
        "--runtime",
        action="append",
        type=words.runtimes,
        dest="runtimes",
        metavar="NAME",
        help=f"runtimes that proofs must cover: {', '.join(RUNTIMES)}; repeat, or separate by commas (default: all)",
    )
    add_self_check(group)


def parse_falsify(arguments: Sequence[str]) -> FalsifyOptions:
    """Return what the main command is asked for.

    Raises:
        UsageError: The arguments contradict each other, or do not exist.
    """
    rest, parameters = words.split_parameters(arguments)
    given = _falsify_parser().parse_args(rest)
    if given.property_path is None:
        raise UsageError(
            f"no property file is given; write {PROGRAM} PROPERTY --network NAME MODEL, or {PROGRAM} --help for more"
        )
    if given.cuda and given.device not in (_DEFAULT.device, "cuda"):
        raise UsageError(f"--cuda and --device {given.device} contradict each other; give one of them")
    settings = words.settings(given.settings, given.backend)
    ours = _pick_own_settings(settings.pop("pgd", {}))
    config = SearchConfig(
        n_starts=ours.get("n_starts", given.n_starts),
        n_steps=ours.get("n_steps", given.n_steps),
        seed=given.seed,
        timeout=None if given.timeout is None or math.isinf(given.timeout) else given.timeout,
        device="cuda" if given.cuda else given.device,
        backend=tuple(given.backend),
        parameters=settings,
        reach=given.reach,
        processors=given.processors,
        prove=_prove_config(given),
    )
    return FalsifyOptions(
        property_path=given.property_path,
        vnnlib=given.vnnlib,
        networks=words.networks(given.networks),
        parameters=parameters,
        dims=words.map_by_name("--dim", given.dims),
        dtype=given.dtype,
        memory=given.memory,
        explain=given.explain,
        config=config,
        save_violation=given.save_violation,
        json=given.json,
        list_operators=given.list_operators,
        self_check=given.self_check,
        verbosity=given.verbosity,
    )


def _prove_config(given: argparse.Namespace) -> ProveConfig | None:
    """Return how to prove.

    Raises:
        UsageError: Options contradict each other.
    """
    settings: dict[str, Any] = {}
    if given.prove_timeout is not None:
        settings["timeout"] = given.prove_timeout
    if given.runtimes:
        chosen = {runtime for part in given.runtimes for runtime in part}
        settings["runtimes"] = tuple(runtime for runtime in RUNTIMES if runtime in chosen)
    if given.prove:
        return ProveConfig(**settings)
    if settings:
        option = "--runtime" if given.runtimes else "--prove-timeout"
        raise UsageError(f"--no-prove and {option} contradict each other; give one of them")
    return None


def _pick_own_settings(values: Mapping[str, object]) -> dict[str, int]:
    """Return the settings of our own back end, which also have options of their own.

    Raises:
        UsageError: There is no such setting, or it does not take that value.
    """
    converters = {"n_starts": words.make_whole_converter(-1), "n_steps": words.make_whole_converter(0)}
    settings = {}
    for name, value in values.items():
        if name not in converters:
            raise UsageError(f"--set pgd {name}: pgd has no such parameter; it has {', '.join(converters)}")
        try:
            settings[name] = converters[name](str(value))
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"--set pgd {name}: {error}") from error
    return settings
