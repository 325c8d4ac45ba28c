"""Modules as ONNX models: names, sources, and values as PyTorch computes them."""

import gc
import logging
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from onnx import helper
from torch import Tensor, nn

import ranum_falsify as rf
from ranum_falsify.api.eager import compare_export
from ranum_falsify.api.exporting import Exported, export
from ranum_falsify.api.sources import find_sources
from ranum_falsify.api.tracing import TrainingStep
from tests.api.practitioners import PRACTITIONERS

HERE = __file__


def run(exported: Exported, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(exported.model.SerializeToString(), options)
    outputs: list[np.ndarray] = session.run(None, feeds)
    return outputs


def line_of(text: str) -> int:
    lines = Path(HERE).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line and "line_of" not in line)


def draw(exported: Exported) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rng.uniform(0.1, 1, x.shape).astype(x.dtype) if x.dtype.kind == "f" else x
        for name, x in exported.inputs.items()
    }


@pytest.mark.slow
def test_an_export_that_computes_something_else_is_refused() -> None:
    case = PRACTITIONERS["dice"]
    exported = export(case.broken(), case.args, gradient=True)
    graph = rf.load_model(exported.model).graph
    compare_export(exported, graph)
    with pytest.raises(rf.ModuleError, match=r"RepairedDice: torch.onnx exports something else .*they differ by"):
        compare_export(replace(exported, step=replace(exported.step, module=case.repaired())), graph)


class Careful(nn.Module):
    """Functions that PyTorch computes with care."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        loss = F.binary_cross_entropy_with_logits(x, torch.sigmoid(y))
        return F.logsigmoid(x), torch.logaddexp(x, y), loss, F.softplus(x), torch.logsumexp(x, -1)


@pytest.mark.slow
def test_what_pytorch_computes_with_care_stays_finite() -> None:
    x, y = torch.tensor([[-200.0, 200.0, 0.0]]), torch.tensor([[-300.0, 150.0, 1.0]])
    found = run(export(Careful(), (x, y)), {"x": x.numpy(), "y": y.numpy()})
    for one, other in zip(found, Careful()(x, y), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5)


def halve(x: Tensor) -> Tensor:
    return torch.log(x) / 2  # in a function


class Block(nn.Module):
    """A submodule that calls a function."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(3)
        self.register_buffer("exp", torch.full((3,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return halve(self.norm(x).exp() * self.exp)  # in a submodule


class Outer(nn.Module):
    """Arguments of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x: Tensor, *rest: Tensor, scale: float, batch: dict[str, Any]) -> dict[str, Any]:
        y = self.blocks(x) * scale
        y = y + rest[0] * batch["mask"]
        return {"y": y, "others": [y.std(-1), None, "text"]}


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True])
def test_names_and_sources(gradient: bool) -> None:
    example = torch.ones(2, 3)
    kwargs = {"scale": 2.0, "batch": {"mask": torch.tensor([True, False, True]), "name": "a"}}
    module = Outer().eval()
    module.blocks[0].train()
    exported = export(module, (example, example), kwargs, gradient=gradient)
    assert [info.name for info in exported.model.graph.input] == ["x", "rest_0", "batch_mask"]
    assert set(exported.parameters) == dict(module.named_parameters()).keys()
    assert "blocks.1.exp" in {tensor.name for tensor in exported.model.graph.initializer}
    assert (module.training, module.blocks[0].training, module.blocks[1].training) == (False, True, False)
    sources = [(node.op_type, find_sources(exported.model)[node.name]) for node in exported.model.graph.node]
    assert {source.file for _, source in sources} == {HERE}
    assert [(s.line, s.module_path) for op, s in sources if op == "Log"] == [
        (line_of("# in a function"), "blocks.0"),
        (line_of("# in a function"), "blocks.1"),
    ]
    norms = [(s.line, s.module_path) for op, s in sources if op == "LayerNormalization"]
    assert norms == [(line_of("# in a submodule"), f"blocks.{i}.norm") for i in (0, 1)]
    assert any(source.backward for _, source in sources) == gradient
    found = run(exported, draw(exported))
    assert len(found) == 2 + gradient * (2 + len(exported.parameters)) and all(np.isfinite(y).all() for y in found)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pkg.torch.onnx.stack_trace", 'File "' * 100_000),
        ("pkg.torch.onnx.stack_trace", 'File "a", line ' + "9" * 100_000 + ", in f"),
        ("pkg.torch.onnx.name_scopes", "[" * 100_000),
    ],
    ids=["files", "digits", "lists"],
)
def test_notes_of_a_stranger_cost_no_time(key: str, value: str) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="n")
    node.metadata_props.add(key=key, value=value)
    began = time.process_time()
    assert find_sources(helper.make_model(helper.make_graph([node], "g", [], []))) == {}
    assert time.process_time() - began < 5


class Mean(nn.Module):
    """Takes an argument that is called as an operator's result."""

    def forward(self, add: Tensor, mul: Tensor) -> Tensor:
        return (add + mul) * mul


def test_names_of_arguments_win_over_those_of_results() -> None:
    exported = export(Mean(), (torch.ones(2), torch.ones(2)))
    feeds = {"add": np.array([1, 2], np.float32), "mul": np.array([3, 4], np.float32)}
    assert run(exported, feeds)[0].tolist() == [12, 24]


class Branching(nn.Module):
    """Branches on a value, which cannot be exported."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:  # branch
            return x
        return -x


@pytest.mark.parametrize("gradient", [False, True])
def test_what_cannot_be_exported_is_said_in_one_line(gradient: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(rf.ModuleError) as caught:
        export(Branching(), (torch.ones(2),), gradient=gradient)
    said = str(caught.value)
    assert said.startswith("Branching: cannot be exported (") and "\n" not in said
    assert f"{HERE}:{line_of('# branch')}" in said
    with pytest.raises(rf.ModuleError, match=r"do not fit forward\(x: .*missing a required argument: 'x'"):
        export(Branching(), ())
    with pytest.raises(rf.ModuleError, match="the arguments hold no tensor"):
        export(Branching(), (1.0,))
    assert capfd.readouterr() == ("", "")
    assert gc.isenabled() and logging.root.manager.disable == 0


class Constant(nn.Module):
    """Has no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return x.detach() + 1


def test_a_module_without_a_gradient_says_so() -> None:
    with pytest.raises(rf.ModuleError, match="no output has a gradient"):
        export(Constant(), torch.ones(2), gradient=True)


@pytest.mark.slow
def test_threads_export_one_after_the_other() -> None:
    def ask(module: nn.Module) -> list[str]:
        exported = export(module, (torch.ones(2),))
        compare_export(exported, rf.load_model(exported.model).graph)
        return [node.op_type for node in exported.model.graph.node]

    def state() -> tuple[object, ...]:
        return sys.stdout, sys.stderr, logging.root.manager.disable

    before, interval = state(), sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(ask, (nn.Tanh(), nn.Sigmoid(), nn.ReLU())))
    finally:
        sys.setswitchinterval(interval)
    assert found == [["Tanh"], ["Sigmoid"], ["Relu"]] and state() == before


@pytest.mark.slow
def test_without_onnxscript_one_line_says_what_to_install(tmp_path: Path) -> None:
    program = """
        import sys, torch, ranum_falsify as rf
        sys.modules["onnxscript"] = None
        try:
            rf.check(torch.nn.ReLU(), torch.ones(2), box=(0, 1))
        except rf.ModuleError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "exporting a module needs onnxscript; run: pip install onnxscript\n"


class Layers(nn.Module):
    """Layers whose derivatives are kernels of PyTorch, in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2)
        self.norm = nn.BatchNorm2d(4)
        self.up = nn.ConvTranspose2d(4, 2, 3, stride=2, dilation=2)
        self.memory = nn.LSTM(3, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = F.avg_pool2d(F.interpolate(self.norm(self.down(x)), scale_factor=2), 3, stride=2, padding=1)
        z, _ = self.memory(self.up(y).mean(1)[:, :2, :3])
        loss: Tensor = torch.distributions.Normal(z, 1 + z.square()).log_prob(torch.zeros_like(z)).sum()
        return loss


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True])
def test_layers_are_exported_as_they_train(gradient: bool) -> None:
    torch.manual_seed(0)
    module = Layers()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    exported = export(module, torch.randn(2, 2, 7, 6), gradient=gradient)
    for name, x in module.state_dict().items():
        assert torch.equal(x, before[name])
    step = TrainingStep(module, exported.step.arguments)
    state, tensors = (
        {name: x.detach().clone() for name, x in step.state.items()},
        [*exported.step.arguments.tensors.values()],
    )
    expected = step.forward(state, tensors)
    if gradient:
        expected, gradients = step(state, tensors, lambda loss: None)
        expected += gradients.values()
    for one, other in zip(run(exported, exported.inputs), expected, strict=True):
        np.testing.assert_allclose(one, other.detach().numpy(), rtol=1e-3, atol=1e-4)


class InPlace(nn.Module):
    """Writes into views of what it made."""

    def forward(self, x: Tensor) -> Tensor:
        scores = x @ x.T
        scores[0].masked_fill_(scores[0].detach() > 1, 0.5)
        scores[1:].div_(2.0)
        scores[:, -1] = 3.0
        return torch.where(x == 0, 0.0, x / 2.0).sum() + scores.logsumexp(-1).sum()


@pytest.mark.few(1)
@pytest.mark.parametrize("gradient", [False, True])
def test_what_is_written_in_place_is_exported(gradient: bool) -> None:
    torch.manual_seed(0)
    exported = export(InPlace(), torch.randn(4, 3), gradient=gradient)
    compare_export(exported, rf.load_model(exported.model).graph)
