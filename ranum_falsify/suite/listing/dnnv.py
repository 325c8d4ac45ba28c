"""DNNV's lists of problems: a property, its networks, and its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ranum_falsify.errors import UsageError
from ranum_falsify.suite.instance import Instance
from ranum_falsify.suite.listing.files import find_present

__all__ = ["is_dnnv", "read_dnnv"]

_NEEDED = ("problem_id", "property_filename", "network_names", "network_filenames")
_SEPARATOR = ":"


def is_dnnv(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether the first row of a list names DNNV's columns."""
    return bool(rows) and set(_NEEDED) <= set(rows[0])


def read_dnnv(path: Path, rows: Sequence[Sequence[str]]) -> Iterator[Instance]:
    """Yield the problems of a list.

    Args:
        path: Its file; its folder is the category, and what files are relative to.
        rows: Its rows, the first of which names the columns.

    Raises:
        UsageError: A row is not of this form.
    """
    category = path.resolve().parent.name
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(rows[0]):
            raise UsageError(f"{path}: row {number} has {len(row)} columns, not {len(rows[0])}; correct it")
        cells = dict(zip(rows[0], row, strict=True))
        networks = _pair(path, number, cells, "network_names", "network_filenames")
        parameters = _pair(path, number, cells, "parameter_names", "parameter_values")
        yield Instance(
            id=f"{category}/{cells['problem_id']}",
            category=category,
            model=" ".join(networks.values()),
            property=" ".join([cells["property_filename"], *(f"{name}={text}" for name, text in parameters.items())]),
            networks={name: find_present(path.parent, file) for name, file in networks.items()},
            property_path=find_present(path.parent, cells["property_filename"]),
            parameters=parameters,
        )


def _pair(path: Path, number: int, cells: Mapping[str, str], names: str, values: str) -> dict[str, str]:
    """Return what two cells of a row say together."""
    keys, texts = (cells[column].split(_SEPARATOR) if cells.get(column) else [] for column in (names, values))
    if len(keys) != len(texts) or len(set(keys)) != len(keys):
        raise UsageError(f"{path}: row {number}: {names} and {values} do not match; write as many, separated by ':'")
    return dict(zip(keys, texts, strict=True))
