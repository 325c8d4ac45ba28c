"""Options of `fix`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from ranum_falsify.cli.options.shared import MemoryOptions, PropertyOptions, VerboseOptions
from ranum_falsify.config import FixConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import PROPERTY, Argument, Option, parse_size, to_mapping


@dataclass(frozen=True, kw_only=True)
class FixOptions(VerboseOptions, FixConfig, MemoryOptions, PropertyOptions):
    """Repair a model, and prove that its property holds.

    Attributes:
        property_path: Property file. A .py file is a program and runs with all your rights; a .vnnlib file is data.
        output: Write the repaired model here.
        vnnlib: Read the property as VNN-LIB, even if it is not named .vnnlib.
        dims: Size of a symbolic dimension of the model's inputs; by default 1.
        strict: Refuse models with unsupported operators.
        self_check: Before the first proof on a machine, compare the installed kernels with their measurements.
        json: Write the report as JSON here; - is standard output.
    """

    example: ClassVar[str] = "prop.py --network N model.onnx -o fixed.onnx"
    epilog: ClassVar[str] = """\
Repairs are rewrites (the same function in stable operators), guards (the smallest change of an operand that makes the
proof succeed) and clips (a narrower range). The best one is written: proved if possible, then the gentlest. The report
lists the others.

exit status: 0 written and proved, 4 the same, but at a loss, 3 written and not proved (no counterexample was found), or
nothing found, 2 usage or input error, or nothing to repair"""

    property_path: Annotated[Path, Argument("PROPERTY", reads=PROPERTY)]
    output: Annotated[Path | None, Option("-o --output", metavar="PATH", in_files=False, group="output")] = None
    vnnlib: Annotated[bool, Option()] = False
    dims: Annotated[Mapping[str, int], Option("--dim", metavar="NAME=VALUE", parse=parse_size, gather=to_mapping)] = (
        field(default_factory=dict)
    )
    strict: Annotated[bool, Option()] = False
    self_check: Annotated[bool, Option(off="--no-self-check")] = True
    json: Annotated[str | None, Option(metavar="PATH", group="output")] = None

    def __post_init__(self) -> None:
        """Check that there is a place for the repaired model."""
        if self.output is None:
            raise UsageError("fix: say where the repaired model goes, with -o FIXED")
