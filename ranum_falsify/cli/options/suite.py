"""Options of `suite`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from ranum_falsify.cli.options.check import QuestionOptions
from ranum_falsify.cli.options.falsify import finish_search
from ranum_falsify.cli.options.fields import Values
from ranum_falsify.cli.options.shared import (
    CommonOptions,
    Memory,
    PropertyOptions,
    ReadingOptions,
    SelfCheck,
    Sizes,
    Verbosity,
)
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.config import SearchConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.option import Argument, Group, Option, Switch, parse_minutes, parse_whole, to_names

__all__ = [
    "COMPARE_EPILOG",
    "SUITE_EPILOG",
    "CompareOptions",
    "PropertyGroup",
    "QuestionGroup",
    "SuiteOptions",
    "finish_suite",
]

SUITE_EPILOG = f"""\
SUITE is a folder of VNN-COMP (instances.csv), a folder of such folders, a list of DNNV's problems (problems.csv), or a
suite.toml; all may be compressed by gzip. Each instance runs in a process of its own. Results are there after each
instance: in results.jsonl, with the report of each, and at the end in results.csv, in VNN-COMP's columns.

other commands:
  {PROGRAM} suite compare A B            compare two results, or a result with the competition's

exit status: 0 all unsat (the property holds), 1 one is sat (violated), 2 usage or input error, 3 something is open
"""
COMPARE_EPILOG = """\
A and B are results.jsonl or results.csv of suites, the results of a tool at VNN-COMP, or an expected.csv.

exit status: 0 no disagreement, 1 one says sat and the other unsat, 2 usage or input error
"""
_MISSING = f"suite: no suite is given; write {PROGRAM} suite FOLDER, or {PROGRAM} suite instances.csv"
_MISSING_RESULTS = f"suite compare: two results are needed; write {PROGRAM} suite compare results.jsonl expected.csv"

_PATHS_TO_API = {
    "dims": "dims",
    "strict": "strict",
    "dtype": "dtype",
    "self_check": "self_check",
    "config.n_starts": "n_starts",
    "config.n_steps": "n_steps",
    "config.seed": "seed",
    "config.device": "device",
    "config.backend": "backend",
    "config.parameters": "backend_parameters",
    "config.reach": "reach",
    "config.processors": "processors",
    "config.prove": "prove",
    "config.prove.timeout": "prove_timeout",
    "config.prove.runtimes": "runtime",
    "config.prove.try_rewrites": "try_rewrites",
}
"""The keywords of the Python API by the fields of the settings."""


def _parse_shard(text: str) -> tuple[int, int]:
    first, slash, second = text.partition("/")
    if not slash:
        raise ValueError(f"{text!r} is not of the form I/N, such as 1/4")
    position, count = parse_whole(first, 1), parse_whole(second, 1)
    if position > count:
        raise ValueError(f"{text}: there are only {count} parts")
    return position, count


@dataclass(frozen=True, kw_only=True)
class SuiteSearchOptions(ReadingOptions):
    """How instances are proved or falsified.

    Attributes:
        dims: Size of a symbolic dimension of the models' inputs, or a range of sizes such as 1..64; by default 1.
        config: How to search.
        self_check: Whether the installed kernels are checked before anything is proved.
    """

    dims: Sizes = field(default_factory=dict)
    config: Annotated[SearchConfig, Group("search")] = field(default_factory=SearchConfig)
    self_check: Annotated[SelfCheck, Group("proof")] = True


@dataclass(frozen=True, kw_only=True)
class PropertyGroup(SuiteSearchOptions, PropertyOptions):
    """Options of a group of a `suite.toml` with property files."""


@dataclass(frozen=True, kw_only=True)
class QuestionGroup(SuiteSearchOptions, QuestionOptions):
    """Options of a group of a `suite.toml` without property files."""


@dataclass(frozen=True, kw_only=True)
class SuiteOptions(SuiteSearchOptions):
    """What `suite` is asked for.

    Attributes:
        suite: The suite.
        jobs: Workers on this machine, or in the cluster; by default as many as it has cores.
        results: Where results go; their records beside it, in a .jsonl file of the same name.
        resume: Go on with what a former run left: what is in the results is done.
        filter: Only instances whose name holds this text, or is matched by it as *.onnx would; may be repeated.
        shard: Only the I-th of N parts, such as 1/4.
        max_minutes: Minutes after which the suite ends; --resume goes on.
        former: Results of a former run, whose times say which instances take longest and start first.
        memory: Memory that the processes of an instance may take together; by default an equal share of all.
        cluster: Start a Dask cluster for the workers; Dask's configuration says how.
        scheduler: Use the workers of this Dask scheduler, such as tcp://host:8786.
        list_only: List the instances; run none.
        verbosity: -1 quiet, 0, 1 verbose.
        given: The options that were given for all instances, as the Python API names them.
    """

    suite: Annotated[Path, Argument("SUITE", missing=_MISSING)]
    jobs: Annotated[int | None, Option("-j --jobs", least=1), Group("suite")] = None
    results: Annotated[Path, Option(metavar="FILE"), Group("output")] = Path("results.csv")
    resume: Annotated[bool, Switch(), Group("suite")] = False
    filter: Annotated[tuple[str, ...], Option(metavar="TEXT", gather=to_names), Group("suite")] = ()
    shard: Annotated[tuple[int, int] | None, Option(metavar="I/N", parse=_parse_shard), Group("suite")] = None
    max_minutes: Annotated[float | None, Option(metavar="MINUTES", parse=parse_minutes), Group("suite")] = None
    former: Annotated[Path | None, Option(metavar="FILE"), Group("suite")] = None
    memory: Annotated[Memory, Group("suite")] = None
    cluster: Annotated[Literal["local", "slurm", "kubernetes"] | None, Option(), Group("suite")] = None
    scheduler: Annotated[str | None, Option(metavar="ADDRESS"), Group("suite")] = None
    list_only: Annotated[bool, Switch("--list"), Group("suite")] = False
    verbosity: Verbosity = 0
    given: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that there is at most one cluster."""
        if self.cluster is not None and self.scheduler is not None:
            raise UsageError("--cluster starts a scheduler, and --scheduler uses one; give one of them")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(CommonOptions):
    """What `suite compare` is asked for.

    Attributes:
        results: Two results.
        cactus: Write a plot of how many instances each decides in how much time, as SVG.
        json: Write the comparison as JSON here; - is standard output.
    """

    results: Annotated[tuple[str, ...], Argument("A B", many=True, missing=_MISSING_RESULTS)]
    cactus: Annotated[Path | None, Option(metavar="FILE"), Group("output")] = None
    json: Annotated[str | None, Option(metavar="PATH"), Group("output")] = None


def finish_suite(values: Values, typed: Collection[str]) -> Values:
    """Keep apart what was given, which overrides the options of instances; what is not given does not.

    Raises:
        UsageError: A parameter of a back end does not fit.
    """
    values = finish_search(values, typed)
    limit = {"timeout": values["config.timeout"]} if "config.timeout" in values else {}
    return values | {"given": to_api(values) | limit}


def to_api(values: Values) -> dict[str, Any]:
    """Return the options among values as the keywords of the Python API."""
    found = {name: values[path] for path, name in _PATHS_TO_API.items() if path in values}
    if not found.get("backend_parameters"):
        found.pop("backend_parameters", None)
    if "prove" in found:
        found["prove"] = False  # None: --no-prove
    if "dims" in found:
        found["dims"] = {name: _plain_size(size) for name, size in found["dims"].items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def _plain_size(size: int | range) -> int | list[int]:
    """Return a size as JSON holds it: of a range the least and the greatest."""
    return [size[0], size[-1]] if isinstance(size, range) else size
