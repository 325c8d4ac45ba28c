"""Write proof files of the example networks and of the zoo's repaired twins, check them, and tamper with them.

    python scripts/bench_proofs.py [--match TEXT] [--tampered 200] [--seed 0]

Each file is about a network that is safe: those of networks/ over [-1, 1], and the twins over the ranges of their
inputs and weights. All that can be written must be accepted. Then bounds are moved inward by one unit in the last
place, tensors left out, and models exchanged, of as many as --tampered says: each must be rejected. The exit status is
1 if one is not.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

import ranum_falsify as rf
from ranum_falsify.api.proof_files import proof_of
from ranum_falsify.api.settings import Options
from ranum_falsify.checker.check import check_proof
from ranum_falsify.checker.proof import ProofFile, ProofRejectedError
from ranum_falsify.checker.rules import Bounds
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.zoo.catalogue import MODELS

NETWORKS = Path(__file__).resolve().parent.parent / "networks"
OTHERS = ("mlp_classifier",)
"""Networks that are safe without the name of one."""
SMALL = 200_000
"""Elements of a proof that is tampered with, which is checked once for each change."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A network that is safe: its name, its file, and its property; None for the box [-1, 1]."""

    name: str
    model: Path
    prop: Path | None


def list_subjects(folder: Path, match: str) -> Iterator[Subject]:
    """Yield the networks, those of the zoo written to a folder."""
    for path in sorted(NETWORKS.glob("*.onnx")):
        if match in path.stem and ("safe" in path.stem or path.stem in OTHERS):
            yield Subject(path.stem, path, None)
    for model in MODELS:
        name = model.file_name(safe=True)
        if match in name:
            architecture = model.architecture(safe=True)
            path, prop = folder / f"{name}.onnx", folder / f"{name}.py"
            onnx.save(architecture.model, str(path))
            prop.write_text(model.property_text(architecture, safe=True), encoding="utf-8")
            yield Subject(name, path, prop)
            path.unlink()


def write_proof(subject: Subject, target: Path) -> str:
    """Write the proof file of a network; return why there is none, "" where there is."""
    options: Options = {"n_starts": 0, "self_check": False, "prove_timeout": 30}
    if subject.prop is None:
        result = rf.check(subject.model, box=(-1, 1), **options)
    else:
        result = rf.falsify(subject.model, subject.prop, **options)
    if result.verdict != "holds":
        return f"no proof: {result.verdict}"
    try:
        target.write_bytes(proof_of(result.answer, result.loaded, result.config))
    except RanumFalsifyError as error:
        return str(error)
    return ""


def tamper(proof: ProofFile, rng: np.random.Generator) -> tuple[str, ProofFile]:
    """Return a changed proof, which must not be accepted, and what was changed."""
    computed = [
        name
        for name, bounds in proof.bounds.items()
        if name not in (*proof.trusted, *proof.inputs) and bounds.lower.dtype == np.float32 and bounds.lower.size
    ]
    kind = rng.choice(["bound", "bound", "tensor", "model"])
    if kind == "model":
        return "another model", dataclasses.replace(proof, model=f"{rng.integers(2**63):064x}")
    if kind == "tensor" or not computed:
        left_out = rng.choice(list(proof.bounds))
        rest = {name: bounds for name, bounds in proof.bounds.items() if name != left_out}
        return f"{left_out} left out", dataclasses.replace(proof, bounds=rest)
    name = rng.choice(computed)
    ends = [proof.bounds[name].lower.copy(), proof.bounds[name].upper.copy()]
    side, place = int(rng.integers(2)), int(rng.integers(ends[0].size))
    flat = ends[side].reshape(-1)
    flat[place] = np.nextafter(flat[place], np.float32(-np.inf if side else np.inf))
    return f"{name}[{place}] moved", dataclasses.replace(proof, bounds={**proof.bounds, name: Bounds(*ends)})


def is_accepted(proof: ProofFile, model: Path) -> bool:
    """Tell whether the checker accepts a proof."""
    try:
        check_proof(proof, model)
    except ProofRejectedError:
        return False
    return True


def examine(subject: Subject, target: Path) -> tuple[str, ProofFile | None]:
    """Write and check a proof; return what came of it, and the proof where it was accepted."""
    began = time.monotonic()
    if why := write_proof(subject, target):
        return f"not written ({why})", None
    written = time.monotonic()
    try:
        proof = ProofFile.read(target)
        found = check_proof(proof, subject.model)
    except ProofRejectedError as error:
        return f"REJECTED: {error}", None
    text = f"accepted: {found.checked} computed again, {len(found.valid)} valid, {len(found.trusted)} trusted"
    seconds = f"written in {written - began:.1f} s, checked in {time.monotonic() - written:.1f} s"
    return f"{text}; {target.stat().st_size / 1e6:.1f} MB, {seconds}", proof


def main(argv: Sequence[str] | None = None) -> int:
    """Write, check and tamper."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--match", default="")
    arguments.add_argument("--tampered", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args(argv)
    rng, faults, accepted, total, tampered = np.random.default_rng(given.seed), 0, 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="proofs-") as name:
        for subject in list_subjects(Path(name), given.match):
            text, proof = examine(subject, Path(name) / "proof.npz")
            print(f"{subject.name}: {text}", flush=True)
            total, accepted, faults = total + 1, accepted + (proof is not None), faults + text.startswith("REJECTED")
            if proof is None or sum(bounds.lower.size for bounds in proof.bounds.values()) > SMALL:
                continue
            for _ in range(min(8, given.tampered - tampered)):
                what, changed = tamper(proof, rng)
                tampered += 1
                if is_accepted(changed, subject.model):
                    faults += 1
                    print(f"{subject.name}: ACCEPTED with {what}", flush=True)
    print(f"accepted: {accepted} of {total}; tampered with: {tampered}; faults: {faults}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
