"""Tables that scripts measure: printed row by row, and recorded for the page of figures where that is asked for."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.bench.zoo_records import facts, write

__all__ = ["Table", "add_record_option", "command_of", "markdown"]

RECORD = Path(__file__).resolve().parents[3] / "benchmarks" / "figures.json"


def add_record_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that records what a script measures."""
    parser.add_argument(
        "--record", action="store_true", help="keep the rows in benchmarks/figures.json, for scripts/write_pages.py"
    )


def command_of(script: str, argv: Sequence[str] | None) -> str:
    """Return the command that measures, with no folder of one machine; empty where nothing is to be recorded.

    Args:
        script: The path of the script.
        argv: Its arguments; None for those of the process.
    """
    words = sys.argv[1:] if argv is None else argv
    shown = ["FOLDER" if Path(word).is_dir() else word for word in words if word != "--record"]
    return shlex.join([f"scripts/{Path(script).name}", *shown]) if "--record" in words else ""


class Table:
    """A table whose rows are printed as they come.

    Args:
        name: Its name in the record.
        columns: Its columns.
        keys: How many of them, the first ones, tell rows apart: a recorded row takes the place of one with the same.
        command: What measures it; empty where nothing is recorded.
    """

    def __init__(self, name: str, columns: Sequence[str], *, keys: int = 1, command: str = "") -> None:
        self._name, self._columns, self._keys, self._command = name, list(columns), keys, command
        print(markdown(columns, []), flush=True)

    def add(self, *cells: str) -> None:
        """Add a row."""
        print(_line(cells), flush=True)
        if not self._command:
            return
        known: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
        table = known.get(self._name, {})
        rows = table["rows"] if table.get("columns") == self._columns else []
        made = {"cells": list(cells), "command": self._command, **facts("shared with other work")}
        places = [n for n, row in enumerate(rows) if row["cells"][: self._keys] == made["cells"][: self._keys]]
        rows[slice(places[0], places[0] + 1) if places else slice(len(rows), None)] = [made]
        write(RECORD, json.dumps(known | {self._name: {"columns": self._columns, "rows": rows}}, indent=1) + "\n")


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    return "\n".join([_line(columns), "|" + "---|" * len(columns), *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
