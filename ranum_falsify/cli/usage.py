"""What is wrong with the arguments, and how that ends."""

from __future__ import annotations

import argparse
from typing import NoReturn

from ranum_falsify.errors import RanumFalsifyError

__all__ = ["ERROR_STATUS", "Parser", "UsageError"]

ERROR_STATUS = 2
"""Exit status of usage and input errors."""


class UsageError(RanumFalsifyError):
    """Arguments that cannot be understood or carried out."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions of one line instead of usage texts."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError.

        Raises:
            UsageError: Always.
        """
        raise UsageError(f"{message}; {self.prog} --help lists the options")
