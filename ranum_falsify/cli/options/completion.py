"""Options of `completion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.option_marks import Argument


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(CommonOptions):
    """Print a script that completes commands and options in your shell.

    Attributes:
        shell: The shell: bash, zsh or fish.
    """

    example: ClassVar[str] = "bash"
    epilog: ClassVar[str] = 'Write into ~/.bashrc: eval "$(ranum-falsify completion bash)"'

    shell: Annotated[Literal["bash", "zsh", "fish"], Argument("SHELL")]
