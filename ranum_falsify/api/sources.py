"""Lines of the user's Python code."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Source"]


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
