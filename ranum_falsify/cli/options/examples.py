"""Options of `examples`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.option_marks import Argument


@dataclass(frozen=True, kw_only=True)
class ExamplesOptions(CommonOptions):
    """Write small models and properties to try.

    Attributes:
        folder: Folder for networks/ and properties/; created if its parent exists.
    """

    example: ClassVar[str] = "FOLDER"

    folder: Annotated[Path, Argument("DIR")]
