"""The pages of `benchmarks/`, each written from the records beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.bench import clip_page, figures_page, repair_page, training_page, zoo_page
from lab.bench.zoo_records import write

_Records = Mapping[str, Mapping[str, Any]]


def _zoo(records: _Records) -> str:
    known, trained = records.get("zoo", {"models": ()}), records.get("training")
    complete = [record for record in known["models"] if "detection" in record]
    tests = " | " if trained is None else training_page.system_tests(trained)
    parts = [zoo_page.page({**known, "models": complete}, tests)] if complete else []
    parts += [] if trained is None else [training_page.section(trained)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n" * bool(parts)


PAGES: Mapping[str, tuple[tuple[str, ...], Callable[[_Records], str]]] = {
    "zoo": (("zoo", "training"), _zoo),
    "clips": (("clips",), lambda records: clip_page.page(records["clips"])),
    "repairs": (("repairs",), lambda records: repair_page.page(records["repairs"])),
    "figures": (("figures",), lambda records: figures_page.page(records["figures"])),
}
"""By page, the records that it is made of and the function that makes it."""


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the pages of which a folder has records, each with its text."""
    for page, (names, make) in PAGES.items():
        paths = {name: folder / f"{name}.json" for name in names}
        records = {name: json.loads(path.read_text()) for name, path in paths.items() if path.is_file()}
        if text := make(records) if records else "":
            yield page, text


def write_pages(folder: Path) -> dict[str, str]:
    """Write the pages of which a folder has records.

    Returns:
        Their texts by name.
    """
    written = dict(texts(folder))
    for page, text in written.items():
        write(folder / f"{page}.md", text)
    return written
