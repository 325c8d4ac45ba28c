#!/usr/bin/env python3
"""Sample training data that the benchmark found, write their tests, and run these where ranum-falsify is not installed.

The environment has NumPy, PyTorch, ONNX Runtime and pytest, at the versions of constraints.txt, and what these need.

    scripts/replay_training.py --environment /tmp/bare --folder /tmp/generated
    scripts/replay_training.py --environment /tmp/bare --folder /tmp/generated --count 5 --levels strict
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ranum_falsify.saving import save_together
from ranum_falsify.zoo.catalogue import model_of
from ranum_falsify.zoo.train import LEVELS, SEEDS, Level, TrainingBench

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("numpy", "onnxruntime", "pytest")


def make_environment(folder: Path) -> Path:
    """Return the interpreter of an environment that is made unless it is there."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")
        constrained = [str(python), "-m", "pip", "install", "--quiet", "-c", str(_ROOT / "scripts" / "constraints.txt")]
        # torch goes first, as in setup_venv.py: the resolver might try builds of several GB.
        subprocess.run([*constrained, "torch"], check=True)
        subprocess.run([*constrained, *_PACKAGES], check=True)
    return python


def list_successes(levels: Sequence[str], seed: int) -> list[tuple[str, Level]]:
    """Return the defects and levels of which the benchmark knows training data, in random order."""
    known = json.loads((_ROOT / "benchmarks" / "training.json").read_text(encoding="utf-8"))["defects"]
    found = [
        (defect["id"], level)
        for defect in known
        for level in LEVELS
        if level in levels and defect["levels"].get(level, {}).get("trained")
    ]
    random.Random(seed).shuffle(found)
    return found


def write_tests(given: argparse.Namespace) -> Iterator[Path]:
    """Yield the folder of each test, as soon as it is written."""
    rng, left = random.Random(given.seed), given.count
    for name, level in list_successes(given.levels, given.seed) * len(SEEDS):
        if not left:
            return
        model, seed = model_of(name), rng.choice(SEEDS)
        label = f"{name}_{level}_{seed}"
        folder = given.folder / label
        if folder.exists():
            continue
        defect = next(defect for defect in model.defects if defect.id == name)
        runs = TrainingBench(model, level).runs_of(defect, seeds=[seed], timeout=given.timeout, rehearses=True)
        print(f"{label}: {f'{len(runs.rehearsed)} written' if runs.trained else 'nothing found'}", flush=True)
        for run in runs.rehearsed if runs.trained else ():
            folder.mkdir(parents=True)
            save_together({folder / file: content for file, content in run.list_files(label, label).items()})
            left -= 1
            yield folder


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, required=True, help="where the environment is, or is made")
    parser.add_argument("--folder", type=Path, required=True, help="where the tests go, each in a folder of its own")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of one search")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    python = make_environment(given.environment)
    given.folder.mkdir(parents=True, exist_ok=True)
    folders = [str(folder) for folder in write_tests(given)]
    # Nothing of this checkout may be found there.
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", *folders]
    return subprocess.run(command, check=False, env=clean, cwd=given.folder).returncode


if __name__ == "__main__":
    sys.exit(main())
