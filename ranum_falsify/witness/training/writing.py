"""Files of a search for training data: arrays, a model, a pytest file that trains by itself, and a drawing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from string import Template
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ranum_falsify.escaping import escape
from ranum_falsify.lazy import cached_property
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.saving import Content
from ranum_falsify.verify.search.starts import Box
from ranum_falsify.witness.exposed import Watched, expose_operators, watch_operator
from ranum_falsify.witness.training.running import Recipe, describe_training, train, write_rule
from ranum_falsify.witness.training.search import Found
from ranum_falsify.witness.training.task import Judge, TrainingTask
from ranum_falsify.witness.unit_test import write_arrays


@dataclass(frozen=True, kw_only=True)
class LossProgram:
    """A loss that runs without ranum-falsify.

    Attributes:
        source: The function `loss(weights, data, constants)`, of tensors in the task's order.
        constants: The network's constants.
    """

    source: str
    constants: Sequence[np.ndarray]


def trace_loss(task: TrainingTask, weights: Sequence[np.ndarray], data: Sequence[np.ndarray]) -> LossProgram:
    """Return the loss as PyTorch's operators compute it on tensors of these shapes."""
    count = len(weights)

    def loss(*inputs: Tensor) -> Tensor:
        return task.loss(inputs[:count], inputs[count:])

    traced = make_fx(loss)(*map(to_torch, (*weights, *data)))
    names = dict.fromkeys(re.findall(r"self\.(\w+)", traced.code))
    constants = [to_numpy(getattr(traced, name)) for name in names]
    return LossProgram(source=_write(traced.code, list(names), task, count), constants=constants)


def _write(code: str, constants: Sequence[str], task: TrainingTask, count: int) -> str:
    lines = [line for line in code.split("\n") if line.strip()]
    # What is no longer read is freed when the function returns.
    body = [re.sub(r";  (\w+ = )+None$", "", line) for line in lines[1:]]
    reads = {f"arg{position}_1": name for position, name in enumerate((*task.weights, *(d.name for d in task.data)))}
    head = [
        "def loss(weights, data, constants):",
        *_unpack([f"arg{position}_1" for position in range(count)], "weights"),
        *_unpack([name for position, name in enumerate(reads) if position >= count], "data"),
    ]
    text = "\n".join([*head, *body])
    for position, name in enumerate(constants):
        text = re.sub(rf"\bself\.{name}\b", f"constants[{position}]", text)
    identifiers = _identify(reads)
    text = re.sub(r"\barg\d+_1\b", lambda match: identifiers[match[0]], text)
    return text.replace("torch.ops.aten.", "aten.") + "\n"


def _unpack(names: Sequence[str], source: str) -> list[str]:
    return [f"    [{', '.join(names)}] = {source}"] if names else []


def _identify(reads: dict[str, str]) -> dict[str, str]:
    """Return an identifier for each argument that resembles the name of its tensor and clashes with nothing."""
    return {
        name: f"in{position}_{re.sub(r'[^0-9a-zA-Z]', '_', tensor)}"
        for position, (name, tensor) in enumerate(reads.items())
    }


_TEMPLATE = Path(__file__).with_name("pytest_file.template")


@dataclass(frozen=True, kw_only=True)
class _Script:
    """The loss as a generated file computes it, for :func:`train`."""

    ranges: Sequence[Box]
    program: LossProgram

    def loss(self, weights: Sequence[Tensor], data: Sequence[Tensor]) -> Tensor:
        """See `HasLoss`."""
        return self._loss(weights, data, self._constants)

    @cached_property
    def _constants(self) -> list[Tensor]:
        return [to_torch(x) for x in self.program.constants]

    @cached_property
    def _loss(self) -> Callable[..., Tensor]:
        scope: dict[str, Any] = {
            "torch": torch,
            "aten": torch.ops.aten,
            "device": torch.device,
            "inf": float("inf"),
            "nan": float("nan"),
        }
        exec(self.program.source, scope)
        return scope["loss"]  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """Training data whose generated file was run once.

    Attributes:
        task: What trains.
        recipe: How.
        found: The data, with the weights to which the generated file's own code leads.
        program: The loss in the generated file; None where no training is needed.
        seed: Seed of the search.
        shown: See `Oracle.find_shown`.
    """

    task: TrainingTask
    recipe: Recipe
    found: Found
    program: LossProgram | None
    seed: int
    shown: tuple[str, ...]

    def training_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of `training.npz`.

        `data:<name>` are the batches, `(batches, *shape)`; `order` is the batch of each step; `initial:<name>` are the
        weights before training, `point:<name>` is the inference input that fails after it, `lower:<name>` and
        `upper:<name>` are the ranges of weights that are put back into them, and `constant:<number>` are constants of
        the loss.
        """
        found, task = self.found, self.task
        arrays = {f"initial:{name}": w for name, w in zip(task.weights, found.initial, strict=True)}
        arrays |= {f"point:{datum.name}": x for datum, x in zip(task.data, found.point, strict=True)}
        columns = zip(*found.batches, strict=True)
        arrays |= {f"data:{datum.name}": np.stack(column) for datum, column in zip(task.data, columns, strict=False)}
        if self.recipe.clamps:
            for name, box in zip(task.weights, task.ranges, strict=True):
                arrays |= {f"lower:{name}": to_numpy(box.lower), f"upper:{name}": to_numpy(box.upper)}
        constants = self.program.constants if self.program else ()
        arrays |= {f"constant:{number}": x for number, x in enumerate(constants)}
        order = np.arange(self._steps, dtype=np.int64) % max(1, len(found.batches))
        return arrays | {"order": order, "seed": np.asarray(self.seed, dtype=np.int64)}

    def trained_arrays(self) -> dict[str, np.ndarray]:
        """Return the weights after training, by ONNX name."""
        return dict(zip(self.task.weights, self.found.trained, strict=True))

    def list_models(self) -> dict[str, bytes]:
        """Return the model, with weights and draws as inputs, and what shows the tensors of the operator, by file."""
        parts = expose_operators(self.task.graph, [self._watched])
        return dict(zip(("model.onnx", "model.tensors"), parts, strict=True))

    def pytest_file(self, property_name: str) -> str:
        """Return the source text of a pytest file that trains and asserts the failure."""
        title = escape(property_name).replace("\\", r"\\").replace('"', r"\"")
        template = Template(_TEMPLATE.read_text(encoding="utf-8"))
        text = template.substitute(
            {key: repr(value) for key, value in self._list_facts()}
            | {
                "title": title,
                "summary": describe_training(self.recipe.optimiser, self._steps),
                "rule": write_rule(self.recipe.optimiser),
                "loss": self.program.source if self.program else "def loss(weights, data, constants):\n    return 0\n",
            }
        )
        return "\n".join(map(escape, text.split("\n")))

    def list_files(self, property_name: str, label: str) -> dict[str, Content]:
        """Return the content of each file, by its name."""
        arrays = {"training.npz": self.training_arrays(), "trained.npz": self.trained_arrays()}
        stored: dict[str, Content] = {file: partial(_store, x) for file, x in arrays.items()}
        name = re.sub(r"[^A-Za-z0-9_]", "_", label)
        test = {f"test_training_{name}.py": self.pytest_file(property_name).encode()}
        return stored | self.list_models() | test

    @property
    def _steps(self) -> int:
        return self.found.steps

    @property
    def _watched(self) -> Watched:
        return watch_operator(self.task.graph, self.task.op, self.task.targets)

    def _list_facts(self) -> Iterator[tuple[str, object]]:
        watched, trigger, optimiser = self._watched, self.found.trigger, self.recipe.optimiser
        yield "optimizer", optimiser.name
        yield "rate", optimiser.learning_rate
        yield "steps", self._steps
        yield "clamps", self.recipe.clamps
        yield "weights", list(self.task.weights)
        yield "data", [datum.name for datum in self.task.data] if self._steps else []
        yield "constants", len(self.program.constants) if self.program else 0
        yield "node", watched.node
        yield "op_type", watched.op_type
        yield "reads", watched.reads
        yield "writes", watched.writes
        yield "kind", trigger.kind
        yield "steep", watched.limits
        yield "elementwise", watched.is_elementwise
        yield "shown", self.shown
        yield "flushed", trigger.flushed


def rehearse(task: TrainingTask, recipe: Recipe, found: Found, judge: Judge, seed: int) -> Rehearsed | None:
    """Train with the code of the generated file; return None if the trained model does not fail then."""
    if not found.batches:
        narrowed, shown = task.narrow_to(found.verdict.targets), judge.find_shown(found.verdict)
        return Rehearsed(task=narrowed, recipe=recipe, found=found, program=None, seed=seed, shown=shown)
    program = trace_loss(task, found.initial, found.batches[0])
    script = _Script(ranges=task.ranges, program=program)
    batches = [[to_torch(x) for x in batch] for batch in found.batches]
    weights = train(script, replace(recipe, steps=found.steps), [to_torch(w) for w in found.initial], batches)
    trained = [to_numpy(w.detach()) for w in weights]
    verdict = judge.judge(trained, found.point)
    if verdict is None:
        return None
    return Rehearsed(
        task=task.narrow_to(verdict.targets),
        recipe=recipe,
        found=replace(found, trained=trained, verdict=verdict),
        program=program,
        seed=seed,
        shown=judge.find_shown(verdict),
    )


def _store(arrays: Mapping[str, np.ndarray], stream: BinaryIO) -> None:
    write_arrays(stream, arrays)


_WIDTH, _HEIGHT, _GAP = 640, 200, 50


def draw_training(rehearsed: Rehearsed) -> str:
    """Return an SVG drawing of the loss on the batch of each step, and of the margin of the operator's condition.

    The margin is that at the recorded inference input, 0 or less where the operator fails; it is drawn on a
    logarithmic scale, on which numbers at which it fails lie at the bottom.
    """
    losses, margins = _measure(rehearsed)
    node = _quote(rehearsed.task.op.name)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{2 * (_HEIGHT + _GAP)}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        *_panel("loss", losses, 0),
        *_panel(f"margin of {node} (log10; it fails at the bottom)", [_log(m) for m in margins], _HEIGHT + _GAP),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _measure(rehearsed: Rehearsed) -> tuple[list[float], list[float]]:
    """Return the loss before each step, and the margin before and after each."""
    task, found, recipe = rehearsed.task, rehearsed.found, rehearsed.recipe
    weights = [to_torch(w) for w in found.initial]
    batches = [[to_torch(x) for x in batch] for batch in found.batches]
    point = [to_torch(x) for x in found.point]
    losses, margins = list[float](), list[float]()

    def watch(number: int, weights: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            margins.append(float(task.margins(weights, point).amin()))
            if batches:
                losses.append(float(task.loss(weights, batches[number % len(batches)])))

    watch(0, weights)
    if batches:
        train(task, replace(recipe, steps=found.steps), weights, batches, watch=watch)
    return losses, margins


def _log(value: float) -> float:
    return -45.0 if not value > 1e-45 else math.log10(value)


def _panel(title: str, values: Sequence[float], top: float) -> Iterator[str]:
    finite = [value for value in values if math.isfinite(value)]
    yield f'<text x="10" y="{top + 16}">{title}</text>'
    if not finite:
        return
    low, high = min(finite), max(finite)
    height = high - low or 1.0
    width = max(1, len(values) - 1)
    points = [
        (60 + index / width * (_WIDTH - 80), top + 25 + (high - value) / height * (_HEIGHT - 25))
        for index, value in enumerate(values)
        if math.isfinite(value)
    ]
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{text}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>'
    yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="#1f77b4"/>' for x, y in points if len(points) <= 100)
    yield f'<text x="5" y="{top + 35}">{high:.4g}</text><text x="5" y="{top + _HEIGHT}">{low:.4g}</text>'
    yield f'<text x="{_WIDTH / 2}" y="{top + _HEIGHT + 20}">step (0 to {len(values) - 1})</text>'


def _quote(name: str) -> str:
    return escape(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
