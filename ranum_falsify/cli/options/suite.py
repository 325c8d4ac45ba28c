"""Options of `suite`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from ranum_falsify.cli.options.check import QuestionOptions
from ranum_falsify.cli.options.search import SearchOptions
from ranum_falsify.cli.options.shared import PropertyOptions, Values, VerboseOptions
from ranum_falsify.config import Options
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import Argument, Option, parse_gigabytes, parse_minutes, parse_whole, to_names


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
        """Keep apart what was given, which overrides the options of instances; what is not given does not."""
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
