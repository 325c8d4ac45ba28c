"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from ranum_falsify.config import Options, ProveConfig, SearchConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import MODEL, Option, parse_gigabytes, parse_whole, to_mapping, to_paths

Values = dict[str, Any]
"""What is given, by field."""


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """What every command is asked for.

    Attributes:
        debug: Show the traceback of an error.
        isolated: Ignore pyproject.toml.
    """

    example: ClassVar[str] = ""
    """Arguments to try."""
    epilog: ClassVar[str] = ""
    """What the help ends with."""

    debug: Annotated[bool, Option(in_files=False, group="general")] = False
    isolated: Annotated[bool, Option(in_files=False, group="general")] = False

    @classmethod
    def finish(cls, values: Values, typed: Collection[str]) -> Values:
        """Return what becomes of all values, given the fields that were typed.

        Raises:
            UsageError: They do not fit each other.
        """
        return values


@dataclass(frozen=True, kw_only=True)
class VerboseOptions:
    """How much is said.

    Attributes:
        verbose: -v shows every operator; -q only the verdict, the totals, or the best repair.
    """

    verbose: Annotated[bool | None, Option("-v --verbose", off="-q --quiet", group="output")] = None

    @property
    def verbosity(self) -> int:
        """-1 quiet, 0, 1 verbose."""
        return 0 if self.verbose is None else 1 if self.verbose else -1


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """What reading may cost.

    Attributes:
        memory: Extra memory for loading, beyond the size of the files; by default 0.5.
    """

    memory: Annotated[int | None, Option(metavar="GB", parse=parse_gigabytes)] = None


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What else runs before the work.

    Attributes:
        imports: Python file that registers passes. It is a program and runs; may be repeated.
    """

    imports: Annotated[
        tuple[Path, ...],
        Option(
            "--import",
            metavar="FILE",
            in_files=False,
            parse=Path,
            gather=tuple,
            reads="a Python file that registers passes",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class PropertyOptions(CommonOptions):
    """The models and parameters of a property.

    Attributes:
        networks: The ONNX model of a network in the property; once for each network.
        parameters: Value of a parameter of the property, as in --prop.epsilon=0.1.
    """

    networks: Annotated[
        Mapping[str, Path], Option("-N --network", metavar=("NAME", "PATH"), gather=to_paths, reads=MODEL)
    ] = field(default_factory=dict)
    parameters: Annotated[Mapping[str, str], Option("--prop.NAME", metavar="VALUE", gather=to_mapping)] = field(
        default_factory=dict
    )


_OWN = {"n_starts": -1, "n_steps": 0}
"""Parameters of our own back end, which also have options of their own, with their least values."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Options, MemoryOptions, CommonOptions):
    """How properties are proved or falsified."""

    @classmethod
    def finish(cls, values: Values, typed: Collection[str]) -> Values:
        """Give parameters of our own back end to the fields that hold them.

        A file may have parameters of back ends that this run does not use.

        Raises:
            UsageError: There is no such back end or parameter, or it does not take that value.
        """
        values = super().finish(values, typed)
        detail = next((each.name for each in fields(ProveConfig) if each.name in typed), "")
        if detail and not values.get("prove", True):
            raise UsageError(f"--no-prove and --{detail.replace('_', '-')} contradict each other; give one of them")
        backends = values.get("backend", SearchConfig.backend)
        parameters = dict(values.pop("backend_parameters", {}))
        if "backend_parameters" not in typed:
            parameters = {backend: settings for backend, settings in parameters.items() if backend in backends}
        for backend, settings in parameters.items():
            if backend not in backends:
                named, listed = next(iter(settings)), ", ".join(backends)
                raise UsageError(f"--set {backend} {named}: {backend!r} is not among the back ends ({listed})")
        for name, value in parameters.pop("pgd", {}).items():
            if name not in _OWN:
                raise UsageError(f"--set pgd {name}: pgd has no such parameter; it has {', '.join(_OWN)}")
            try:
                values[name] = parse_whole(str(value), _OWN[name])
            except ValueError as error:
                raise UsageError(f"--set pgd {name}: {error}") from error
        return values | ({"backend_parameters": parameters} if parameters else {})


@dataclass(frozen=True, kw_only=True)
class AskOptions(VerboseOptions, SearchOptions):
    """How a property is proved or falsified, and what is shown of that.

    Attributes:
        output_format: What to print: the report as text or JSON, JUnit XML, SARIF, annotations of GitHub Actions, or a
            code quality report of GitLab.
        save_violation: Write the counterexample here: cex.npy, or cex.vnnlib.txt in VNN-COMP's format.
        json: Write the report as JSON here; - is short for --output-format json.
        proof: Write a file that check-proof can check, if the verdict is holds.
        report: Write an HTML page about the run here.
        junit: Write JUnit XML here, with a test for each operator in question.
        sarif: Write SARIF 2.1.0 here, with a result for each violated operator.
        explain: Show where the bounds of this node's operands come from, without a search.
        list_operators: List the operators in question, without a search.
    """

    output_format: Annotated[Literal["text", "json", "junit", "sarif", "github", "gitlab"], Option(group="output")] = (
        "text"
    )
    save_violation: Annotated[Path | None, Option(metavar="PATH", group="output")] = None
    json: Annotated[str | None, Option(metavar="PATH", group="output")] = None
    proof: Annotated[Path | None, Option(metavar="PATH", group="output")] = None
    report: Annotated[Path | None, Option(metavar="PATH", group="output")] = None
    junit: Annotated[Path | None, Option(metavar="PATH", group="output")] = None
    sarif: Annotated[Path | None, Option(metavar="PATH", group="output")] = None
    explain: Annotated[str | None, Option(metavar="NODE", group="output")] = None
    list_operators: Annotated[bool, Option(group="output")] = False

    @classmethod
    def finish(cls, values: Values, typed: Collection[str]) -> Values:
        """Check that standard output gets one form.

        Raises:
            UsageError: It would get two.
        """
        form = values.get("output_format", "text")
        if values.get("json") == "-" and form not in ("text", "json"):
            raise UsageError(f"--json - and --output-format {form} contradict each other; give one of them")
        return super().finish(values, typed)

    @property
    def form(self) -> str:
        """What is printed."""
        return "json" if self.json == "-" else self.output_format
