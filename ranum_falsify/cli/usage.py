"""Errors in the arguments, and the exit status that they lead to."""

from __future__ import annotations

import argparse
from typing import NoReturn

from ranum_falsify.errors import UsageError

__all__ = ["ERROR_STATUS", "PROGRAM", "Parser"]

PROGRAM = "ranum-falsify"


ERROR_STATUS = 2
"""Exit status of usage and input errors."""


_DNNF = {
    *("--help", "--long-help", "--version", "--seed", "--debug", "--verbose", "--quiet", "--network", "--vnnlib"),
    *("--save-violation", "--processors", "--n_proc", "--n_starts", "--cuda", "--backend", "--set"),
}
"""Options of DNNF, whose abbreviations mean the same here: `--n_st` is `--n_starts`, in spite of `--n_steps`."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions of one line instead of usage texts, and which knows DNNF's abbreviations."""

    def _get_option_tuples(self, option_string: str) -> list[tuple[argparse.Action, str, str | None]]:
        found = super()._get_option_tuples(option_string)
        of_dnnf = [option for option in found if not _DNNF.isdisjoint(option[0].option_strings)]
        return of_dnnf if len(of_dnnf) == 1 else found

    def error(self, message: str) -> NoReturn:
        """Raise UsageError.

        Raises:
            UsageError: Always.
        """
        raise UsageError(f"{message}; {self.prog} --help lists the options")
