"""What benchmarks of models know already: a JSON file with a record for each model, and where it was made."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ranum_falsify.results.plain import versions
from ranum_falsify.zoo.catalogue import MODELS

__all__ = ["facts", "load", "save", "write"]


_ZOO = tuple(model.id for model in MODELS)


def load(path: Path, part: str = "models") -> dict[str, dict[str, Any]]:
    """Return what was measured before, by model: of the zoo's, or in another part of the file."""
    return {record["id"]: record for record in _read(path).get(part, ())}


def save(
    path: Path,
    known: Mapping[str, Mapping[str, Any]],
    part: str = "models",
    order: Iterable[str] = _ZOO,
) -> None:
    """Write what is known of a part, in the order of its catalogue; other parts stay."""
    content = {
        **_read(path),
        "facts": facts("one used, shared with other work"),
        part: [known[name] for name in order if name in known],
    }
    write(path, json.dumps(content, indent=1) + "\n")


def _read(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def write(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def facts(use: str) -> dict[str, Any]:
    """Return where measurements were made.

    Args:
        use: How the machine was used.
    """
    used = {name: version for name, version in versions().items() if name in ("torch", "onnxruntime", "numpy")}
    return {
        "machine": f"{os.cpu_count()} CPU cores ({platform.machine()}), {use}",
        "versions": ", ".join(f"{name} {version}" for name, version in used.items()),
    }
