"""Lines of the user's Python code that operators come from."""

from __future__ import annotations

import os
from dataclasses import dataclass

BACKWARD = "backward of "
"""How the origin of an operator of a backward pass begins."""


@dataclass(frozen=True)
class Source:
    """Where an operator of an exported module comes from.

    Attributes:
        file: The file of the innermost line that is not a library's; "" where a library's module was called directly.
        line: Its number, from 1; 0 without a file.
        code: Its text.
        module_path: The submodule that was running, as in `named_modules()`; "" for the module itself.
        backward: Whether the operator belongs to the backward pass of this line.
    """

    file: str = ""
    line: int = 0
    code: str = ""
    module_path: str = ""
    backward: bool = False

    def __str__(self) -> str:
        """Return `file:line (submodule): code`, as far as they are known; the file from the working directory on."""
        here = f"{os.getcwd()}{os.sep}"
        place = f"{self.file.removeprefix(here)}:{self.line}" if self.file else ""
        path = self.module_path
        shown = f"{place} ({path})" if place and path else place or path
        return (BACKWARD if self.backward and shown else "") + shown + (f": {self.code}" if self.code else "")
