"""Options of `fix`, `confirm`, `replay`, `transform` and `simplify`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from ranum_falsify.cli.options.questions import Box, box_option
from ranum_falsify.cli.options.shared import (
    CommonOptions,
    ImportOptions,
    MemoryOptions,
    PropertyOptions,
    VerboseOptions,
)
from ranum_falsify.config import ConfirmConfig, FixConfig, HalfPrecision, TrainingConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import (
    MODEL,
    PROPERTY,
    Argument,
    Option,
    parse_duration,
    parse_pair,
    parse_size,
    to_mapping,
    to_names,
    to_paths,
)


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


@dataclass(frozen=True, kw_only=True)
class ConfirmOptions(VerboseOptions, TrainingConfig, ConfirmConfig, MemoryOptions, PropertyOptions):
    """Make unit tests for the operators of a network that can fail.

    Attributes:
        property_path: Property file (.py). It is a program and runs with all your rights.
        out: Folder for the tests; created if its parent exists.
        plot: With --training: draw loss and margin of the first operator that fails, step by step, as SVG.
        json: Also write the report as JSON here; - is standard output.
        dims: Size of a symbolic dimension of the model's inputs; by default 1.
        strict: Refuse models with unsupported operators; without it, ONNX Runtime evaluates these.
        dtype: Check the networks as if converted to this type.
        self_check: Before the first proof on a machine, compare the installed kernels with their measurements.
    """

    example: ClassVar[str] = "prop.py --network N model.onnx --out tests"
    epilog: ClassVar[str] = """\
For each operator that is not proved: inputs, and weights that the property frees, which make it invalid on ONNX
Runtime; and a span, a box around them in which every point is proved to do so.

DIR gets model.onnx, model.tensors (which makes it show tensors inside), a .npz file for each test, confirm.json, and
test_PROPERTY.py, which runs all tests with pytest and needs only NumPy and ONNX Runtime.

With --training: training data, within the property's ranges, after which the model fails. It is trained by the
property's loss, from the weights in its file. DIR gets training.json and, for each operator, a folder with
training.npz, trained.npz, both files of the model, and a test that trains by itself and needs only NumPy, PyTorch and
ONNX Runtime.

exit status: 0 every operator is proved, 1 something is triggered, 2 usage or input error,
3 operators are not proved, and nothing is triggered"""

    property_path: Annotated[Path, Argument("PROPERTY", reads=PROPERTY)]
    out: Annotated[Path | None, Option(metavar="DIR", group="output")] = None
    plot: Annotated[Path | None, Option(metavar="FILE", group="training")] = None
    json: Annotated[str | None, Option(metavar="PATH", group="output")] = None
    dims: Annotated[Mapping[str, int], Option("--dim", metavar="NAME=VALUE", parse=parse_size, gather=to_mapping)] = (
        field(default_factory=dict)
    )
    strict: Annotated[bool, Option()] = False
    dtype: Annotated[HalfPrecision | None, Option()] = None
    self_check: Annotated[bool, Option(off="--no-self-check")] = True


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


_TOOLS = ("vnncomp",)
_NO_OUTPUT = "say where the new model goes, with -o OUT"


def _unite_operators(parts: Iterable[str]) -> tuple[str, ...]:
    return to_names(name.strip() for part in parts for name in part.split(",") if name.strip())


def _parse_tools(text: str) -> str:
    if text not in _TOOLS:
        raise ValueError(f"{text!r} is unknown; there is: {', '.join(_TOOLS)}")
    return text


@dataclass(frozen=True, kw_only=True)
class PassOptions(VerboseOptions, MemoryOptions, ImportOptions, CommonOptions):
    """How passes are run and verified.

    Attributes:
        output: Write the new model here.
        only: Operators that the new model may contain, separated by commas; others are reported.
        references: Input to compare the models on, as an .npy file, beside the samples; give all inputs.
        box: Range of all inputs; --box NAME=LO,HI for that of one; may be repeated.
        dims: Size of a symbolic dimension in samples; by default several with which the model runs.
        verify_timeout: Seconds, after each pass, to prove that both models agree on the whole box, or to find an input
            on which they do not; by default 5 if all inputs have a range; 0 for samples alone.
        state: File for what analyses find, by pass: read before the first one if it is there, and written at the end.
        samples: Number of inputs to compare the models on; by default 64, or down to 8 if one takes long.
        seed: Seed of the samples.
        processors: Threads of ONNX Runtime.
        json: Write what each pass did as JSON; - is standard output, in place of the text.
    """

    epilog: ClassVar[str] = """\
Each pass is verified after it ran: the structure of the new model, its outputs on samples, and that no operator
receives invalid input where none did before. If a pass breaks its promise, the new model is not written, but the model
before the pass (OUT.checkpoint.onnx) and the input that shows it (OUT.failing.npy) are.

exit status: 0 verified and written, 1 a pass did not keep its promise, 2 usage or input error,
3 written, but operators outside --only are left"""

    output: Annotated[Path | None, Option("-o --output", metavar="PATH", in_files=False, group="output")] = None
    only: Annotated[tuple[str, ...] | None, Option(metavar="OP,OP,...", gather=_unite_operators)] = None
    references: Annotated[
        Mapping[str, Path],
        Option(
            "--reference",
            metavar="NAME=FILE",
            group="verification",
            parse=parse_pair,
            gather=to_paths,
            reads="an .npy file",
        ),
    ] = field(default_factory=dict)
    box: Annotated[Box, box_option("verification")] = None
    dims: Annotated[
        Mapping[str, int],
        Option("--dim", metavar="NAME=VALUE", group="verification", parse=parse_size, gather=to_mapping),
    ] = field(default_factory=dict)
    verify_timeout: Annotated[float | None, Option(metavar="SECONDS", group="verification", parse=parse_duration)] = (
        None
    )
    state: Annotated[Path | None, Option(metavar="FILE", in_files=False, group="output")] = None
    samples: Annotated[int | None, Option(group="verification")] = None
    seed: Annotated[int, Option(group="verification")] = 0
    processors: Annotated[int, Option("-p --processors --n_proc", group="verification", least=1)] = 1
    json: Annotated[str | None, Option(metavar="PATH", group="output")] = None


@dataclass(frozen=True, kw_only=True)
class TransformOptions(PassOptions):
    """Rewrite a model by passes, and verify each.

    Attributes:
        model: The ONNX model.
        passes: Passes, in order; --list shows all.
        config: YAML file with passes, and how to verify them.
        tools: After the named passes, run those that these tools need; vnncomp: verifiers that take part in VNN-COMP.
        property_path: Property of the model, from which inputs take their ranges; with --for, it is written as VNN-LIB
            beside the new model. A .py file is a program and runs with all your rights.
        parameters: Value of a parameter of the property, as in --prop.epsilon=0.1.
        vnnlib: Read the property as VNN-LIB, even if it is not named .vnnlib.
        lists_passes: List the passes with their guarantees and requirements.
    """

    example: ClassVar[str] = "model.onnx stable_log_softmax -o new.onnx"

    model: Annotated[Path | None, Argument("MODEL", reads=MODEL)] = None
    passes: Annotated[tuple[str, ...], Argument("PASS", many=True)] = ()
    config: Annotated[Path | None, Option("-c --config", metavar="FILE", in_files=False, reads="a YAML file")] = None
    tools: Annotated[str | None, Option("--for", metavar="TOOLS", parse=_parse_tools, in_files=False)] = None
    property_path: Annotated[Path | None, Option("--property", metavar="PATH", in_files=False, reads=PROPERTY)] = None
    parameters: Annotated[Mapping[str, str], Option("--prop.NAME", metavar="VALUE", gather=to_mapping)] = field(
        default_factory=dict
    )
    vnnlib: Annotated[bool, Option()] = False
    lists_passes: Annotated[bool, Option("--list", in_files=False)] = False

    def __post_init__(self) -> None:
        """Check that there is a model, and a place for the new one."""
        if self.lists_passes:
            return
        if self.model is None:
            raise UsageError(
                "transform: no model is given; write ranum-falsify transform MODEL PASS... -o OUT, or --list"
            )
        if self.output is None:
            raise UsageError(f"transform: {_NO_OUTPUT}")


@dataclass(frozen=True, kw_only=True)
class SimplifyOptions(PassOptions):
    """Rewrite a model by the passes that a file lists, and verify each.

    Attributes:
        model: The ONNX model.
        pass_list: File with the name of a pass on each line, in order; `transform --list` shows all.
    """

    example: ClassVar[str] = "-i model.onnx -s passes.txt -o new.onnx"

    model: Annotated[Path | None, Option("-i --input", metavar="PATH", in_files=False, reads=MODEL)] = None
    pass_list: Annotated[
        Path | None, Option("-s --simplifications", metavar="FILE", in_files=False, reads="a file that lists passes")
    ] = None

    def __post_init__(self) -> None:
        """Check that all files are named."""
        if self.model is None:
            raise UsageError("simplify: no model is given; name it with -i IN")
        if self.output is None:
            raise UsageError(f"simplify: {_NO_OUTPUT}")
        if self.pass_list is None:
            raise UsageError("simplify: no passes are given; name a file that lists them, with -s LIST")
