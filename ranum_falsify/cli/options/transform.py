"""Options of `transform` and `simplify`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from ranum_falsify.cli.options.check import Box, box_option
from ranum_falsify.cli.options.shared import CommonOptions, ImportOptions, MemoryOptions, VerboseOptions
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
