"""Options of `replay`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from ranum_falsify.cli.options.shared import MemoryOptions, PropertyOptions, VerboseOptions
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import PROPERTY, Argument, Option, parse_pair, to_paths

STEP_SUFFIX = ".pt"
"""How files of training steps end."""


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(VerboseOptions, MemoryOptions, PropertyOptions):
    """Run a counterexample on ONNX Runtime again, and name the operators that fail.

    Attributes:
        counterexample: The counterexample: cex.npy, cex.json, or cex.vnnlib.txt in VNN-COMP's format; or step-N.pt, a
            training step that `rf.watch` saved.
        inputs: Input of the model as an .npy file, in place of a counterexample; once for each input.
        property_path: The property, if it is about outputs. A .py file is a program and runs.
        vnnlib: Read the property as VNN-LIB, even if it is not named .vnnlib.
        fail_on: What violates: output, NaN or infinity that an output shows; any, also what a later operator hides.
        processors: Threads of ONNX Runtime; by default one per core.
    """

    example: ClassVar[str] = "cex.npy --network N model.onnx"
    epilog: ClassVar[str] = """\
step-N.pt, a training step that rf.watch saved, needs no network: PyTorch runs its operators again.

Counterexamples from elsewhere: cex.json is data, and says which arrays beside it belong to which network. Only models
and properties that you name are opened, never the paths in it. If a property of outputs is false, give it again, by
--property. A .py property is a program and runs with all your rights; a .vnnlib property is data.

exit status: 0 nothing fails, 1 violated, 2 usage or input error"""

    counterexample: Annotated[Path | None, Argument("COUNTEREXAMPLE")] = None
    inputs: Annotated[
        Mapping[str, Path],
        Option("--input", metavar="NAME=FILE", parse=parse_pair, gather=to_paths, reads="an .npy file"),
    ] = field(default_factory=dict)
    property_path: Annotated[Path | None, Option("--property", metavar="PATH", in_files=False, reads=PROPERTY)] = None
    vnnlib: Annotated[bool, Option()] = False
    fail_on: Annotated[Literal["output", "any"], Option("--fail-on --reach")] = "any"
    processors: Annotated[int | None, Option("-p --processors --n_proc", least=1)] = None

    def __post_init__(self) -> None:
        """Check that there is exactly one thing to replay."""
        if (self.counterexample is None) == (not self.inputs):
            raise UsageError("replay: give either a counterexample (cex.npy, cex.json) or inputs as --input NAME=FILE")
