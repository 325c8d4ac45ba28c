"""Options of `examples`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.option import Argument

__all__ = ["ExamplesOptions"]


@dataclass(frozen=True, kw_only=True)
class ExamplesOptions(CommonOptions):
    """What `examples` is asked for.

    Attributes:
        folder: Where the folders networks and properties go; created if its parent exists.
    """

    folder: Annotated[Path, Argument("DIR")]
