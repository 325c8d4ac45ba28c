"""One question of a suite: models, what is asked of them, and with which options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


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
