#!/usr/bin/env python3
"""Compare what a training step costs under `rf.watch` and under other tools with what it costs by itself.

The others are PyTorch's anomaly mode and, where it is installed, Hugging Face's `DebugUnderflowOverflow`.

    scripts/bench_watch_training.py [--rounds 7] [--steps 100] [--match REGEX]
    scripts/bench_watch_training.py --zoo [--match REGEX]

A figure is the median of the ratios of processor time of rounds in which both sides take the same steps in turn.
`--zoo` searches for data that lead the zoo's programs into their defects with their own weights and optimisers (level
`real`), trains them on these under watch, and prints which operator was named, which one is documented, and how many
steps before the first warning came.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ranum_falsify as rf
from lab.bench.timing import load_text, time_pairs
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.witness.training.running import Optimiser
from ranum_falsify.witness.training.search import Found
from ranum_falsify.witness.training.task import TrainingTask
from ranum_falsify.zoo.catalogue import MODELS
from ranum_falsify.zoo.model import Defect
from ranum_falsify.zoo.train import SEEDS, TrainingBench


class Language(nn.Module):
    """A transformer of two layers that predicts the next of 256 symbols."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y: Tensor = self.head(self.encoder(self.embedding(x), mask=mask))
        return y.flatten(0, 1)


class Block(nn.Module):
    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        out = channels * stride
        self.first, self.second = nn.Conv2d(channels, out, 3, stride, 1), nn.Conv2d(out, out, 3, 1, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.skip = nn.Conv2d(channels, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.skip(x))


def residual() -> nn.Module:
    """A ResNet of eight blocks, for pictures of 32 by 32."""
    blocks = [Block(c, s) for c, s in ((16, 1), (16, 1), (16, 2), (32, 1), (32, 2), (64, 1), (64, 1), (64, 1))]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Trainer:
    """A module with data, trained as people do."""

    def __init__(self, module: nn.Module, x: Tensor, y: Tensor) -> None:
        self.module, self._x, self._y = module, x, y
        self._optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self._optimizer.zero_grad()
            loss = F.cross_entropy(self.module(self._x), self._y)
            loss.backward()
            self._optimizer.step()


def subjects() -> dict[str, Trainer]:
    torch.manual_seed(0)
    text = torch.randint(0, 256, (8, 64))
    return {
        "transformer, 2 layers": Trainer(Language(), text, text.roll(-1, 1).flatten()),
        "ResNet, 8 blocks": Trainer(residual(), torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))),
    }


def processor_seconds(run: Callable[[], object]) -> float:
    """Return the time of the processor that a call takes, which other programs do not change much."""
    began = time.process_time()
    run()
    return time.process_time() - began


Guard = AbstractContextManager[object]

HAS_OTHER = importlib.util.find_spec("transformers") is not None


@contextmanager
def debug(module: nn.Module) -> Iterator[None]:
    """Watch a module by Hugging Face's tool, which prints what it finds before it stops the program."""
    importlib.import_module("transformers.debug_utils").DebugUnderflowOverflow(module)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        for part in module.modules():
            part._forward_hooks.clear()


def compare(given: argparse.Namespace) -> None:
    for name, trainer in subjects().items():
        if not re.search(given.match, name):
            continue
        sides: dict[str, tuple[int, Callable[[], AbstractContextManager[object]]]] = {
            "watch, every=100": (given.steps, lambda trainer=trainer: rf.watch(trainer.module, every=100)),  # type: ignore[misc]
            "watch, every=1": (10, lambda trainer=trainer: rf.watch(trainer.module, every=1)),  # type: ignore[misc]
            "anomaly mode": (10, torch.autograd.detect_anomaly),
            **({"DebugUnderflowOverflow": (10, lambda trainer=trainer: debug(trainer.module))} if HAS_OTHER else {}),  # type: ignore[misc]
            "the same twice": (given.steps, nullcontext),
        }
        trainer.train(3)
        for side, (steps, context) in sides.items():

            def watched(steps: int = steps, context: Callable[[], AbstractContextManager[object]] = context) -> None:
                with context():
                    trainer.train(steps)  # noqa: B023

            pairs = time_pairs(
                lambda: processor_seconds(watched),
                lambda: processor_seconds(lambda: trainer.train(steps)),  # noqa: B023
                given.rounds,
            )
            low, high = pairs.spread
            milliseconds = 1000 * pairs.theirs / steps
            print(f"{name}: {side}: {pairs.ratio:.3f} ({low:.3f} to {high:.3f}) of {milliseconds:.1f} ms", flush=True)


class Program(nn.Module):
    """A program of the zoo: its loss as a function of its weights and a batch."""

    def __init__(self, task: TrainingTask, weights: Sequence[np.ndarray]) -> None:
        super().__init__()
        self._task = task
        self.weights = nn.ParameterList([to_torch(x).clone() for x in weights])

    def forward(self, *data: Tensor) -> Tensor:
        return self._task.loss(tuple(self.weights), list(data))


class ProgramOptimizer(torch.optim.Optimizer):
    """The optimiser of a program, as the search for its data follows it."""

    def __init__(self, rule: Optimiser, weights: Sequence[nn.Parameter]) -> None:
        super().__init__(weights, {})
        self._rule, self._weights, self._state, self._number = rule, weights, rule.start(weights), 0

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        slopes = [torch.zeros_like(w) if w.grad is None else w.grad for w in self._weights]
        new, self._state = self._rule.step(self._weights, slopes, self._state, self._number)
        for weight, value in zip(self._weights, new, strict=True):
            weight.copy_(value)
        self._number += 1


def train_programs(given: argparse.Namespace) -> None:
    """Train the zoo's programs on data that lead them into their defects, and print what the watch says of each."""
    lines = []
    for model in MODELS:
        if model.training is None or not re.search(given.match, model.id):
            continue
        bench = TrainingBench(model, "real")
        for defect in model.defects:
            (attempt,) = bench.runs_of(defect, seeds=SEEDS[:1], timeout=given.timeout).attempts
            if attempt.found is not None and attempt.found.strategy:
                lines.append(follow(bench, defect, attempt.found, given.every))
                print(f"{defect.id}: {lines[-1]}", flush=True)
    failed = [line for line in lines if line.failure]
    early = [line for line in failed if line.step >= _GRADUAL]
    print(
        f"{len(lines)} programs with data that lead into their defects; {len(failed)} fail under the watch,"
        f" {sum(line.is_named for line in failed)} with the documented operator named;"
        f" of {len(early)} that take {_GRADUAL} steps or more,"
        f" {sum(line.early >= _EARLY for line in early)} are warned of {_EARLY} steps before; anomaly mode stops"
        f" {sum(bool(line.anomaly) for line in lines)}, the other tool {sum(bool(line.other) for line in lines)}"
    )


_GRADUAL = 20
_EARLY = 10


@dataclass(frozen=True, kw_only=True)
class Followed:
    """A program that was trained under watch.

    Attributes:
        documented: The operator of its defect.
        step: The step that failed, or how many there were.
        failure: What was named; empty where all stayed finite.
        early: How many steps before the failure the first warning came; -1 for none.
        anomaly: The error of anomaly mode; empty for none.
        other: That of `DebugUnderflowOverflow`.
    """

    documented: str
    step: int
    failure: str
    early: int
    anomaly: str
    other: str

    @property
    def is_named(self) -> bool:
        return self.documented.lower() in self.failure

    def __str__(self) -> str:
        warned = "no warning" if self.early < 0 else f"first warning {self.early} steps before"
        found = f"documented {self.documented}; step {self.step}: {self.failure or 'finite'}"
        return f"{found}; {warned}; anomaly mode: {self.anomaly or 'nothing'}; other: {self.other or 'nothing'}"


def train(bench: TrainingBench, defect: Defect, found: Found, around: Callable[[Program], Guard]) -> tuple[int, str]:
    """Train with the data that were found, then on the inference input that fails.

    Returns:
        How many steps were made, and the error that ended them; empty for none.
    """
    program = Program(bench.task(defect), found.initial)
    optimizer = ProgramOptimizer(bench.recipe.optimiser, list(program.parameters()))
    data = [found.batches[number % len(found.batches)] for number in range(found.steps)]
    made = 0
    with around(program):
        for batch in [*data, found.point]:
            try:
                optimizer.zero_grad()
                program(*map(to_torch, batch)).backward()
                optimizer.step()
            except (rf.NonFiniteError, RuntimeError, ValueError) as error:
                return made, str(error).partition("\n")[0] or type(error).__name__
            made += 1
    return made, ""


def follow(bench: TrainingBench, defect: Defect, found: Found, every: int) -> Followed:
    """Train under watch, and under the other tools."""
    with tempfile.TemporaryDirectory() as folder:
        watches: list[rf.Watch] = []

        def watched(program: Program) -> rf.Watch:
            watches.append(rf.watch(program, every=every, folder=folder, mend=0))
            return watches[0]

        step, _ = train(bench, defect, found, watched)
    watch = watches[0]
    causes = () if watch.failure is None else dict.fromkeys(one.operator for one in watch.failure.diagnosis.causes)
    named = ", ".join(causes) or ("" if watch.failure is None else watch.failure.lines()[1])
    early = watch.step - watch.warned[0][0] if watch.warned else -1
    _, anomaly = train(bench, defect, found, lambda program: torch.autograd.detect_anomaly())
    other = train(bench, defect, found, debug)[1] if HAS_OTHER else ""
    return Followed(documented=defect.operator, step=step, failure=named, early=early, anomaly=anomaly, other=other)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100, help="steps of a round under every=100")
    parser.add_argument("--zoo", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="which steps of the zoo's programs are read")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds of the search for data of one program")
    parser.add_argument("--match", default="", help="only what this finds in the name")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(load_text())
    (train_programs if given.zoo else compare)(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
