"""Measure what starts cost: commands, and what comes before the first attack step.

    python scripts/bench_startup.py [OTHER] [--rounds 5]

With another checkout, such as the one before a change, processor time from the start of the process to its end, child
processes included, of both in turn:

a. a command that names a file that is not there;
b. `check` of a model of four operators;
c. the module of README's first example;
d. the import of torch alone, for comparison.

Without, seconds:

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
from lab.bench.checkout import ROOT, run_in
from lab.bench.models import deep
from lab.bench.timing import seconds_of, time_pairs
from lab.networks.builder import NetworkBuilder, draw_weights, make_generator
from ranum_falsify.network import read
from ranum_falsify.properties.language.parse import parse_dnnp
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.verify.search.converter import convert

__all__ = ["main"]

_SCRIPTS = Path(__file__).resolve().parent
_IMPORT_TORCH = "import time, torch; print('torch at', repr(time.time()))"
_EXAMPLE = '```python title="dice.py"\n'
"""Where README's module begins."""

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


def starts(folder: Path) -> dict[str, tuple[list[str | Path], int, str]]:
    """Return commands, the exit statuses that they have, and what they may cost, by what they are."""
    example = folder / "dice.py"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example.write_text(readme.partition(_EXAMPLE)[2].partition("```")[0], encoding="utf-8")
    python: list[str | Path] = [sys.executable, "-P"]
    check: list[str | Path] = [*python, "-m", "ranum_falsify", "check"]
    model = ROOT / "networks" / "l2_normalise.onnx"
    return {
        "check of a file that is not there": ([*check, folder / "missing.onnx"], 2, "0.2"),
        "check of a model of four operators": ([*check, model, "--box", "-1", "1"], 1, "1.5"),
        "README's module": ([*python, example], 0, "3.0"),
        "import of torch alone": ([*python, "-c", "import torch"], 0, ""),
    }


def compare_starts(other: Path, folder: Path, rounds: int) -> None:
    """Print what commands cost in another checkout and in this one.

    Raises:
        RuntimeError: A command failed.
    """
    print("| what | before | now | ratio | aim |\n|---|---|---|---|---|")
    for what, (command, wanted, aim) in starts(folder).items():

        def cost(checkout: Path, command: list[str | Path] = command, wanted: int = wanted) -> float:
            seconds, status = run_in(checkout, command)
            if status != wanted:
                raise RuntimeError(f"{' '.join(map(str, command))}: exit status {status} in {checkout}")
            return seconds

        cost(ROOT), cost(other)  # compiles the modules, and checks the kernels
        pair = time_pairs(lambda: cost(ROOT), lambda: cost(other), rounds)
        print(f"| {what} | {pair.theirs:.2f} | {pair.ours:.2f} | {pair.ratio:.2f} | {aim} |", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", type=Path, nargs="?", help="a checkout to compare what commands cost with")
    parser.add_argument("--rounds", type=int, default=5, help="runs per figure")
    options = parser.parse_args(argv)
    rounds: int = options.rounds
    print(f"{load_text()}, medians of {rounds}\n")
    if options.other is not None:
        with tempfile.TemporaryDirectory() as name:
            compare_starts(options.other.resolve(), Path(name), rounds)
        return 0
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
