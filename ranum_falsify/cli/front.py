"""The front of the command line: words to a command with its options, help, and the answer without a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from ranum_falsify.cli.commands import COMMANDS, ERROR_STATUS, MAIN, PROGRAM, find_near, load_options
from ranum_falsify.cli.options.shared import Values
from ranum_falsify.cli.options.tools import CompletionOptions
from ranum_falsify.cli.output import complain, say
from ranum_falsify.cli.parser import Parser
from ranum_falsify.cli.settings_file import find_settings
from ranum_falsify.config import ProveConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import Argument
from ranum_falsify.version import __version__


@dataclass(frozen=True)
class Command:
    """One of the commands, with its options."""

    name: str
    options: Any


def parse(arguments: Sequence[str]) -> Command:
    """Return the command that the arguments name.

    Raises:
        UsageError: They name none, or its options are invalid.
        SystemExit: They asked for help or the version, which has been printed.
    """
    if not arguments:
        say(_list_commands())
        raise SystemExit(ERROR_STATUS)  # 0 would say that a property holds
    if arguments[0] == "help":
        arguments = [*(word for word in arguments[1:] if not word.startswith("-")), "--help"]
    name, words = find_command(arguments)
    parser = make_parser(name)
    typed = parser.read(words)
    if typed.get("long_help"):
        _print_long_help(parser)
    _require(name, parser, typed)
    settings = load_options(name)
    file = _read_file(name, parser, typed)
    values = settings.finish(_overlay(file, typed), typed)
    return Command(name, settings(**values))


def make_parser(name: str) -> Parser:
    """Return the parser of a command."""
    settings = load_options(name)
    is_main = name == MAIN
    called = PROGRAM if is_main else f"{PROGRAM} {name}"
    return Parser(
        settings,
        name=called,
        help=_summarise(settings),
        usage=f"Usage: {called} {settings.example}".rstrip(),
        version=f"{PROGRAM} {__version__}",
        version_flags=("--version", "-V") if is_main else (),
        epilog=(lambda: "\n".join((*_list_examples(), "", settings.epilog))) if is_main else None,
    )


def find_command(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command that arguments begin with, and the others.

    Raises:
        UsageError: `zoo` has no such action.
        SystemExit: They ask for the actions of `zoo`.
    """
    for count in (2, 1):
        name = " ".join(arguments[:count])
        if name in COMMANDS and not (name == MAIN and Path(name).exists()):
            return name, arguments[count:]
    word = arguments[0]
    if word != "zoo":
        may_be_file = bool({".", "/", "-"} & {*word}) or Path(word).exists()
        if not may_be_file and (near := find_near(word, {name.split(" ")[0] for name in COMMANDS})):
            raise UsageError(f"there is no command {word!r}, and no such file{near}")
        return MAIN, arguments
    actions = [name.removeprefix("zoo ") for name in COMMANDS if name.startswith("zoo ")]
    if {"--help", "-h"} & {*arguments}:
        say(_list_commands("zoo "))
        raise SystemExit(0)
    action = next((word for word in arguments[1:] if not word.startswith("-")), "")
    found = f"there is no action {action!r}{find_near(action, actions)}" if action else "no action is given"
    raise UsageError(f"zoo: {found}; write {PROGRAM} zoo {'|'.join(actions)}")


def _list_examples() -> Iterator[str]:
    """Yield an example of each command."""
    yield "commands, each with an example:"
    yield from (f"  {PROGRAM} {name} {load_options(name).example}".rstrip() for name in COMMANDS if name != MAIN)


def _list_commands(start: str = "") -> Iterator[str]:
    """Yield lines about the commands whose names begin so, each with an example."""
    yield from ("commands, each with an example:", "")
    for name in COMMANDS:
        if name.startswith(start):
            own, settings = "" if name == MAIN else name, load_options(name)
            yield f"  {own or '[falsify]':<14} {_summarise(settings)}"
            yield f"  {'':<14} {' '.join(filter(None, [PROGRAM, own, settings.example]))}"
    yield from ("", f"`{PROGRAM} help COMMAND` lists the options of a command")


def _summarise(settings: type) -> str:
    """Return what a command does."""
    return (settings.__doc__ or "").splitlines()[0]


def _print_long_help(parser: Parser) -> None:
    from ranum_falsify.verify.search.attacks import available  # imports torch

    parser.app.help_print([])
    say(["back ends:", *(f"  {line}" for line in available())])
    raise SystemExit(0)


def _require(name: str, parser: Parser, given: Values) -> None:
    """Check that arguments are given that are required."""
    for option in parser.options:
        if isinstance(option.mark, Argument) and option.default is MISSING and not given.get(option.field):
            own = "" if name == MAIN else name
            what = f"{own}: " if own else ""
            example = " ".join(filter(None, [PROGRAM, own, load_options(name).example]))
            raise UsageError(f"{what}{option.mark.metavar} is missing; write for example {example}")


def _read_file(name: str, parser: Parser, typed: Values) -> Values:
    """Return what a file gives a command."""
    with suppress(FileNotFoundError):  # the working folder was deleted
        found = None if typed.get("isolated") else find_settings(Path.cwd())
        if found is not None:
            values = found.read_command(name, parser)
            if typed.get("verbose", values.get("verbose")):
                complain([f"{PROGRAM}: options from {found.path}"])
            return values
    return {}


def _overlay(values: Values, over: Values) -> Values:
    """Return values of a file with what was typed in place of what it replaces."""
    if "prove" not in over and any(each.name in over for each in fields(ProveConfig)):
        values = {name: value for name, value in values.items() if name != "prove"}
    return values | over


def complete(options: CompletionOptions) -> int:
    """Print the script."""
    app = make_parser(MAIN).app
    for name in COMMANDS:
        if name != MAIN:
            *above, last = name.split(" ")
            owner = app
            for word in above:
                if word not in [*owner]:
                    owner.command(type(app)(name=word))
                owner = owner[word]
            owner.command(make_parser(name).app, name=last)
    say(app.generate_completion(shell=options.shell).splitlines())
    return 0
