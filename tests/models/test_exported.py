"""Models of many constructions, as both exporters of PyTorch write them: read, decided rightly, as they run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import ranum_falsify as rf
from tests.models import heads  # noqa: F401 - registers what it makes
from tests.models.constructions import CONSTRUCTIONS, Construction
from tests.network.building import session

_RUNS = 20


def export(of: Construction, target: Path, *, dynamo: bool) -> onnx.ModelProto:
    """Return a construction as one of the exporters writes it, with statistics of norms as after training."""
    torch.manual_seed(0)
    module, arguments = of.make()
    for part in module.eval().modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            assert part.running_mean is not None and part.running_var is not None
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    names = list(of.inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            torch.onnx.export(module, arguments, target, dynamo=True, input_names=names, verbose=False)
        else:
            scripted = torch.jit.script(module) if of.scripted else module
            torch.onnx.export(scripted, arguments, target, dynamo=False, opset_version=17, input_names=names)
    return onnx.load(target)


def draw(shape: tuple[int, ...], dtype: np.dtype, span: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    if dtype.kind in "iu":
        return rng.integers(int(span[0]), int(span[1]) + 1, shape).astype(dtype)
    return np.asarray(rng.uniform(*span, shape), dtype)


def exports() -> Iterator[Any]:
    """Yield each construction by each exporter that can; of every second, the older one is among the slow tests."""
    for number, (name, of) in enumerate(CONSTRUCTIONS.items()):
        yield pytest.param(name, True)
        if of.old:
            yield pytest.param(name, False, marks=[pytest.mark.slow] * (number % 2))


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "dynamo"), exports())
def test_exported_model_is_decided(name: str, dynamo: bool, tmp_path: Path) -> None:
    of = CONSTRUCTIONS[name]
    model = export(of, tmp_path / "model.onnx", dynamo=dynamo)
    result = rf.check(model, box=of.box, timeout=60)
    assert result.verdict == of.verdict, result.report()
    if result.verdict == "holds":
        runtime, rng = session(model), np.random.default_rng(0)
        (call,) = result.loaded.problem.calls
        boxes = dict(zip(call.graph.input_names, result.loaded.problem.inputs, strict=True))
        for _ in range(_RUNS):
            feeds = {
                one.name: draw(tuple(box.lower.shape), box.lower.dtype, (box.lower.min(), box.upper.max()), rng)
                for one, box in ((one, boxes[one.name]) for one in runtime.get_inputs())
            }
            assert all(np.isfinite(out).all() for out in runtime.run(None, feeds))
