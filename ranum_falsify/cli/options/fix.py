"""Options of `fix`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from ranum_falsify.cli.options.shared import Memory, PropertyOptions, ReportPath, SelfCheck, Verbosity
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.config import FixConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.option import Argument, Group, Option, Switch, parse_size, to_mapping

__all__ = ["FIX_EPILOG", "FixOptions"]

FIX_EPILOG = """\
Repairs are rewrites (the same function in stable operators), guards (the least change of an operand with which the
proof succeeds) and clips (a narrower range). The best is written: one that is proved where there is one, then the
gentlest. The report lists the others.

exit status: 0 written and proved, 3 written, no counterexample found, but not proved; or nothing found,
             2 usage or input error, or nothing to repair
"""
_MISSING = f"fix: no property file is given; write {PROGRAM} fix PROPERTY --network NAME MODEL -o FIXED"


@dataclass(frozen=True, kw_only=True)
class FixOptions(PropertyOptions):
    """What `fix` is asked for.

    Attributes:
        property_path: Property file: .py is a program, which runs with all your rights; .vnnlib is data.
        output: Where the repaired model goes.
        config: How to repair.
        vnnlib: Read the property as VNN-LIB, whatever its name.
        dims: Size of a symbolic dimension of the model's inputs; by default 1.
        strict: Refuse models with operators that are not supported.
        memory: Memory that reading may use beyond what the file sizes explain; by default 0.35.
        self_check: Whether the installed kernels are checked before anything is proved.
        json: Write a report as JSON here; - is standard output.
        verbosity: -1 the best repair alone, 0, 1 with the difference of the graphs.
    """

    property_path: Annotated[Path, Argument("PROPERTY", missing=_MISSING)]
    output: Annotated[Path | None, Option("-o --output", metavar="PATH", in_files=False), Group("output")] = None
    config: Annotated[FixConfig, Group("repair")] = field(default_factory=FixConfig)
    vnnlib: Annotated[bool, Switch()] = False
    dims: Annotated[dict[str, int], Option("--dim", metavar="NAME=VALUE", parse=parse_size, gather=to_mapping)] = field(
        default_factory=dict
    )
    strict: Annotated[bool, Switch()] = False
    memory: Memory = None
    self_check: SelfCheck = True
    json: ReportPath = None
    verbosity: Verbosity = 0

    def __post_init__(self) -> None:
        """Check that there is a place for the repaired model."""
        if self.output is None:
            raise UsageError("fix: say where the repaired model goes, with -o FIXED")
