"""Tasks of a worker, one for each instance, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ranum_falsify.suite.bundles import Bundle
from ranum_falsify.suite.instance import Instance
from ranum_falsify.suite.record import Status

_LEAST_GRACE, _GRACE = 5.0, 0.1


@dataclass(frozen=True, kw_only=True)
class Task:
    """An instance, and what its process may use.

    Attributes:
        instance: The question.
        stem: Begin of the names of the files of its counterexample.
        folder: The working folder of the suite, which the paths in the instance are seen from.
        bundles: The files that the instance reads, by their paths in it.
        places: Where files are on this machine, by their path in the instance; those that are left out are there.
        memory: Bytes of memory that its processes may hold together; None for no limit.
        processors: Threads of the libraries.
    """

    instance: Instance
    stem: str
    folder: str = ""
    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    memory: int | None = None
    processors: int = 1

    @property
    def deadline(self) -> float | None:
        """Seconds after which its process is ended: who keeps to the instance's own time limit ends well before."""
        limit = self.instance.timeout
        return None if limit is None else limit + max(_LEAST_GRACE, _GRACE * limit)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What came of a task.

    Attributes:
        status: The outcome.
        preparation: Seconds to read the models and the property.
        seconds: Seconds from then to the outcome.
        error: What went wrong, in one line.
        files: Files of the counterexample by what they are, as a record has them.
        contents: What they and all that they name hold, by path below the folder of the results.
        report: The report of the main command.
        lost: Whether its process was ended from outside, so that another run may come to an answer.
    """

    status: Status
    preparation: float = 0.0
    seconds: float = 0.0
    error: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)
    report: Mapping[str, Any] | None = None
    lost: bool = False
