"""Options of commands that ask: the main command, `check`, `check-proof`, `suite` and `suite compare`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import EllipsisType
from typing import Annotated, Any, ClassVar, Literal

from ranum_falsify.cli.options.shared import (
    AskOptions,
    CommonOptions,
    ImportOptions,
    MemoryOptions,
    PropertyOptions,
    SearchOptions,
    Values,
    VerboseOptions,
)
from ranum_falsify.config import Options, Runtime, runtime_option
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import (
    MODELS,
    PROPERTY,
    Argument,
    Option,
    parse_gigabytes,
    parse_minutes,
    parse_sizes,
    parse_whole,
    to_mapping,
    to_names,
)

_INTEGER = re.compile(r"[+-]?\d{1,20}")

Bounds = tuple[float, float] | float
"""Lower and upper bound, or the only value."""


def _count_bounds(first: str) -> int:
    """Return how many words a box takes: `LO HI` two, `LO,HI` and `NAME=LO,HI` one."""
    return 1 if "," in first or "=" in first else 2


def _parse_bounds(text: str) -> Bounds:
    try:
        lower, *rest = [int(part) if _INTEGER.fullmatch(part) else float(part) for part in text.split(",")]
        (upper,) = rest or [lower]
    except ValueError as error:
        raise ValueError(f"{text!r} is not a range; write LO HI, or NAME=LO,HI") from error
    return (lower, upper) if rest else lower


def _parse_box(text: str) -> tuple[str | EllipsisType, Bounds]:
    name, equals, bounds = text.rpartition("=")
    if equals and not name:
        raise ValueError(f"{text!r} names no input; write LO HI, or NAME=LO,HI")
    found = _parse_bounds(bounds)
    if not name and not isinstance(found, tuple):
        raise ValueError(f"{text} is one number, where a range is needed; write LO HI, or NAME={text} for one input")
    return name or ..., found


def _unite_boxes(pairs: Iterable[tuple[str | EllipsisType, Bounds]]) -> Mapping[str | EllipsisType, Bounds]:
    pairs = list(pairs)
    if sum(name is ... for name, _ in pairs) > 1:
        raise ValueError("is given twice for all inputs; give it once, and NAME=LO,HI for others")
    return to_mapping(pairs)


def _unite_types(parts: Iterable[str]) -> tuple[str, ...]:
    return to_names(name for part in parts for name in part.split(",") if name)


def _list_passes(parts: Iterable[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for part in parts for name in part.split(",") if name.strip())
    if not names:
        raise ValueError("no pass is named; `ranum-falsify transform --list` shows them")
    return names


def _unite_free(names: list[str]) -> Literal["all"] | tuple[str, ...]:
    return "all" if names == ["all"] else to_names(names)


Box = Mapping[str | EllipsisType, Bounds] | None
"""What inputs range over, by name; an ellipsis stands for those without a range of their own."""


def box_option(group: str) -> Option:
    """Return the option of a box, below a heading of the help."""
    return Option(group=group, metavar="LO HI", parse=_parse_box, count=_count_bounds, gather=_unite_boxes)


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(ImportOptions, CommonOptions):
    """What is asked of a model.

    Attributes:
        box: Range of all inputs; --box NAME=LO,HI for that of one; may be repeated.
        only: Check only operators of this ONNX type, such as Log; repeat, or separate by commas.
        nodes: Check only the operator of this ONNX name; may be repeated.
        gradient: Check that derivatives are finite, too.
        free: Let the weights of this name vary, as they do in training; all for all weights; may be repeated.
        weights: With --free: how much weights vary, as a share of each value, or LO,HI for all.
        passes: Passes of `transform` to run first, in order, separated by commas; may be repeated. The answer is about
            the model that they make.
    """

    box: Annotated[Box, box_option("question")] = None
    only: Annotated[tuple[str, ...] | None, Option(group="question", metavar="OP", gather=_unite_types)] = None
    nodes: Annotated[tuple[str, ...] | None, Option(group="question", metavar="NAME", gather=to_names)] = None
    gradient: Annotated[bool, Option(group="question")] = False
    free: Annotated[Literal["all"] | tuple[str, ...], Option(group="question", metavar="NAME", gather=_unite_free)] = ()
    weights: Annotated[Bounds, Option(group="question", metavar="SHARE", parse=_parse_bounds, count=lambda _: 1)] = 0.1
    passes: Annotated[tuple[str, ...], Option(group="question", metavar="PASS", gather=_list_passes)] = ()

    @classmethod
    def finish(cls, values: Values, typed: Collection[str]) -> Values:
        """Check that there are weights to vary."""
        if "weights" in typed and not values.get("free"):
            raise UsageError("--weights: no weights range; name some with --free NAME, or all with --free all")
        return super().finish(values, typed)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(AskOptions, QuestionOptions):
    """Find inputs of a model on which one of its operators produces NaN or infinity, or prove that there are none.

    Attributes:
        models: ONNX models, and folders of models.
        print_property: Print the question as a property file, or write it to PATH, without a search.
    """

    example: ClassVar[str] = "model.onnx --box 0 1"
    epilog: ClassVar[str] = """\
Without --box, images range over [0, 1], other floating numbers over [-1, 1], indices over their table, labels of a
loss over its classes; the verdict says so. `ranum-falsify replay cex.json --network N MODEL` runs a counterexample
again.

exit status: 0 holds, 1 violated, 2 usage or input error, 3 unknown; of several models, 2 if one of them has it, else
1, else 3, else 0"""

    models: Annotated[tuple[Path, ...], Argument("MODEL", many=True, reads=MODELS)]
    print_property: Annotated[str | None, Option(metavar="PATH", bare="-", in_files=False, group="output")] = None


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


@dataclass(frozen=True, kw_only=True)
class CheckProofOptions(MemoryOptions, PropertyOptions):
    """Check the proof file of a model, with a checker of its own.

    Attributes:
        proof: Proof file, as --proof writes it.
        property_path: The property that it proves, in place of --box.
        box: Range of all inputs; --box NAME=LO,HI for that of one; may be repeated.
        free: Let the weight of this name vary in its --box NAME=LO,HI; may be repeated.
        dims: Size of a symbolic dimension of the model's inputs; by default 1.
        runtimes: Runtimes that the proof must cover: onnxruntime, torch, exact; repeat, or separate by commas.
    """

    example: ClassVar[str] = "proof.npz --network N model.onnx --box 0 1"
    epilog: ClassVar[str] = """\
The options, or the property, say what is asked, and the file must prove that. The checker shares nothing with the
prover: it bounds each operator again, in the model and in what ONNX Runtime's optimiser makes of it.

exit status: 0 accepted, 1 rejected, 2 usage or input error, 3 not checked: an operator that can fail was not shown
not to"""

    proof: Annotated[Path, Argument("PROOF", reads="a proof file")]
    property_path: Annotated[Path | None, Argument("PROPERTY", reads=PROPERTY)] = None
    box: Annotated[Box, box_option("options")] = None
    free: Annotated[tuple[str, ...], Option(metavar="NAME", gather=to_names)] = ()
    dims: Annotated[
        Mapping[str, int | range], Option("--dim", metavar="NAME=VALUE", parse=parse_sizes, gather=to_mapping)
    ] = field(default_factory=dict)
    runtimes: Annotated[tuple[Runtime, ...], runtime_option()] = ("onnxruntime",)

    def __post_init__(self) -> None:
        """Check that there is one model and one question."""
        if len(self.networks) != 1:
            raise UsageError("check-proof: a proof is about one model; give it once, as --network N MODEL")
        if self.box is None and self.property_path is None:
            raise UsageError("check-proof: nothing says what the inputs range over; give --box LO HI, or a property")
        if (self.box is not None or self.free) and self.property_path is not None:
            raise UsageError("check-proof: the property says what the inputs range over; leave out --box and --free")
        if ranges := [name for name, size in self.dims.items() if isinstance(size, range)]:
            raise UsageError(f"check-proof: a proof is about one size; give --dim {ranges[0]}=SIZE")

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of each symbolic dimension."""
        return {name: size for name, size in self.dims.items() if isinstance(size, int)}


def _parse_shard(text: str) -> tuple[int, int]:
    first, slash, second = text.partition("/")
    if not slash:
        raise ValueError(f"{text!r} is not of the form I/N, such as 1/4")
    position, count = parse_whole(first, 1), parse_whole(second, 1)
    if position > count:
        raise ValueError(f"{text}: there are only {count} parts")
    return position, count


@dataclass(frozen=True, kw_only=True)
class PropertyGroup(SearchOptions, PropertyOptions):
    """Options of a group of a `suite.toml` with property files."""


@dataclass(frozen=True, kw_only=True)
class QuestionGroup(SearchOptions, QuestionOptions):
    """Options of a group of a `suite.toml` without property files."""


@dataclass(frozen=True, kw_only=True)
class SuiteOptions(VerboseOptions, SearchOptions):
    """Check many models in one run: a benchmark suite, or the groups of a suite.toml.

    Attributes:
        suite: The suite: a folder, a list of instances, or suite.toml.
        jobs: Workers on this machine, or in the cluster; by default one per core.
        results: Write the results here; their records go beside it, in a .jsonl file of the same name.
        resume: Continue an earlier run, and skip what is in its results.
        filter: Only instances whose name contains this text, or matches it, as in *.onnx; may be repeated.
        shard: Only the I-th of N parts, such as 1/4.
        max_minutes: End the suite after this time; --resume continues it.
        former: Results of an earlier run: what took longest there starts first.
        memory: Memory for the processes of one instance together; by default an equal share of all.
        cluster: Start a Dask cluster for the workers, as Dask's configuration describes it.
        scheduler: Use the workers of this Dask scheduler, such as tcp://host:8786.
        list_only: List the instances; run none.
        given: The options that were given for all instances, as the Python API names them.
    """

    example: ClassVar[str] = "suite.toml"
    epilog: ClassVar[str] = """\
SUITE is a folder of VNN-COMP (instances.csv), a folder of such folders, a list of DNNV's problems (problems.csv), or a
suite.toml; all may be compressed by gzip. Each instance runs in a process of its own. results.jsonl gets the report of
each instance as it ends; results.csv, in VNN-COMP's columns, is written at the end.

other commands:
  ranum-falsify suite compare A B            compare two results, or a result with the competition's

exit status: 0 all unsat (the property holds), 1 one is sat (violated), 2 usage or input error, 3 something is open"""

    suite: Annotated[Path, Argument("SUITE", reads="a folder, an instances.csv, or a suite.toml")]
    jobs: Annotated[int | None, Option("-j --jobs", group="suite", least=1)] = None
    results: Annotated[Path, Option(metavar="FILE", group="output")] = Path("results.csv")
    resume: Annotated[bool, Option(group="suite")] = False
    filter: Annotated[tuple[str, ...], Option(metavar="TEXT", group="suite", gather=to_names)] = ()
    shard: Annotated[tuple[int, int] | None, Option(metavar="I/N", group="suite", parse=_parse_shard)] = None
    max_minutes: Annotated[float | None, Option(metavar="MINUTES", group="suite", parse=parse_minutes)] = None
    former: Annotated[Path | None, Option(metavar="FILE", group="suite", reads="the results of a suite")] = None
    memory: Annotated[int | None, Option(metavar="GB", group="suite", parse=parse_gigabytes)] = None
    cluster: Annotated[Literal["local", "slurm", "kubernetes"] | None, Option(group="suite")] = None
    scheduler: Annotated[str | None, Option(metavar="ADDRESS", group="suite")] = None
    list_only: Annotated[bool, Option("--list", group="suite")] = False
    given: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that there is at most one cluster."""
        super().__post_init__()
        if self.cluster is not None and self.scheduler is not None:
            raise UsageError("--cluster starts a scheduler, and --scheduler uses one; give one of them")

    @classmethod
    def finish(cls, values: Values, typed: Collection[str]) -> Values:
        """Record which options were given; only these override an instance's own."""
        values = super().finish(values, typed)
        return values | {"given": to_keywords(values)}


def to_keywords(values: Values) -> dict[str, Any]:
    """Return the options among values as JSON holds the keywords of the Python API."""
    found = {each.name: values[each.name] for each in fields(Options) if each.name in values}
    if "dims" in found:
        found["dims"] = {name: _plain_size(size) for name, size in found["dims"].items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def _plain_size(size: int | range) -> int | list[int]:
    """Return a size as JSON holds it: of a range the least and the greatest."""
    return [size[0], size[-1]] if isinstance(size, range) else size


@dataclass(frozen=True, kw_only=True)
class CompareOptions(CommonOptions):
    """Compare the results of two runs of a suite, or two tools.

    Attributes:
        results: Two results.
        cactus: Write an SVG plot of how many instances each decides in how much time.
        json: Write the comparison as JSON here; - is standard output.
    """

    example: ClassVar[str] = "results.jsonl expected.csv"
    epilog: ClassVar[str] = """\
A and B are results.jsonl or results.csv of suites, the results of a tool at VNN-COMP, or an expected.csv.

exit status: 0 no disagreement, 1 one says sat and the other unsat, 2 usage or input error"""

    results: Annotated[tuple[str, ...], Argument("RESULTS", many=True)]
    cactus: Annotated[Path | None, Option(metavar="FILE", group="output")] = None
    json: Annotated[str | None, Option(metavar="PATH", group="output")] = None
