"""Measure the time before the first attack step.

    python scripts/bench_startup.py [--rounds 5]

1. From the start of the process to the first attack step on a model of 1 MB, with one interval analysis before it,
   compared with the import of torch alone.
2. Reading and conversion of a model with 1,000 nodes and 5 MB.
3. Reduction of a robustness property of an input with 150,528 elements (3x224x224), with the property's parsing.

Figures are medians; processes alternate, so that a busy machine slows all alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx

from lab.bench import CASES, load_text
from lab.bench.models import deep
from lab.bench.timing import seconds_of
from lab.networks.builder import NetworkBuilder, draw_weights, make_generator
from ranum_falsify.network import read
from ranum_falsify.properties.language.parse import parse_dnnp
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.search.converter import convert

__all__ = ["main"]

_SCRIPTS = Path(__file__).resolve().parent
_IMPORT_TORCH = "import time, torch; print('torch at', repr(time.time()))"

_LOCAL = """from dnnv.properties import *
import numpy as np
N = Network("N")
image = np.load({image!r})
Forall(x, Implies((image - 0.01 <= x <= image + 0.01) & (0 <= x <= 1), np.argmax(N(x)) == np.argmax(N(image))))
"""


def seconds_until(command: Sequence[str]) -> float:
    """Return the time from just before a process starts to the time that is the last word of its output.

    Raises:
        RuntimeError: The process failed.
    """
    path = os.pathsep.join(filter(None, [str(_SCRIPTS.parent), os.environ.get("PYTHONPATH", "")]))
    began = time.time()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    if done.returncode:
        raise RuntimeError(f"{command[1]}: {done.stderr.strip()[-400:]}")
    return float(done.stdout.split()[-1]) - began


def prepare_attack(folder: Path) -> list[str]:
    """Write a model and a property that has to be searched; return the command's arguments."""
    case = CASES["mnist-dense"]()
    model, text = folder / "model.onnx", folder / "property.py"
    onnx.save(case.model, model)
    text.write_text(case.open_property_text)
    return [str(text), "--network", "N", str(model)]


def startup(folder: Path, rounds: int) -> tuple[float, float]:
    """Return the median seconds to the first attack step, and those of importing torch alone."""
    first_step = str(_SCRIPTS / "lab" / "bench" / "first_step.py")
    attack = [sys.executable, first_step, *prepare_attack(folder)]
    torch = [sys.executable, "-c", _IMPORT_TORCH]
    seconds_until(attack)
    pairs = [(seconds_until(attack), seconds_until(torch)) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(t for _, t in pairs)


def measure_reading(folder: Path, rounds: int, nodes: int = 1000) -> tuple[float, float]:
    """Return the median seconds of reading and of converting a deep model."""
    path = folder / "deep.onnx"
    onnx.save(deep(nodes).model, path)
    pairs = []
    for _ in range(rounds + 1):
        pairs.append((seconds_of(lambda: read(path)), seconds_of(_make_converter(path))))
    return statistics.median(r for r, _ in pairs[1:]), statistics.median(c for _, c in pairs[1:])


def _make_converter(path: Path) -> Callable[[], object]:
    graph = read(path)
    return lambda: convert(graph)


def reduction(folder: Path, rounds: int, size: int = 224) -> float:
    """Return the median seconds of parsing and reducing a robustness property of a picture."""
    g = NetworkBuilder("picture", "Mean colour of a picture to three scores.", 13)
    pooled = g.node("GlobalAveragePool", g.input("x", (1, 3, size, size), 0, 1), name="pool")
    flat = g.node("Flatten", pooled, name="flatten")
    g.output(g.dense(flat, draw_weights(make_generator(0), (3, 3), 3), np.zeros(3), "scores"), (1, 3))
    graph = read(g.build())
    image = folder / "image.npy"
    np.save(image, make_generator(1).random((1, 3, size, size), dtype=np.float32))
    text = _LOCAL.format(image=str(image))
    times = [seconds_of(lambda: reduce(parse_dnnp(text, folder / "local.py"), {"N": graph})) for _ in range(rounds + 1)]
    return statistics.median(times[1:])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs per figure")
    rounds = parser.parse_args(argv).rounds
    print(f"{load_text()}, medians of {rounds}\n")
    print("| what | seconds | aim |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        attack, torch = startup(folder, rounds)
        print(f"| process start to first attack step, 1 MB model | {attack:.2f} | 3.0 |")
        print(f"| of that, start of Python and import of torch alone | {torch:.2f} | |", flush=True)
        parsed, converted = measure_reading(folder, rounds)
        print(f"| reading and conversion, 1,000 nodes, 5 MB | {parsed:.2f} + {converted:.3f} | 1.0 |", flush=True)
        print(f"| parsing and reduction of a property, 150,528 elements | {reduction(folder, rounds):.3f} | 0.5 |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
