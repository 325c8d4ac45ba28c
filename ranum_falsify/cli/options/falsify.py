"""Options of the main command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from ranum_falsify.cli.options.search import AskOptions
from ranum_falsify.cli.options.shared import PropertyOptions
from ranum_falsify.option_marks import PROPERTY, Argument, Option


@dataclass(frozen=True, kw_only=True)
class FalsifyOptions(AskOptions, PropertyOptions):
    """Find inputs on which an operator of an ONNX network produces NaN or infinity, or prove that there are none.

    Attributes:
        property_path: Property file. A .py file is a program and runs with all your rights; a .vnnlib file is data.
        vnnlib: Read the property as VNN-LIB, even if it is not named .vnnlib.
        long_help: Show this help, and which back ends are installed.
    """

    example: ClassVar[str] = "prop.py --network N model.onnx"
    epilog: ClassVar[str] = "exit status: 0 holds, 1 violated, 2 usage or input error, 3 unknown"

    property_path: Annotated[Path, Argument("PROPERTY", reads=PROPERTY)]
    vnnlib: Annotated[bool, Option()] = False
    long_help: Annotated[bool, Option(in_files=False)] = False
