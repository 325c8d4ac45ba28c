"""Write proof files of models that are safe, and check them.

    python scripts/bench_proofs.py [--match PATTERN]

The models: those of networks/ over [-1, 1]; the zoo's repaired twins, with its re-implemented programs, over the ranges
of their inputs and weights; and what practitioners export, with random weights, over [-1, 1]. A line for each says how
many of the operators that can fail the checker shows not to, of the model and of what ONNX Runtime makes of it. The
exit status is 1 if a proof is rejected. tests/checker forges files.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import EllipsisType
from typing import Any

import onnx
from proof_models import NAMES, write_model

import ranum_falsify as rf
from ranum_falsify.api.result import proof_of
from ranum_falsify.checker.check import Followed, check_model
from ranum_falsify.checker.question import ModelQuestion, ProofFile, ProofRejectedError, ask
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.network.model_file import free_model
from ranum_falsify.network.optimised import optimise_model
from ranum_falsify.zoo.catalogue import FUZZED, MODELS

NETWORKS = Path(__file__).resolve().parent.parent / "networks"
OTHERS = ("mlp_classifier",)
"""Networks that are safe without the name of one."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A network that is safe: its kind, its name, its file, and its property; None for the box [-1, 1]."""

    kind: str
    name: str
    model: Path
    prop: Path | None


def list_subjects(folder: Path, match: str) -> Iterator[Subject]:
    """Yield the networks, those of the zoo written to a folder."""
    for path in sorted(NETWORKS.glob("*.onnx")):
        if fnmatchcase(path.stem, match) and ("safe" in path.stem or path.stem in OTHERS):
            yield Subject("networks", path.stem, path, None)
    for name in NAMES:
        if fnmatchcase(name, match):
            write_model(name, path := folder / f"{name}.onnx")
            yield Subject("exported", name, path, None)
            path.unlink()
    for model in (*MODELS, *FUZZED):
        name = model.file_name(safe=True)
        if fnmatchcase(name, match):
            architecture = model.architecture(safe=True)
            path, prop = folder / f"{name}.onnx", folder / f"{name}.py"
            onnx.save(architecture.model, str(path))
            prop.write_text(model.property_text(architecture, safe=True), encoding="utf-8")
            yield Subject("programs" if name.startswith("saf") else "twins", name, path, prop)
            path.unlink()


def write_proof(subject: Subject, target: Path) -> tuple[str, ModelQuestion | None]:
    """Write the proof file of a network; return why there is none, and the question if there is one."""
    options: dict[str, Any] = {"n_starts": 0, "self_check": False, "prove_timeout": 30}
    if subject.prop is None:
        result = rf.check(subject.model, box=(-1, 1), **options)
    else:
        result = rf.falsify(subject.model, subject.prop, **options)
    if result.verdict != "holds":
        return f"no proof: {result.verdict}", None
    try:
        target.write_bytes(proof_of(result.answer, result.loaded, result.config))
    except RanumFalsifyError as error:
        return str(error), None
    ((call,), (region,)) = result.loaded.problem.calls, result.loaded.problem.regions
    ends = {one.name: (one.lower, one.upper) for one in region}
    box: Mapping[str | EllipsisType, Any] = {
        name: ends[one] for name, one in zip(call.graph.input_names, call.variables, strict=True) if one is not None
    }
    free = call.graph.options.free
    return "", ask(subject.model.read_bytes(), box, sizes={}, runtimes=("onnxruntime",), free=free)


@dataclasses.dataclass
class Tally:
    """Of how many models and operators of a kind something is shown."""

    proofs: int = 0
    accepted: int = 0
    shown: int = 0
    failing: int = 0

    def add(self, found: Sequence[Followed]) -> None:
        """Add what came of a model and of what runs in its place."""
        self.proofs += 1
        self.accepted += not any(one.open for one in found)
        self.failing += sum(len(one.failing) for one in found)
        self.shown += sum(len(one.failing) - len(one.open) for one in found)

    def __str__(self) -> str:
        share = 100 * self.shown / max(self.failing, 1)
        operators = f"{self.shown} of {self.failing} operators that can fail ({share:.1f} %)"
        return f"accepted: {self.accepted} of {self.proofs}; shown: {operators}"


def examine(subject: Subject, target: Path, tally: Tally) -> str:
    """Write and check a proof; return what came of it."""
    began = time.monotonic()
    why, question = write_proof(subject, target)
    if question is None:
        return f"not written ({why})"
    written = time.monotonic()
    try:
        proof = ProofFile.read(target)
        proof.compare(question)
        rewritten, _ = optimise_model(free_model(question.model, tuple(question.free)))
        assert rewritten is not None, "it was proved for ONNX Runtime"
        found = [check_model(question, proof), check_model(question, proof, rewritten)]
    except ProofRejectedError as error:
        return f"REJECTED: {error}"
    tally.add(found)
    text = " and ".join(f"{len(one.failing) - len(one.open)} of {len(one.failing)}" for one in found)
    missing = [title for one in found for title, why in one.open.items() if not why.startswith("nothing")]
    verdict = "not checked" if missing else "accepted"
    seconds = f"written in {written - began:.1f} s, checked in {time.monotonic() - written:.1f} s"
    size = f"{target.stat().st_size / 1e3:.0f} kB, {found[0].parts} parts"
    return f"{verdict}: {text}; {size}, {seconds}" + (f"; not shown: {', '.join(missing[:3])}" if missing else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Write and check."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--match", default="*")
    given = arguments.parse_args(argv)
    tallies, faults = dict[str, Tally](), 0
    with tempfile.TemporaryDirectory(prefix="proofs-") as name:
        for subject in list_subjects(Path(name), given.match):
            text = examine(subject, Path(name) / "proof.npz", tallies.setdefault(subject.kind, Tally()))
            print(f"{subject.name}: {text}", flush=True)
            faults += text.startswith("REJECTED")
    for kind, tally in tallies.items():
        print(f"{kind}: {tally}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
