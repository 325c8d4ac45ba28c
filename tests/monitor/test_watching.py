"""Training runs under watch: the first bad operator is named, a warning comes before, and the step runs again."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import ranum_falsify as rf
from ranum_falsify.cli import main

Function = Callable[[Tensor, Tensor], Tensor]
ONES = [torch.ones(2)] * 3


class Scale(nn.Module):
    """A weight, and a function of it and the batch."""

    def __init__(self, function: Function, start: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([start]))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.weight, x).sum()


@pytest.fixture(autouse=True)
def _leave_nothing() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    assert _get_current_dispatch_mode_stack() == []
    assert not _global_optimizer_pre_hooks and not _global_optimizer_post_hooks


def train(watch: rf.Watch, module: nn.Module, batches: list[Tensor], rate: float = 0.0) -> None:
    optimizer = torch.optim.SGD(module.parameters(), rate)
    with watch, warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.WatchWarning)
        for x in batches:
            optimizer.zero_grad()
            module(x).backward()
            optimizer.step()


def fail(tmp_path: Path, module: nn.Module, batches: list[Tensor], every: int = 1, rate: float = 0.0) -> rf.FailedStep:
    watch = rf.watch(module, every=every, folder=tmp_path, mend=0)
    with pytest.raises(rf.NonFiniteError):
        train(watch, module, batches, rate)
    assert watch.failure is not None
    return watch.failure


@pytest.mark.few(4)
@pytest.mark.parametrize("every", [1, 100])
@pytest.mark.parametrize(
    ("name", "function", "start", "kind", "backward"),
    [
        ("log", lambda w, x: torch.log(w * x), 0.0, "inf", False),
        ("reciprocal", lambda w, x: 1 / (w * x), 0.0, "inf", False),
        ("div", lambda w, x: x / (w * x), 0.0, "inf", False),
        ("exp", lambda w, x: torch.exp(w * x), 89.0, "inf", False),
        ("exp", lambda w, x: torch.exp((w * x).half()).float(), 12.0, "inf", False),
        ("sqrt", lambda w, x: torch.sqrt(w * x), -1.0, "nan", False),
        ("div", lambda w, x: torch.sqrt(w * x), 0.0, "inf", True),
        ("rsqrt", lambda w, x: torch.acos(w * x), 1.0, "inf", True),
        ("pow", lambda w, x: (w * x) ** 0.5, 0.0, "inf", True),
        ("mul", lambda w, x: (w * x).bfloat16() * 3e38, 2.0, "inf", False),
        ("_softmax", lambda w, x: torch.softmax(w * x.masked_fill(x > 0, -torch.inf), 0), 2.0, "nan", False),
    ],
)
def test_the_first_bad_operator_is_named(
    name: str, function: Function, start: float, kind: str, backward: bool, every: int, tmp_path: Path
) -> None:
    failure = fail(tmp_path, Scale(function, start), [torch.full((2,), 0.5), torch.ones(2), *ONES], every)
    cause = failure.diagnosis.causes[0]
    assert (cause.operator, cause.kind, cause.source.backward) == (name, kind, backward)
    assert Path(cause.source.file) == Path(__file__) and "lambda w, x" in cause.source.code
    assert failure.gradients == ("weight",) and not failure.weights and not failure.inputs


def test_what_hands_it_on_and_what_no_gradient_meets_is_no_cause(tmp_path: Path) -> None:
    def function(w: Tensor, x: Tensor) -> Tensor:
        torch.log(0 * x)
        bad = torch.log(w - x)
        return bad * 0 + bad.exp()

    failure = fail(tmp_path, Scale(function), ONES)
    assert [(cause.operator, cause.source.line) for cause in failure.diagnosis.causes[:1]] == [
        ("log", function.__code__.co_firstlineno + 2)
    ]
    assert any(carrier.startswith("mul (test_watching.py") for carrier in failure.diagnosis.carriers)


def test_masked_infinities_are_no_failure(tmp_path: Path) -> None:
    module = Scale(lambda w, x: torch.where(x > 2, torch.log(x - 1), w * x))
    watch = rf.watch(module, every=1, folder=tmp_path, mend=0)
    train(watch, module, ONES)
    assert watch.failure is None and watch.step == 3 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("every", [1, 100])
def test_inputs_and_updates_that_bring_it_are_named(every: int, tmp_path: Path) -> None:
    module = Scale(lambda w, x: w * x)
    failure = fail(tmp_path, module, [*ONES, torch.tensor([1.0, torch.nan])], every)
    assert failure.inputs == ("batch.0",) and failure.step == 3 and not failure.weights
    failure = fail(tmp_path, Scale(lambda w, x: w * w * x), ONES, every, rate=float("nan"))
    assert failure.weights == ("weights.weight",) and failure.step == 1
    assert "brought by the update before: weights.weight" in str(failure)


@pytest.mark.parametrize(
    ("function", "start", "rate", "says"),
    [
        (lambda w, x: torch.exp(w * x) - torch.exp((w * x).detach()) - w, 12.0, 1.0, "float32 ends at 88.72"),
        (lambda w, x: w.log(), 1e-3, 0.0, None),
        (lambda w, x: w + 0 * torch.log(torch.exp(-w.detach())), 1.0, -0.5, "valid where x > 0"),
        (lambda w, x: w.half() * 100.0, 1.0, -1.0, "float16 ends at 6.55e+04"),
    ],
)
def test_a_warning_comes_before(
    function: Function, start: float, rate: float, says: str | None, tmp_path: Path
) -> None:
    """The weight moves at a constant rate, so that the operator comes near its limit slowly."""
    module = Scale(lambda w, x: function(w, x) - (0 * w))
    watch = rf.watch(module, every=2, folder=tmp_path, mend=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = torch.optim.SGD(module.parameters(), 1.0)
        with watch:
            for _ in range(60):
                optimizer.zero_grad()
                module(ONES[0])
                module.weight.grad = torch.full((1,), -abs(rate))
                optimizer.step()
    assert watch.failure is None
    assert [str(warning.message) for warning in caught] == [f"step {n:,}: {text}" for n, text in watch.warned]
    assert (says is None) == (not watch.warned) and (says is None or says in watch.warned[0][1])


def test_a_loop_that_computes_the_loss_is_repeated(tmp_path: Path) -> None:
    module, x = nn.Linear(2, 1), torch.ones(1, 2)
    optimizer = torch.optim.Adam(module.parameters())

    def loss_of(power: float) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = torch.nn.functional.dropout(module(x), 0.5).square()
        return (y + 1).sum() ** power - torch.log(y.float() * 0 + (power < 3)).sum()

    with pytest.raises(rf.NonFiniteError) as error, rf.watch(module, folder=tmp_path, mend=0) as watch:
        for power in range(1, 4):
            optimizer.zero_grad()
            watch.run(loss_of, float(power)).backward()
            optimizer.step()
    assert watch.failure is not None and watch.step == 2
    assert "log gives infinity (float32; operands: 0)" in str(error.value)


def test_a_loop_that_cannot_be_repeated_is_followed_until_it_fails_again(tmp_path: Path) -> None:
    module = nn.Linear(2, 1)
    optimizer, weights = torch.optim.SGD(module.parameters(), 0.1), []
    with pytest.raises(rf.NonFiniteError), pytest.warns(rf.WatchWarning, match="withheld"):
        with rf.watch(module, folder=tmp_path, mend=0) as watch:
            for step in range(9):
                weights.append(module.weight.detach().clone())
                optimizer.zero_grad()
                torch.log(module(torch.ones(1, 2)) * (0 if step in (2, 5) else 1) + (step not in (2, 5)) * 9).backward()
                optimizer.step()
    assert watch.step == 5 and bool((weights[2] == weights[3]).all())
    assert watch.failure is not None and watch.failure.diagnosis.causes[0].operator == "log"


def test_closures_are_followed(tmp_path: Path) -> None:
    module = Scale(lambda w, x: torch.log(w - x))
    optimizer = torch.optim.LBFGS(module.parameters())

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = module(torch.ones(1))
        loss.backward()
        return loss

    with pytest.raises(rf.NonFiniteError, match="log gives infinity"), rf.watch(module, folder=tmp_path, mend=0):
        optimizer.step(closure)


class TestLightning:
    def test_a_training_step_is_repeated(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        lightning = ModuleType("pytorch_lightning")
        lightning.__spec__ = ModuleSpec("pytorch_lightning", None)
        lightning.__dict__["Callback"] = object
        monkeypatch.setitem(sys.modules, "pytorch_lightning", lightning)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: sys.modules.get(name))

        class Module(Scale):
            def training_step(self, batch: Tensor, number: int) -> Tensor:
                return torch.log(self(batch) - 2 * number)

        module = Module(lambda w, x: w * x)
        optimizer = torch.optim.SGD(module.parameters(), 0.0)
        with (
            pytest.raises(rf.NonFiniteError, match="log gives infinity"),
            rf.watch(module, folder=tmp_path, mend=0) as watch,
        ):
            callback = watch.lightning_callback()
            for number in range(3):
                callback.on_train_batch_start(None, module, ONES[0], number // 2)
                optimizer.zero_grad()
                module.training_step(ONES[0], number // 2).backward()
                optimizer.step()
                callback.on_train_batch_end(None, module, None, ONES[0], number // 2)
        assert watch.step == 2 and watch.failure is not None and not watch.failure.lost

    def test_it_has_to_be_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(rf.UsageError, match="pip install lightning"):
            rf.watch(nn.Linear(1, 1)).lightning_callback()


def test_updates_that_a_scaler_skips_are_no_failure(tmp_path: Path) -> None:
    module = Scale(lambda w, x: (w.half() * x.half()).float())
    optimizer, scaler = torch.optim.SGD(module.parameters(), 0.0), torch.amp.GradScaler("cpu", init_scale=2.0**20)
    with rf.watch(module, every=1, folder=tmp_path, mend=0) as watch:
        for _ in range(12):
            optimizer.zero_grad()
            scaler.scale(module(ONES[0])).backward()
            scaler.step(optimizer)
            scaler.update()
    assert watch.failure is None and 0 < watch.step < 12


def test_a_step_that_cannot_be_saved_is_named_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    watch = rf.watch(Scale(lambda w, x: torch.log(w - x)), every=1, folder=folder, mend=0)
    folder.rmdir()
    with pytest.raises(rf.NonFiniteError, match=r"log gives infinity[\s\S]*the step is not saved"):
        train(watch, watch._model, ONES)


def test_it_can_go_on(tmp_path: Path) -> None:
    module = Scale(lambda w, x: torch.log(w - x))
    watch = rf.watch(module, every=1, folder=tmp_path, then="warn", mend=0)
    train(watch, module, ONES)
    assert watch.failure is not None and watch.failure.step == 0 and watch.step == 3


class TestReplay:
    def test_a_step_runs_again_without_its_program(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        module = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Dropout(0.5), Scale(lambda w, x: _fall(w, x)))
        failure = fail(tmp_path, module, [torch.randn(3, 2, 8) for _ in range(3)])
        assert failure.file == tmp_path / "step-0.pt"
        assert failure.file is not None
        saved = torch.load(failure.file, weights_only=True)
        assert {"weights.0.weight", "weights.3.weight", "batch.0"} <= saved["tensors"].keys()
        assert bool((saved["tensors"]["weights.0.weight"] == module[0].weight).all())
        assert main(["replay", str(failure.file)]) == 1
        said = capsys.readouterr().out.splitlines()
        assert said[0].startswith("saved: step 0") and said[1] == str(failure.diagnosis.causes[0])

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"format": 7}, "its format is 7"),
            ({"calls": '[["other.f.default", [], {"named": {}}, [], [], ["", 0, false]]]'}, "none of the operators"),
            ({"calls": '[["aten.from_file.default", [], {"named": {}}, [], [], ["", 0, false]]]'}, "none of the"),
            ({"calls": '[["aten.nix.default", [], {"named": {}}, [], [], ["", 0, false]]]'}, "has no operator"),
            ({"calls": '[["aten.log.default", [{"tensor": 99}], {"named": {}}, [], [], ["", 0, false]]]'}, "call 0"),
            ({"calls": "{"}, "no step that can be run"),
        ],
    )
    def test_files_that_are_no_step_end_in_one_line(
        self, change: dict[str, object], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        failure = fail(tmp_path, Scale(lambda w, x: torch.log(w - x)), ONES)
        assert failure.file is not None
        torch.save({**torch.load(failure.file, weights_only=True), **change}, failure.file)
        assert main(["replay", str(failure.file)]) == 2
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 1 and says in said[0]


def _fall(w: Tensor, x: Tensor) -> Tensor:
    return torch.log(torch.relu(x) * w)


@pytest.mark.parametrize("wrong", [{"every": 0}, {"then": "stop"}, {"folder": "/no/such/folder"}])
def test_arguments_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(rf.UsageError, match=f"{next(iter(wrong))}="):
        rf.watch(nn.Linear(1, 1), **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("factor, fails", [(1e35, False), (float("nan"), True)])
def test_updates_that_a_scaler_skips_are_no_failures(tmp_path: Path, factor: float, fails: bool) -> None:
    layer = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-38, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    with rf.watch(layer, every=1, folder=tmp_path, then="warn", mend=0) as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            optimizer.zero_grad()
            scaler.scale(layer(torch.full((1, 1), factor)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert scaler.get_scale() < 2.0**16, "updates were skipped"
    assert (watch.failure is not None) == fails


class Likelihood(nn.Module):
    """A deviation that training may make as small as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.log_deviation = nn.Parameter(torch.tensor([-100.0]))

    def forward(self, error: Tensor) -> Tensor:
        deviation = torch.exp(self.log_deviation)
        result: Tensor = (error / deviation).square().mean()
        return result


@pytest.mark.parametrize("every", [1, 100])
def test_the_line_to_write_is_told_with_what_it_proves(tmp_path: Path, every: int) -> None:
    module = Likelihood()
    forward = type(module).forward.__code__
    watch = rf.watch(module, every=every, folder=tmp_path)
    with pytest.raises(rf.NonFiniteError) as error:
        train(watch, module, [torch.tensor([0.5, 2.0])])
    assert "mended line" in str(error.value) and "(error / (deviation + 1e-8))" in str(error.value)
    assert watch.failure is not None and watch.failure.mended[-1].endswith("these weights: holds")
    assert type(module).forward.__code__ is forward
