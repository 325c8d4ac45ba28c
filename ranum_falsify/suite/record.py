"""Questions of a suite, and what they came to: the lines of `results.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One question of a suite.

    Attributes:
        id: Its name, unique in the suite: category, model and property, as the suite writes them.
        category: The benchmark that it belongs to.
        model: Its model, as the suite writes it; several are joined by spaces.
        property: Its property, likewise; the box where there is no property file.
        networks: Model files by the names that the property gives them, seen from the working folder; "" stands for the
            name of the only one.
        property_path: The property file, seen from the working folder; None for a question without one.
        vnnlib: Whether that is VNN-LIB even if its suffix does not say so.
        parameters: Values of the property's parameters, as text.
        question: What is asked without a property file, as the arguments of `check`: `box`, `only`, `nodes` and others.
        options: How to prove and search, as the keywords of the Python API.
        timeout: Seconds for all of it; None for no limit.
    """

    id: str
    category: str
    model: str
    property: str
    networks: Mapping[str, str]
    property_path: str | None = None
    vnnlib: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    question: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {each.name: _as_plain(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Instance:
        """Return what JSON holds.

        Raises:
            KeyError: A field is missing.
            TypeError: A field has another type.
        """
        timeout = data["timeout"]
        return cls(
            **{name: _text(data[name]) for name in ("id", "category", "model", "property")},
            networks={name: _text(path) for name, path in dict(data["networks"]).items()},
            property_path=None if data["property_path"] is None else _text(data["property_path"]),
            vnnlib=bool(data["vnnlib"]),
            parameters={name: _text(value) for name, value in dict(data["parameters"]).items()},
            question=dict(data["question"]),
            options=dict(data["options"]),
            timeout=None if timeout is None else float(timeout),
        )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _as_plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


FORMAT = 1
"""Number of the form of a line, which grows when a key changes its meaning or goes; see docs/suites.md."""

Status = Literal["sat", "unsat", "unknown", "timeout", "error"]
"""What VNN-COMP calls an outcome: `sat` is a counterexample, `unsat` a proof."""

STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, kw_only=True)
class InstanceRecord:
    """What an instance came to.

    Attributes:
        instance: The question.
        fingerprint: SHA-256 hash of the question, its options, and the content of its files; what `--resume` compares.
        status: The outcome.
        preparation: Seconds to read the models and the property.
        seconds: Seconds from then to the outcome.
        error: Where the outcome is `error`, what went wrong, in one line; else "".
        runs: How often the instance was begun: more than once where a worker died.
        files: Files of the counterexample, beside the results, by what they are: `description` is its `cex.json`,
            `vnnlib` the same in VNN-COMP's format; empty where there is none.
        report: The report that the main command writes as `--json`; file names in it are relative to the results. None
            where the instance came to none: a time limit that had to be enforced, or an error.
    """

    instance: Instance
    fingerprint: str
    status: Status
    preparation: float
    seconds: float
    error: str = ""
    runs: int = 1
    files: Mapping[str, str]
    report: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        values = {each.name: _as_plain(getattr(self, each.name)) for each in fields(self)}
        rounded = {name: round(values[name], 6) for name in ("preparation", "seconds")}
        return {"format": FORMAT, **values, "instance": self.instance.to_json(), **rounded}

    def line(self) -> str:
        """Return it as one line of JSON, ended by a line feed."""
        return json.dumps(self.to_json(), allow_nan=False, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InstanceRecord:
        """Return what JSON holds.

        Raises:
            KeyError: A field is missing.
            TypeError: A field has another type.
            ValueError: It is of another format, or no status.
        """
        if data["format"] != FORMAT:
            raise ValueError(f"is in format {data['format']}, not {FORMAT}")
        if data["status"] not in STATUSES:
            raise ValueError(f"{data['status']!r} is no status")
        report = data["report"]
        return cls(
            instance=Instance.from_json(data["instance"]),
            fingerprint=str(data["fingerprint"]),
            status=data["status"],
            preparation=float(data["preparation"]),
            seconds=float(data["seconds"]),
            error=str(data["error"]),
            runs=int(data["runs"]),
            files={name: str(file) for name, file in dict(data["files"]).items()},
            report=None if report is None else dict(report),
        )
