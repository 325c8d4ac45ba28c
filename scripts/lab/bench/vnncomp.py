"""The instances of a folder of VNN-COMP benchmarks."""

from __future__ import annotations

import csv
import gzip
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ranum_falsify.network import read
from ranum_falsify.properties.language.parse import parse
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce

__all__ = ["Instance", "choose_instances", "spread_over_families"]


@dataclass(frozen=True)
class Instance:
    """One network, one property, and the known verdict."""

    family: str
    onnx: Path
    vnnlib: Path
    expected: str

    @property
    def name(self) -> str:
        """The names of its files without their endings."""
        return f"{self.onnx.name.split('.onnx')[0]} {self.vnnlib.name.split('.vnnlib')[0]}"

    def problem(self) -> Problem:
        """Read both files."""
        with tempfile.TemporaryDirectory() as folder:
            model = self.onnx
            if model.suffix == ".gz":
                model = Path(folder) / self.onnx.stem
                model.write_bytes(gzip.decompress(self.onnx.read_bytes()))
            return reduce(parse(self.vnnlib), {"N": read(model)})


def instances(folder: Path, families: Sequence[str] | None) -> Iterator[Instance]:
    """Yield the instances of the chosen families, all by default."""
    for table in sorted(folder.glob("*/expected.csv")):
        if families and table.parent.name not in families:
            continue
        with table.open(newline="") as file:
            for row in csv.DictReader(file):
                root = table.parent
                yield Instance(
                    root.name, _find_present(root / row["onnx"]), _find_present(root / row["vnnlib"]), row["expected"]
                )


def choose_instances(folder: Path, families: Sequence[str] | None, expected: str) -> list[Instance]:
    """Return the requested instances.

    Raises:
        LookupError: There is none, or none of a family, or a file of one is missing.
    """
    there = sorted(table.parent.name for table in folder.glob("*/expected.csv"))
    if not there:
        raise LookupError(f"{folder}: no folder in it has an expected.csv; give a folder of VNN-COMP families")
    for family in families or ():
        if family not in there:
            raise LookupError(f"--family {family}: {folder} has no such family; it has {', '.join(there)}")
    found = [i for i in instances(folder, families) if expected in ("all", i.expected)]
    if not found:
        raise LookupError(f"{folder}: no instance there is expected to be {expected}; leave --expected out")
    for path in (path for instance in found for path in (instance.onnx, instance.vnnlib)):
        if not path.is_file():
            raise LookupError(f"{path}: no such file; the benchmark's expected.csv names it")
    return found


def _find_present(path: Path) -> Path:
    return path if path.exists() else path.with_name(path.name + ".gz")


def spread_over_families(found: Sequence[Instance], count: int) -> list[Instance]:
    """Return the given number of instances, about equally many of each family, evenly spaced within a family."""
    families: dict[str, list[Instance]] = {}
    for instance in found:
        families.setdefault(instance.family, []).append(instance)
    chosen: list[Instance] = []
    # Small families first: what they lack goes to the others.
    for position, of in enumerate(sorted(families.values(), key=len)):
        share = min(len(of), (count - len(chosen)) // (len(families) - position))
        chosen += [of[number * len(of) // share] for number in range(share)]
    return chosen
