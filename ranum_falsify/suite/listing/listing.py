"""The instances of a suite, whatever lists them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ranum_falsify.errors import UsageError
from ranum_falsify.suite.instance import Instance
from ranum_falsify.suite.listing.dnnv import is_dnnv, read_dnnv
from ranum_falsify.suite.listing.files import make_unique, read_rows
from ranum_falsify.suite.listing.toml import ReadOptions, read_toml
from ranum_falsify.suite.listing.vnncomp import read_vnncomp

__all__ = ["list_instances"]

_LISTS = ("suite.toml", "instances.csv", "instances.csv.gz")
_PROBLEMS = "problems*.csv"


def list_instances(path: Path, read_options: ReadOptions) -> list[Instance]:
    """Return the instances of a suite, each with an id of its own.

    Args:
        path: A list; or a folder with one, or with folders that have one each.
        read_options: Reads the options of a group of a `suite.toml`.

    Raises:
        UsageError: There is no list, it lists nothing, or is of another form.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder; give a folder, an instances.csv, or a suite.toml")
    lists = _find_lists(path) if path.is_dir() else [path]
    if not lists:
        raise UsageError(
            f"{path}: has no {', '.join(_LISTS)} or {_PROBLEMS}, nor has a folder in it; give a folder that has"
        )
    found = [instance for each in lists for instance in _read(each, read_options)]
    if not found:
        raise UsageError(f"{path}: lists no instances; add some")
    ids = make_unique(instance.id for instance in found)
    return [replace(instance, id=name) for instance, name in zip(found, ids, strict=True)]


def _find_lists(folder: Path) -> list[Path]:
    """Return the lists of a folder; where it has none, those of the folders in it."""
    own = _find_own(folder)
    return own or [each for inner in sorted(folder.iterdir()) if inner.is_dir() for each in _find_own(inner)]


def _find_own(folder: Path) -> list[Path]:
    for name in _LISTS:
        if (folder / name).is_file():
            return [folder / name]
    return sorted(folder.glob(_PROBLEMS))


def _read(path: Path, read_options: ReadOptions) -> Iterator[Instance]:
    if path.suffix == ".toml":
        yield from read_toml(path, read_options)
        return
    rows = read_rows(path)
    yield from read_dnnv(path, rows) if is_dnnv(rows) else read_vnncomp(path, rows)
