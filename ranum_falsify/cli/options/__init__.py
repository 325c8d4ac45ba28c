"""Arguments of the commands, as text; nothing here looks at a file or imports more than the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ranum_falsify.cli.options.confirm import ConfirmOptions, parse_confirm
from ranum_falsify.cli.options.doctor import DoctorOptions, parse_doctor
from ranum_falsify.cli.options.falsify import FalsifyOptions, parse_falsify
from ranum_falsify.cli.options.operators import OperatorsOptions, parse_operators
from ranum_falsify.cli.options.replay import ReplayOptions, parse_replay
from ranum_falsify.cli.options.shared import PROGRAM
from ranum_falsify.cli.options.zoo import ZooBuild, ZooDetect, ZooList, ZooShow, parse_zoo

__all__ = [
    "PROGRAM",
    "Command",
    "ConfirmOptions",
    "DoctorOptions",
    "FalsifyOptions",
    "OperatorsOptions",
    "ReplayOptions",
    "ZooBuild",
    "ZooDetect",
    "ZooList",
    "ZooShow",
    "parse",
]


@dataclass(frozen=True)
class Command:
    """One of the commands, with its options."""

    name: str
    options: Any


_WORDS: Mapping[str, Callable[[Sequence[str]], object]] = {
    "confirm": parse_confirm,
    "doctor": parse_doctor,
    "operators": parse_operators,
    "replay": parse_replay,
    "zoo": parse_zoo,
}


def parse(arguments: Sequence[str]) -> Command:
    """Return the command that the arguments name.

    Raises:
        UsageError: They name none.
        SystemExit: They asked for help or the version, which has been printed.
    """
    word = arguments[0] if arguments else ""
    if word in _WORDS:
        return Command(word, _WORDS[word](arguments[1:]))
    return Command("falsify", parse_falsify(arguments))
