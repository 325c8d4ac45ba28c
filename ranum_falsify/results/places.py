"""Paths of counterexamples, and parts of names of files; nothing here imports more than the standard library."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SUFFIX = ".vnnlib.txt"
_SUFFIXES = (SUFFIX, ".counterexample", f"{SUFFIX}.gz", ".counterexample.gz")


@dataclass(frozen=True)
class Base:
    """Where counterexamples go: `<stem>.npy`, `<stem>.<name>.npy` and `<stem>.json` in one folder."""

    folder: Path
    stem: str

    @property
    def array(self) -> Path:
        """File of the only input of the first counterexample."""
        return self.folder / f"{self.stem}.npy"

    @property
    def description(self) -> Path:
        """File that says what the arrays violate."""
        return self.folder / f"{self.stem}.json"

    def part(self, name: str) -> Path:
        """Return the file of a further array."""
        return self.folder / f"{self.stem}.{name}.npy"

    def model(self, name: str | None = None) -> Path:
        """Return the file of a model from memory: of the only network, or of one that is named."""
        return self.folder / (f"{self.stem}.onnx" if name is None else f"{self.stem}.{name}.onnx")


def base_of(path: Path) -> Base:
    """Return the base that a user's path names; `cex` is `cex.npy`, as `numpy.save` has it."""
    return Base(path.parent, path.name.removesuffix(".npy") or path.name)


def is_assignment(path: Path) -> bool:
    """Tell whether a path is named as a counterexample in this format."""
    return path.name.endswith(_SUFFIXES)


_LONGEST_NAME = 80


def is_plain_name(name: str) -> bool:
    """Tell whether a name from a file names a file beside it, rather than a path elsewhere."""
    return Path(name).name == name and name not in ("", "..")


def make_safe_name(name: str) -> str:
    """Return a node's or an input's name as part of a file name: letters, digits, `_`, `-`, `.`."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("._")[:_LONGEST_NAME] or "unnamed"


def unique_names(names: Iterable[str], taken: set[str]) -> list[str]:
    """Return safe names that differ from each other and from those taken, letter case aside; they become taken."""
    unique = []
    for name in names:
        safe, count = make_safe_name(name), 1
        while safe.lower() in taken:
            count += 1
            safe = f"{make_safe_name(name)}_{count}"
        taken.add(safe.lower())
        unique.append(safe)
    return unique
