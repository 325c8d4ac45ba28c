"""List the licences of all that an installation brings along, as docs/licences.md, and refuse those not agreed to.

Usage: scripts/list_licences.py [--write]

Follows the requirements of setup.cfg through what is installed beside this Python, extras left out, and adds DNNV and
DNNF, which wheels hold. Prints the page, or writes it. Exit status 1: a licence is none of `AGREED`.
"""

from __future__ import annotations

import argparse
import configparser
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
BUNDLED = ("dnnv", "dnnf")
"""What wheels hold; what these require themselves is not installed."""

AGREED: Mapping[str, str] = {
    "MIT": r"MIT( License)?(/X Consortium)?|The MIT License \(MIT\)",
    "BSD-3-Clause": r"BSD( License|-3-Clause|.*3-Clause)?|3-Clause BSD License|Modified BSD|New BSD",
    "BSD-2-Clause": r"BSD-2-Clause|Simplified BSD",
    "Apache-2.0": r"Apache([- ]2(\.0)?| License,? (Version )?2\.0| Software License)?|Apache License v2\.0",
    "PSF-2.0": r"PSF(-2\.0)?|Python Software Foundation License",
    "MPL-2.0": r"MPL-2\.0|Mozilla Public License 2\.0.*",
    "0BSD, MIT-0 or ISC": r"0BSD|MIT-0|ISC( License.*)?",
    "Zlib": r"zlib|Zlib",
    "CC0-1.0": r"CC0-1\.0",
    "MIT-CMU": r"HPND|MIT-CMU",
    "Apache-2.0 with LLVM exception": r"Apache-2\.0 WITH LLVM-exception",
    "BSL-1.0": r"BSL-1\.0",
}
"""Licences that let this package require what has them, whatever its own licence is, and how metadata says them."""

_OF_GPUS = re.compile(r"(nvidia|cuda|triton)\b")
"""What only builds of PyTorch for GPUs bring along, under NVIDIA's terms for the most part."""

_HEAD = """\
# Licences

`ranum-falsify` has the [MIT licence](../LICENSE). An installation brings along the packages below. \
None is copied into the repository; wheels hold DNNV and DNNF, with their licences beside them. \
`scripts/list_licences.py` makes this page, and a release stops at a licence that nobody has agreed to. \
PyTorch's builds for GPUs bring packages of NVIDIA as well, under NVIDIA's terms; a build for CPUs is enough.

| package | licence | required by |
|---|---|---|
"""


def required() -> list[str]:
    """Return what setup.cfg requires, without versions."""
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg", encoding="utf-8")
    return re.findall(r"^[\w.-]+", metadata["options"]["install_requires"], re.MULTILINE)


def walk(names: Sequence[str]) -> dict[str, tuple[Distribution, str]]:
    """Return the distributions that names lead to, each with the one that requires it, by name."""
    found: dict[str, tuple[Distribution, str]] = {}
    queue = [(name, "ranum-falsify") for name in (*names, *BUNDLED)]
    while queue:
        name, owner = queue.pop(0)
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue  # for another system or another Python
        key = re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()
        if key in found or _OF_GPUS.match(key):
            continue
        found[key] = one, owner
        inner = [] if key in BUNDLED else [text for text in one.requires or () if "extra ==" not in text]
        queue += [(match[0], key) for text in inner if (match := re.match(r"[\w.-]+", text))]
    return found


def licence_of(one: Distribution) -> str:
    """Return what the metadata of a distribution says of its licence, in one line."""
    data = one.metadata

    def read(name: str) -> list[str]:
        return [text.strip() for text in data.get_all(name) or () if text.strip()]

    classified = [text.rpartition(" :: ")[2] for text in read("Classifier") if text.startswith("License")]
    said = (*read("License-Expression"), " AND ".join(classified), *read("License"))
    plain = [text for text in said if text and "\n" not in text]
    first = next((text.splitlines()[0] for text in read("License")), "")
    return next(iter(plain), first or "not said")


def agreed(licence: str) -> Iterator[str]:
    """Yield the name of each part of a licence, "" for one that was not agreed to; of alternatives, one has to be."""
    for part in re.split(r"\s+AND\s+", licence):
        names = [
            next((name for name, pattern in AGREED.items() if re.fullmatch(pattern, text.strip("() "))), "")
            for text in re.split(r"\s+OR\s+", part)
        ]
        yield next((name for name in names if name), "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/licences.md")
    writes = parser.parse_args(arguments).write
    found = walk(required())
    rows, refused = [], []
    for name, (one, owner) in sorted(found.items()):
        said = licence_of(one)
        names = list(dict.fromkeys(agreed(said)))
        refused += [] if all(names) else [f"{name}: {said}"]
        rows.append(f"| {name} | {', '.join(names)} | {owner} |\n")
    page = _HEAD + "".join(rows)
    if writes and not refused:
        PAGE.write_text(page, encoding="utf-8")
    elif not writes:
        print(page, end="")
    for line in refused:
        print(f"list_licences: not agreed to: {line}", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
