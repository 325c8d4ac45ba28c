"""What the arguments of several commands have in common."""

from __future__ import annotations

import argparse
from typing import get_args

from ranum_falsify.cli import words
from ranum_falsify.cli.usage import PROGRAM, Parser
from ranum_falsify.config import Reach

__all__ = [
    "PROGRAM",
    "add_instance",
    "add_memory",
    "add_model_options",
    "add_networks",
    "add_parameters",
    "add_processors",
    "add_self_check",
    "add_verbosity",
    "make_parser",
]


def make_parser(name: str, description: str, epilog: str | None = None) -> Parser:
    """Return the parser of a command, with `--debug`; the main command has no name."""
    parser = Parser(
        prog=f"{PROGRAM} {name}".strip(),
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback if an error occurs")
    return parser


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the models, and how they are run."""
    add_networks(parser)
    parser.add_argument(
        "--reach",
        choices=get_args(Reach),
        help="count only violations that turn an output non-finite, or only those that a later operator swallows",
    )
    add_processors(parser)
    add_verbosity(parser, quiet="print only the verdict, what is violated, and what that rests on")


def add_networks(parser: argparse.ArgumentParser) -> None:
    """Add the models of the property's networks."""
    parser.add_argument(
        "-N",
        "--network",
        nargs=2,
        action="append",
        dest="networks",
        metavar=("NAME", "PATH"),
        help="the ONNX model of a network in the property; give it once per network",
    )


def add_instance(parser: argparse.ArgumentParser) -> None:
    """Add what makes one problem of a property and models: parameters and symbolic dimensions."""
    add_parameters(parser)
    parser.add_argument(
        "--dim",
        action="append",
        type=words.dimension,
        dest="dims",
        metavar="NAME=VALUE",
        help="size of a symbolic dimension of the model's inputs (default: 1)",
    )
    add_memory(parser)


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Add how much memory reading may take."""
    parser.add_argument(
        "--memory",
        type=words.gigabytes,
        metavar="GB",
        help="memory that reading may use beyond what the file sizes explain (default: 0.35)",
    )


def add_parameters(parser: argparse.ArgumentParser) -> None:
    """Add the parameters of the property, which `words.split_parameters` reads."""
    parser.add_argument(
        "--prop.NAME", type=words.refuse_unnamed, dest="_", metavar="VALUE", help="value of a parameter of the property"
    )


def add_self_check(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the option that leaves out the check of the installed kernels."""
    parser.add_argument(
        "--no-self-check",
        action="store_false",
        dest="self_check",
        help="skip the check of the installed kernels against the measurements (about a second, once per machine)",
    )


def add_processors(parser: argparse.ArgumentParser, default: int | None = None) -> None:
    """Add the number of threads; None is as many as the libraries choose."""
    said = "all cores" if default is None else default
    parser.add_argument(
        "-p",
        "--processors",
        "--n_proc",
        type=words.make_whole_converter(1),
        default=default,
        metavar="N",
        help=f"threads of torch and ONNX Runtime (default: {said})",
    )


def add_verbosity(parser: argparse.ArgumentParser, *, quiet: str) -> None:
    """Add `-v` and `-q`; `quiet` says what the latter leaves."""
    level = parser.add_mutually_exclusive_group()
    level.add_argument("-v", "--verbose", action="store_const", const=1, default=0, dest="verbosity", help="say more")
    level.add_argument("-q", "--quiet", action="store_const", const=-1, dest="verbosity", help=quiet)
