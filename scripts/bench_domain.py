"""Compare the time of the interval analysis with one inference of ONNX Runtime on the same model, batch 1.

    python scripts/bench_domain.py [--parts residual encoder ...] [--models FOLDER] [--rounds 7]
        [--threads 2] [--cpu] [--profile]

A measurement is a whole analysis, with the proof of every condition, by new analyses over graphs that have been read
before: of the model as written and, if it differs, of what ONNX Runtime's optimiser makes of it.  Rounds alternate with
inferences; figures are medians, and ratios are medians over the pairs.  Memory is the most by which the process grew
during a first analysis, also as a share of the model's weights.  The next figures are the cost of the second graph: the
ratio to the analysis as written alone, and the seconds until ONNX Runtime has written it and it is read.
"""

from __future__ import annotations

import argparse
import cProfile
import gzip
import pstats
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import psutil
import torch

from lab.bench.large import encoder, residual_network
from lab.bench.timing import load_text, time_pairs
from ranum_falsify.config import RUNTIMES
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import Graph, read
from ranum_falsify.verify.prove.analyses import Analyses, analyses_of, execution_of

__all__ = ["main"]

_SMALL = 0.02
"""Seconds that the analysis of a small model may take, however short the inference."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One line of the table.

    Attributes:
        name: Its name in the table.
        model: The model.
        box: Bounds of the inputs of its graph.
        most: Ratio to stay below.
        free: Whether all weights are ranges.
    """

    name: str
    model: onnx.ModelProto
    box: Callable[[Graph], list[Interval]]
    most: float
    free: bool = False

    def graph(self) -> Graph:
        """Return the graph that is analysed."""
        names = [w.name for w in self.model.graph.initializer if w.data_type == onnx.TensorProto.FLOAT]
        return read(self.model, free=names if self.free else [])


def _make_box_between(low: float, high: float) -> Callable[[Graph], list[Interval]]:
    """Return a uniform box of the first input, and ranges of weights."""

    def box(graph: Graph) -> list[Interval]:
        boxes = [Interval.fill(low, high, tuple(graph.input_details[0].shape), torch.float32)]
        for name, details in zip(graph.input_names[1:], graph.input_details[1:], strict=True):
            ends = (0.5, 1.5) if name.startswith("variance") else (-0.02, 0.02)
            boxes.append(Interval.fill(*ends, tuple(details.shape), torch.float32))
        return boxes

    return box


def _make_box_around(radius: float) -> Callable[[Graph], list[Interval]]:
    """Return boxes of one width around a random point of each input."""

    def box(graph: Graph) -> list[Interval]:
        rng = np.random.default_rng(0)
        points = [rng.random(details.shape).astype(details.dtype) for details in graph.input_details]
        return [Interval.box(x - x.dtype.type(radius), x + x.dtype.type(radius)) for x in points]

    return box


def parts(names: Sequence[str] | None) -> Iterator[Part]:
    """Yield the chosen lines, all by default."""
    chosen = set(names or ("residual", "free", "encoder", "fused"))
    if chosen & {"residual", "free"}:
        model = residual_network()
        if "residual" in chosen:
            yield Part(name="residual network, box [0, 1]", model=model, box=_make_box_between(0, 1), most=5)
            yield Part(name="residual network, image +- 0.01", model=model, box=_make_box_around(0.01), most=5)
        if "free" in chosen:
            yield Part(
                name="residual network, free weights", model=model, box=_make_box_between(0, 1), most=0.3, free=True
            )
    for name, fused in (("encoder", False), ("fused", True)):
        if name in chosen:
            model = encoder(fused=fused)
            kind = "operators" if fused else "spelled out"
            yield Part(name=f"encoder, {kind}, box [-1, 1]", model=model, box=_make_box_between(-1, 1), most=5)
            yield Part(name=f"encoder, {kind}, tokens +- 0.01", model=model, box=_make_box_around(0.01), most=5)


def files(folder: Path) -> list[Path]:
    """Return the models in a folder, gzipped or not."""
    return sorted([*folder.rglob("*.onnx"), *folder.rglob("*.onnx.gz")])


def measure_found(paths: Sequence[Path]) -> Iterator[Part]:
    """Yield a line for each model."""
    for path in paths:
        opened = gzip.open(path) if path.suffix == ".gz" else path.open("rb")
        with opened as file:
            model = onnx.load_model_from_string(file.read())
        name = f"{path.parent.parent.name}/{path.name.split('.onnx')[0]}"
        yield Part(name=name, model=model, box=_make_box_around(0.01), most=5)


def analyse(graph: Graph, box: Sequence[Interval]) -> tuple[int, int]:
    """Analyse a graph; return how many of its nodes are proved, and how many there are."""
    analyses = analyses_of(graph, RUNTIMES, lambda graph, runtimes: IntervalAnalysis(graph, runtimes=runtimes))
    checked = analyses.check(box)
    return len(graph.nodes) - len(checked.open), len(graph.nodes)


def as_written(graph: Graph, box: Sequence[Interval]) -> None:
    """Analyse a graph for all runtimes, but only as it is written."""
    Analyses(IntervalAnalysis(graph, runtimes=RUNTIMES)).check(box)


def inference(model: onnx.ModelProto) -> Callable[[], object]:
    """Return a call that runs the model once."""
    import onnxruntime  # after the package, which sets what it reads when it is loaded

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rng, given = np.random.default_rng(0), {tensor.name for tensor in model.graph.initializer}
    feeds = {
        x.name: rng.random([n if isinstance(n, int) and n > 0 else 1 for n in x.shape]).astype(np.float32)
        for x in session.get_inputs()
        if x.name not in given
    }
    return lambda: session.run(None, feeds)


def growth(run: Callable[[], object]) -> int:
    """Return the most by which the process grows during a call, in bytes."""
    process, stop, most = psutil.Process(), threading.Event(), [0]
    before = process.memory_info().rss

    def watch() -> None:
        while not stop.wait(0.001):
            most[0] = max(most[0], process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    stop.set()
    watcher.join()
    return most[0]


def measure(part: Part, rounds: int, profile: bool, clock: Callable[[], float]) -> None:
    """Print one line, and where the time goes if asked."""
    graph = part.graph()
    box = part.box(graph)
    began = time.perf_counter()
    execution_of(graph)
    optimiser = time.perf_counter() - began
    weights = sum(onnx.numpy_helper.to_array(w).nbytes for w in part.model.graph.initializer)
    grown = growth(lambda: analyse(graph, box))
    run = inference(part.model)
    analyse(graph, box), run()

    def seconds(call: Callable[[], object]) -> float:
        began = clock()
        call()
        return clock() - began

    times = time_pairs(lambda: seconds(lambda: analyse(graph, box)), lambda: seconds(run), rounds)
    both = time_pairs(
        lambda: seconds(lambda: analyse(graph, box)), lambda: seconds(lambda: as_written(graph, box)), rounds
    )
    proved, nodes = analyse(graph, box)
    reached = times.ratio <= part.most or (times.ours <= _SMALL and not part.free)
    print(
        f"{part.name:48} {times.ours * 1e3:9.1f} ms {times.theirs * 1e3:8.1f} ms {times.ratio:6.2f} "
        f"({times.spread[0]:.2f}-{times.spread[1]:.2f}, aim {part.most}) {'ok  ' if reached else 'MISS'} "
        f"{grown / 2**20:7.1f} MB {grown / max(weights, 1):5.2f} of weights  "
        f"{both.ratio:5.2f} x as written, optimiser {optimiser:.2f} s  {proved}/{nodes} proved",
        flush=True,
    )
    if profile:
        profiler = cProfile.Profile()
        profiler.runcall(analyse, graph, box)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=["residual", "free", "encoder", "fused"])
    parser.add_argument("--models", type=Path, help="folder of further models")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="measure processor time, for a machine that others use too")
    options = parser.parse_args(argv)
    paths = files(options.models) if options.models else []
    if not paths and (options.models or options.parts == []):
        where = f"{options.models}: no *.onnx and no *.onnx.gz is in it" if options.models else "--parts: none is given"
        print(f"{where}; nothing to measure", file=sys.stderr)
        return 2
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.cpu else time.perf_counter
    print(f"{options.threads} threads, {load_text()}, {time.strftime('%Y-%m-%d')}")
    print(f"{'':48} {'analysis':>12} {'inference':>11} {'ratio':>6}")
    for part in parts(options.parts) if options.parts != [] else ():
        measure(part, options.rounds, options.profile, clock)
    for part in measure_found(paths):
        measure(part, options.rounds, options.profile, clock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
