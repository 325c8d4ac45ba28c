"""`check` of PyTorch modules, as practitioners write them."""

import inspect
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ranum_falsify as rf
from ranum_falsify.api.boxes import WeightsLike
from tests.api import practitioners
from tests.api.practitioners import PRACTITIONERS

QUICK: dict[str, Any] = {"n_steps": 20, "prove_timeout": 0.5, "self_check": False}


def lines_ending_in(comment: str) -> set[int]:
    lines = inspect.getsource(practitioners).splitlines()
    return {number for number, line in enumerate(lines, start=1) if line.endswith(comment)}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", PRACTITIONERS)
def test_what_practitioners_write_is_violated_at_its_line(name: str) -> None:
    case = PRACTITIONERS[name]
    torch.manual_seed(0)
    result = rf.check(case.broken(), case.args, box=case.box, free=case.parameters or None, weights=100.0, **QUICK)
    found = [op for op in result.operators if op.verdict == "violated"]
    sources = [op.source for op in found if op.source is not None]
    assert result.verdict == "violated" and result.runtimes == ("torch",)
    assert {source.file for source in sources} == {practitioners.__file__}
    assert {source.line for source in sources} & lines_ending_in("# here")
    assert all("torch" in op.runtimes for op in found)
    module = type(case.broken()).forward
    if name != "contrastive":
        first = inspect.getsourcelines(module)[1]
        assert {source.line for source in sources} <= set(range(first, first + len(inspect.getsourcelines(module)[0])))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRACTITIONERS)
def test_the_repaired_module_holds_forward_and_backward(name: str) -> None:
    case = PRACTITIONERS[name]
    torch.manual_seed(0)
    free = case.parameters or None
    result = rf.check(case.repaired(), case.args, box=case.box, gradient=True, free=free, weights=1.0, **QUICK)
    assert result.verdict == "holds", result
    assert not result.answer.steep


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["layer_norm", "focal"])
def test_a_gradient_that_is_not_finite_is_named(name: str) -> None:
    case = PRACTITIONERS[name]
    result = rf.check(case.broken(), case.args, box=case.box, gradient=True, **QUICK)
    backward = [op for op in result.operators if op.verdict == "violated" and op.source and op.source.backward]
    assert backward and all(set(op.gradients) <= {"x", "logits", "weight", "bias"} for op in backward)
    assert all(op.gradients for op in backward)
    assert "backward of" in str(result) and "gradients that are not finite" in str(result)


class GuardedRoot(nn.Module):
    """A root that is finite itself, while its gradient is not."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x.sqrt(), 0.0).sum()


class SafeGuardedRoot(nn.Module):
    """The root of a number that is safe wherever it goes."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0).sum()


@pytest.mark.slow
def test_a_guarded_root_holds_forward_only() -> None:
    args = (torch.ones(3),)
    assert rf.check(GuardedRoot(), args, box=(0, 1), **QUICK).verdict == "holds"
    result = rf.check(GuardedRoot(), args, box=(0, 1), gradient=True, **QUICK)
    (found,) = [op for op in result.operators if op.verdict == "violated"]
    assert (found.gradients, found.reach, found.source and found.source.backward) == (("x",), "output", True)
    assert found.counterexample is not None
    x = torch.tensor(found.counterexample["x"], requires_grad=True)
    GuardedRoot()(x).backward()
    assert x.grad is not None and not bool(x.grad.isfinite().all())


class Norm(nn.Module):
    """Its gradient at 0 is 0: PyTorch takes care of that."""

    def forward(self, x: Tensor) -> Tensor:
        norm: Tensor = x.norm()
        return norm


def test_what_autograd_takes_care_of_holds() -> None:
    assert rf.check(Norm(), (torch.ones(3),), box=(-1, 1), gradient=True, **QUICK).verdict == "holds"


def test_report_and_json_name_the_line() -> None:
    case = PRACTITIONERS["dice"]
    result = rf.check(case.broken(), case.args, box=case.box, **QUICK)
    (line,) = [
        n for n in lines_ending_in("# here") if "union" in Path(practitioners.__file__).read_text().splitlines()[n - 1]
    ]
    shown = os.path.relpath(practitioners.__file__)
    assert f"{shown}:{line}: return (1 - 2 * overlap / union).mean()" in str(result)
    assert "confirmed by PyTorch, which ran the module itself, and by ONNX Runtime" in str(result)
    (found,) = [op for op in result.to_json()["operators"] if op["verdict"] == "violated"]
    assert (found["source"]["line"], found["runtimes"]) == (line, ["torch", "onnxruntime"])


class Saturated(nn.Module):
    """The logarithm of a sigmoid: ONNX Runtime's is 0 where PyTorch's is not."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(torch.sigmoid(x))


def test_what_onnx_runtime_alone_shows_is_no_violation_of_pytorch() -> None:
    args = (torch.zeros(3),)
    assert rf.check(Saturated(), args, box=(-40, 40), **QUICK).verdict == "holds"
    both = rf.check(Saturated(), args, box=(-40, 40), runtime=("torch", "onnxruntime"), **QUICK)
    (log,) = [op for op in both.operators if op.op_type == "Log"]
    assert (log.verdict, log.runtimes) == ("violated", ("onnxruntime",))
    assert any("the module itself does not" in notice for notice in both.notices)


class Scaled(nn.Module):
    """Divides by a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x / self.scale


@pytest.mark.few(1)
@pytest.mark.parametrize(("weights", "verdict"), [(0.1, "holds"), (2.0, "violated"), ((0.5, 4.0), "holds")])
def test_weights_range_by_a_share_or_within_bounds(weights: WeightsLike, verdict: str) -> None:
    result = rf.check(Scaled(), (torch.ones(2),), box=(-1, 1), free="all", weights=weights, **QUICK)
    assert result.verdict == verdict
    assert result.property_text is not None and "free(N, 'scale')" in result.property_text
    if verdict == "violated":
        assert result.counterexample is not None and (result.counterexample["scale"] == 0).any()


def test_an_unknown_weight_is_said_in_one_line() -> None:
    with pytest.raises(rf.UsageError, match="free: no initializer is named 'scael'; there are scale"):
        rf.check(Scaled(), (torch.ones(2),), box=(-1, 1), free=["scael"])
    with pytest.raises(rf.UsageError, match="give the arguments of an example call"):
        rf.check(Scaled(), box=(-1, 1))


class Counted(nn.Module):
    """A mean over as many as there are, and a choice from a table."""

    def forward(self, x: Tensor, count: Tensor, chosen: Tensor) -> Tensor:
        return x.gather(0, chosen) / count


def test_integers_stay_as_in_the_example_unless_something_says_what_they_range_over() -> None:
    args = (torch.ones(3), torch.tensor(2), torch.tensor([1]))
    result = rf.check(Counted(), args, box=(-1, 1), **QUICK)
    ranges = {x.name: (x.lower.tolist(), x.upper.tolist()) for x in result.loaded.problem.inputs}
    assert result.verdict == "holds"
    assert ranges == {"x": ([-1] * 3, [1] * 3), "count": (2, 2), "chosen": ([0], [2])}
    assert rf.check(Counted(), args, box={"x": (-1, 1), "count": (0, 2)}, **QUICK).verdict == "violated"


class Refusing(nn.Module):
    """Stops where it is run on what it cannot take."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting() and bool((x == 0).any()):
            raise ValueError("zeros\nare refused")
        return 1 / x


def test_a_module_that_stops_is_not_called_violated() -> None:
    result = rf.check(Refusing(), (torch.ones(2),), box=(0, 1), **QUICK)
    assert result.verdict == "unknown"
    assert any(notice.endswith("the module itself stops: ValueError: zeros") for notice in result.notices)


_DICE = """
class DiceLoss(torch.nn.Module):
    def forward(self, prediction, target):
        overlap = (prediction * target).sum()
        return 1 - 2 * overlap / (prediction.sum() + target.sum())
"""


def test_a_module_without_a_file_is_violated_where_its_code_says() -> None:
    """`python -c` and `exec` name the line alone; of a traced graph, and of an exported one, no line is the user's."""
    space: dict[str, Any] = {"torch": torch}
    exec(_DICE, space)
    module, masks = space["DiceLoss"](), (torch.zeros(1, 8), torch.zeros(1, 8))
    traced = [torch.fx.symbolic_trace(module), torch.export.export(module, masks).module()]
    for one, place in [(module, "<string>:5"), *((graph, None) for graph in traced)]:
        result = rf.check(one, masks, box=(0, 1), mend=False, timeout=20, **QUICK)
        (found,) = (op for op in result.operators if op.verdict == "violated")
        assert found.oracle == "module"
        assert (None if found.source is None or not found.source.file else str(found.source)) == place


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_refused_in_one_line() -> None:
    space: dict[str, Any] = {"torch": torch}
    exec(_DICE, space)
    scripted = torch.jit.trace(space["DiceLoss"](), (torch.ones(1, 8), torch.ones(1, 8)))
    with pytest.raises(rf.ModuleError, match="TorchScript cannot be exported; give the module that it was made of"):
        rf.check(scripted, (torch.zeros(1, 8), torch.zeros(1, 8)), box=(0, 1))


class _Neighbours(nn.Module):
    def __init__(self, least: float) -> None:
        super().__init__()
        self.least = least

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        kept = (source != target).nonzero().squeeze(1)
        values, target = x[source[kept]], target[kept]
        count = torch.zeros(4).index_add(0, target, torch.ones_like(values))
        return torch.zeros(4).index_add(0, target, values) / count.clamp(min=self.least)


@pytest.mark.parametrize(("least", "verdict"), [(0.0, "violated"), (1.0, "holds")])
def test_a_graph_network_that_drops_edges_is_decided(least: float, verdict: str) -> None:
    edges = torch.tensor([0, 1, 2, 2, 3]), torch.tensor([1, 0, 2, 1, 0])
    box = {"x": (-1.0, 1.0), "source": (0.0, 3.0), "target": (0.0, 3.0)}
    result = rf.check(_Neighbours(least), (torch.zeros(4), *edges), box=box, timeout=30, mend=False, self_check=False)
    assert result.verdict == verdict, result
