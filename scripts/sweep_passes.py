#!/usr/bin/env python3
"""Run every pass over real models, each verified: the fetched models, the example networks, and the zoo.

Usage: scripts/sweep_passes.py [--pass NAME ...] [--model TEXT ...] [--samples N]
       scripts/sweep_passes.py --large 16 [--pass NAME ...]

Each pass runs on each model by itself, and then all that promise equality run in a row. What a pass makes must be
verified, without ONNX Runtime's optimisations and at its default level: equality to the bit, or within the tolerance. A
table says how often each pass applied, was proved or was sampled; faults are printed, and end with exit status 1.
scripts/fetch_models fetches the models.

`--large` measures instead what the command takes for a large model, an encoder with Log(Softmax) behind it, of which 16
layers are 50 million parameters in 200 MB: seconds, those of all its processors, and the most memory of one process.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx
from onnx import helper

from lab.bench.large import encoder
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.rewrite.catalogue import PassCall, all_passes, find_pass
from ranum_falsify.rewrite.config import TransformConfig
from ranum_falsify.rewrite.model import read_model
from ranum_falsify.rewrite.outcome import PostconditionError
from ranum_falsify.rewrite.runner import Verification
from ranum_falsify.zoo.catalogue import MODELS

ROOT = Path(__file__).resolve().parent.parent
ARGUMENTS = {"convert_opset": "21"}
# Where the model runs with no size that is tried for all dimensions.
SIZES = {"silero_vad.onnx": {"input:0": 1, "input:1": 256, "state:1": 1}, "swift-f0": {"samples": 2048}}
# Where operators of the model itself receive invalid input else, by the folder of the model.
RANGES = {"swift-f0": {"audio": (-1, 1), "fmin": (50, 80), "fmax": (500, 1000)}}

# Of those that find something in the large model: one that cleans it, one that writes it for verifiers, a stable form.
LARGE = ("deduplicate_initializers", "lower_gelu", "stable_log_softmax")


def model_paths(folder: Path) -> Iterator[Path]:
    """Yield the models; those of the zoo are written to a folder first."""
    yield from sorted((ROOT / "models").rglob("*.onnx"))
    yield from sorted((ROOT / "networks").glob("*.onnx"))
    for model in MODELS:
        path = folder / f"zoo-{model.id}.onnx"
        onnx.save(model.architecture().model, path)
        yield path


def calls(names: Sequence[str]) -> list[PassCall]:
    """Return the passes that are asked for, all by default."""
    texts = (f"{spec.name}={ARGUMENTS[spec.name]}" if spec.argument else spec.name for spec in all_passes())
    return [find_pass(text) for text in texts if not names or text.partition("=")[0] in names]


def write_large(path: Path, layers: int) -> None:
    """Write an encoder of layers of 3.1 million parameters, and Log(Softmax) behind it."""
    model = encoder(fused=True, depth=layers, tokens=16)
    (end,) = model.graph.output
    model.graph.node.append(helper.make_node("Softmax", [end.name], ["p"], name="p", axis=-1))
    model.graph.node.append(helper.make_node("Log", ["p"], ["log_p"], name="log_p"))
    end.name = "log_p"
    onnx.save(model, path)


def measure(model: Path, name: str, options: Sequence[str]) -> int:
    """Print what the command takes for a pass; return 1 where it fails."""
    words = ("transform", str(model), name, *options, "-o", str(model.with_name("out.onnx")), "-q")
    began = time.monotonic()
    process = subprocess.Popen((sys.executable, "-m", "ranum_falsify", *words), cwd=ROOT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall, processor = time.monotonic() - began, used.ru_utime + used.ru_stime
    title = " ".join((name, *options))
    print(f"{title:46s} {wall:8.1f} {processor:10.1f} {used.ru_maxrss / 1024:8.0f}", flush=True)
    return int(process.returncode != 0)


def measure_large(layers: int, names: Sequence[str]) -> int:
    """Measure passes on a large model, with samples alone, and with a search; return 1 where one fails."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "large.onnx"
        # In a process of its own: Linux counts the memory of one that starts another as the other's.
        writer = multiprocessing.get_context("spawn").Process(target=write_large, args=(model, layers))
        writer.start()
        writer.join()
        print(f"{model.stat().st_size / 1e6:.0f} MB\n{'':46s} {'seconds':>8s} {'processors':>10s} {'MB':>8s}")
        ways = (("--verify-timeout", "0"), ("--box", "-1", "1"))
        return max(measure(model, name, way) for name in names for way in ways)


class Sweep:
    """Counts of what came of passes, and the faults."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.faults = 0

    def run(self, path: Path, passes: Sequence[PassCall], config: TransformConfig) -> None:
        """Run passes over a model, each by itself, then those that promise equality in a row."""
        began, done = time.monotonic(), 0
        try:
            model, folder = read_model(path), path.parent.name
            ranges = RANGES.get(folder, {})
            here = replace(
                config,
                dims=SIZES.get(path.name, SIZES.get(folder, {})),
                box={name: (np.float64(low), np.float64(high)) for name, (low, high) in ranges.items()},
            )
            with Verification(model, here, path.resolve().parent) as verification:
                for call in passes:
                    done += self._check(path, call, verification, goes_on=False)
                for call in passes:
                    if call.spec.guarantee.kind == "equality":
                        self._check(path, call, verification, goes_on=True)
        except RanumFalsifyError as error:
            print(f"{path.name}: not run: {error}")
        print(f"{path.name}: {done} passes applied, {time.monotonic() - began:.0f} s", flush=True)

    def _check(self, path: Path, call: PassCall, verification: Verification, *, goes_on: bool) -> bool:
        counts = self.counts.setdefault("all of equality in a row" if goes_on else call.text, Counter())
        try:
            report = verification.step(call) if goes_on else verification.check(call)
        except PostconditionError as error:
            counts["faults"] += 1
            self.faults += 1
            print(f"{path.name}: {call.text}: {error.__cause__}", flush=True)
            return True
        except RanumFalsifyError as error:
            counts["not verified"] += 1
            print(f"{path.name}: {call.text}: {error}", flush=True)
            return False
        if report.is_modified:
            counts["proved" if "proved" in report.verified else "sampled"] += 1
        return report.is_modified


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pass", dest="passes", nargs="+", default=[], help="some passes only")
    parser.add_argument("--model", dest="models", nargs="+", default=[], help="models whose path holds one of these")
    parser.add_argument("--samples", type=int, help="inputs to draw (default: 64, or fewer where one takes long)")
    parser.add_argument("--large", type=int, metavar="LAYERS", help="measure the command on a large model instead")
    given = parser.parse_args()
    if given.large is not None:
        return measure_large(given.large, given.passes or LARGE)
    sweep, config = Sweep(), TransformConfig(samples=given.samples)
    with tempfile.TemporaryDirectory() as folder:
        for path in model_paths(Path(folder)):
            if not given.models or any(text in str(path) for text in given.models):
                sweep.run(path, calls(given.passes), config)
    columns = ("proved", "sampled", "not verified", "faults")
    print(f"\n{'pass':32s}", *(f"{column:>12s}" for column in columns))
    for name, counts in sweep.counts.items():
        print(f"{name:32s}", *(f"{counts[column]:12d}" for column in columns))
    return 1 if sweep.faults else 0


if __name__ == "__main__":
    sys.exit(main())
