"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ranum_falsify.option_marks import MODEL, Option, parse_gigabytes, to_mapping, to_paths

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
