"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from ranum_falsify.config import HalfPrecision, SearchConfig
from ranum_falsify.option import Group, Option, Switch, parse_gigabytes, parse_sizes, to_mapping, to_paths

__all__ = [
    "CommonOptions",
    "Memory",
    "OutputPath",
    "PropertyOptions",
    "ReadingOptions",
    "ReportPath",
    "SearchOptions",
    "SelfCheck",
    "Verbosity",
]

Memory = Annotated[int | None, Option(metavar="GB", parse=parse_gigabytes)]
OutputPath = Annotated[Path | None, Option(metavar="PATH"), Group("output")]
ReportPath = Annotated[str | None, Option(metavar="PATH"), Group("output")]
Sizes = Annotated[
    Mapping[str, int | range], Option("--dim", metavar="NAME=VALUE", parse=parse_sizes, gather=to_mapping)
]
SelfCheck = Annotated[
    bool,
    Switch(
        "--no-self-check",
        value=False,
        help="skip the check of the installed kernels against the measurements (about a second, once per machine)",
    ),
]
Verbosity = Annotated[
    int,
    Switch("-v --verbose", value=1, help="say more"),
    Switch("-q --quiet", value=-1, help="print only the verdict or totals, and what they rest on"),
    Group("output"),
]


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """What every command is asked for.

    Attributes:
        debug: Show the traceback if an error occurs.
        isolated: Ignore the options in pyproject.toml.
    """

    debug: Annotated[bool, Switch(in_files=False)] = False
    isolated: Annotated[bool, Switch(in_files=False)] = False


@dataclass(frozen=True, kw_only=True)
class PropertyOptions(CommonOptions):
    """The models and parameters of a property.

    Attributes:
        networks: The ONNX model of a network in the property; give it once per network.
        parameters: Value of a parameter of the property.
    """

    networks: Annotated[Mapping[str, Path], Option("-N --network", metavar=("NAME", "PATH"), gather=to_paths)] = field(
        default_factory=dict
    )
    parameters: Annotated[Mapping[str, str], Option("--prop.NAME", metavar="VALUE", gather=to_mapping)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(CommonOptions):
    """How models are read.

    Attributes:
        strict: Refuse models with operators that are not supported; else ONNX Runtime evaluates these.
        dtype: Treat the networks as if converted to this type; report what must stay in float32.
        memory: Memory that reading may use beyond what the file sizes explain; by default 0.35.
    """

    strict: Annotated[bool, Switch()] = False
    dtype: Annotated[HalfPrecision | None, Option()] = None
    memory: Memory = None


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ReadingOptions):
    """How a property is proved or falsified, and what is shown of that.

    Attributes:
        config: How to search.
        self_check: Whether the installed kernels are checked before anything is proved.
        save_violation: Write the counterexample here, such as cex.npy; or cex.vnnlib.txt, in VNN-COMP's format.
        json: Write a report as JSON here; - is standard output.
        proof: Write what a verdict of holds rests on here, for check-proof.
        report: Write a page about the run here, as HTML.
        junit: Write the operators in question as tests here, in JUnit XML.
        sarif: Write the violated operators here, in SARIF 2.1.0.
        explain: Show how the operands of this node came to their bounds; do not search.
        list_operators: List the operators in question; do not search.
        verbosity: -1 quiet, 0, 1 verbose.
        dims: Size of a symbolic dimension of the model's inputs, or a range of sizes such as 1..64; by default 1.
    """

    dims: Sizes = field(default_factory=dict)
    config: Annotated[SearchConfig, Group("search")] = field(default_factory=SearchConfig)
    self_check: Annotated[SelfCheck, Group("proof")] = True
    save_violation: Annotated[Path | None, Option(metavar="PATH"), Group("output")] = None
    json: ReportPath = None
    proof: OutputPath = None
    report: OutputPath = None
    junit: OutputPath = None
    sarif: OutputPath = None
    explain: Annotated[str | None, Option(metavar="NODE"), Group("output")] = None
    list_operators: Annotated[bool, Switch(), Group("output")] = False
    verbosity: Verbosity = 0
