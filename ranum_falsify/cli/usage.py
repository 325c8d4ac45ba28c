"""Errors in the arguments, and the exit status that they lead to."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ranum_falsify.errors import UsageError

__all__ = ["ERROR_STATUS", "PROGRAM", "Parser", "find_near"]

PROGRAM = "ranum-falsify"


ERROR_STATUS = 2
"""Exit status of usage and input errors."""


_DNNF = {
    *("--help", "--long-help", "--version", "--seed", "--debug", "--verbose", "--quiet", "--network", "--vnnlib"),
    *("--save-violation", "--processors", "--n_proc", "--n_starts", "--cuda", "--backend", "--set"),
}
"""Options of DNNF, whose abbreviations mean the same here: `--n_st` is `--n_starts`, in spite of `--n_steps`."""


def find_near(name: str, names: Iterable[str]) -> str:
    """Return a question after the name that is meant, empty where none is similar."""
    from difflib import get_close_matches  # only after an error

    return "".join(f"; did you mean {near}?" for near in get_close_matches(name, names, n=1))


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions of one line instead of usage texts, and which knows DNNF's abbreviations."""

    def _get_option_tuples(self, option_string: str) -> list[tuple[argparse.Action, str, str | None]]:
        found = super()._get_option_tuples(option_string)
        of_dnnf = [option for option in found if not _DNNF.isdisjoint(option[0].option_strings)]
        return of_dnnf if len(of_dnnf) == 1 else found

    def complete(self, word: str) -> str:
        """Return the option that a word abbreviates, the word itself where that is none or not clear."""
        found = self._get_option_tuples(word) if word.startswith("--") and "=" not in word else []
        return found[0][1] if len(found) == 1 else word

    def read(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return what arguments give, by destination.

        Raises:
            UsageError: Some are unknown, or have the wrong form.
        """
        given, unknown = self.parse_known_args(arguments)
        if unknown:
            word = unknown[0].partition("=")[0]
            near = find_near(word, self._option_string_actions) if word.startswith("--") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return vars(given)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError.

        Raises:
            UsageError: Always.
        """
        raise UsageError(f"{message}; {self.prog} --help lists the options")
