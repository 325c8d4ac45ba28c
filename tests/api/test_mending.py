"""`mend`: lines of modules that fail, in another text, and proved."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ranum_falsify as rf
from ranum_falsify.api.source_rewrites import list_forms
from ranum_falsify.zoo.catalogue import MODELS
from tests.api import hazards
from tests.api.hazards import HAZARDS, Hazard
from tests.api.practitioners import PRACTITIONERS
from tests.api.zoo_forms import FORMS

MENDED = {
    "contrastive": ["a = torch.nn.functional.normalize(a, dim=-1)", "b = torch.nn.functional.normalize(b, dim=-1)"],
    "log_sum_exp": ["return torch.logsumexp(x, -1)"],
    "focal": ["torch.log(chosen.clamp(min=1e-8))"],
    "attention": ["scores.masked_fill(~mask[:, None, :], torch.finfo(scores.dtype).min)"],
    "layer_norm": ["deviation = (x.var(-1, keepdim=True) + 1e-12).sqrt()"],
    "dice": ["2 * overlap / (union + 1e-8)"],
    "policy": ["deviation = log_deviation.clamp(-20.0, 20.0).exp()"],
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MENDED)
def test_lines_are_mended_and_proved(name: str) -> None:
    case = PRACTITIONERS[name]
    module = case.broken()
    code = type(module).forward.__code__
    mended = rf.fix(module, case.args, box=case.box, n_steps=20, self_check=False)
    assert mended.is_proved, mended
    assert len(mended.changes) == len(MENDED[name])
    for change, text in zip(mended.changes, MENDED[name], strict=True):
        assert text in change.mended and change.failing
        assert f"-{change.source.code}" in mended.diff.replace("-        ", "-").replace("-    ", "-")
    assert type(module).forward.__code__ is code, "the module is as it was"


def test_what_does_not_fail_is_not_mended() -> None:
    case = PRACTITIONERS["log_sum_exp"]
    with pytest.raises(rf.UsageError, match="holds; there is no violation to mend"):
        rf.fix(case.repaired(), case.args, box=case.box, self_check=False)


LEFT = {"poisson", "tanh_by_hand"}
"""What no text is found for: a logarithm that is masked, but not in its derivative, and quotients of sums."""

LOSSY = {"divergence_of_a_vae", "exponential_in_half_precision", "growth", "trained_standard"}
"""Exponentials and slopes, whose limit takes some that were valid."""

QUICK = ["angles", "inverse_root", "log_of_the_other", "ratio", "ratio_in_place", "shares_in_half_precision"]


def mend(name: str) -> rf.Mended:
    case = HAZARDS[name]
    return rf.fix(case.kind(), case.args, box=case.box, timeout=30, self_check=False, **case.options)


@pytest.mark.parametrize("name", QUICK)
def test_a_hazard_is_mended_and_its_valid_results_stay(name: str, tmp_path: Path) -> None:
    mended = mend(name)
    assert mended.is_proved and not any(change.changed for change in mended.changes)
    hold(name, read_mended(mended, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HAZARDS.keys() - {*QUICK}))
def test_hazards_are_mended(name: str, tmp_path: Path) -> None:
    mended = mend(name)
    assert mended.is_proved == (name not in LEFT), mended
    assert any(change.changed for change in mended.changes) == (name in LOSSY) or name in LEFT
    if mended.is_proved:
        hold(name, read_mended(mended, tmp_path))


def test_every_program_of_the_zoo_in_pytorch_has_a_form() -> None:
    programs = [program for form in FORMS.values() for program in form.programs.split()]
    assert sorted(programs) == sorted(model.id for model in MODELS if model.framework == "torch")


@pytest.mark.few(1)
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.fails])
def test_forms_of_the_zoo_are_mended(name: str, gradient: bool) -> None:
    form = FORMS[name]
    options = {**form.options, "gradient": gradient, "self_check": False}
    mended = rf.fix(form.kind(), form.args, box=form.box, **options)
    assert mended.is_proved, mended


def test_a_form_of_the_zoo_does_not_fail_in_float32() -> None:
    form = FORMS["overlap"]
    assert rf.check(form.kind(), form.args, box=form.box, self_check=False).verdict == "holds"


@pytest.mark.parametrize(
    "line",
    [
        "x / x.norm(1, dim=-1, keepdim=True)",
        "x / x.norm(p=1, dim=-1, keepdim=True)",
        "x / x.norm(dim=-1, keepdim=False)",
        "x / x.norm(dim=-1)",
        "x / y.norm(dim=-1, keepdim=True)",
        "torch.log(torch.softmax(x, -1, dtype=torch.float64))",
        "torch.log(torch.softmax(x))",
        "torch.log(torch.exp(x).sum(-1, keepdim=kept))",
        "torch.log(2 + torch.exp(x))",
        "torch.exp(x) / torch.exp(y).sum(-1, keepdim=True)",
        "torch.exp(x) / torch.exp(x).sum(-1)",
        "torch.exp(x) / (1 + torch.exp(-x))",
        "F.cross_entropy(x, y, weight=w, ignore_index=0)",
        "F.cross_entropy(x, y, ignore_index=0, reduction='none')",
        "F.soft_margin_loss(x, y, reduction='sum')",
    ],
)
def test_what_is_another_function_is_no_form_of_it(line: str) -> None:
    assert list(list_forms([*ast.walk(ast.parse(line))], {})) == []


class Own(nn.Module):
    """A function of its own that has the name of one of PyTorch's."""

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        return x.square() / x.square().sum(dim, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(self.softmax(x, dim=-1))


def test_a_name_of_pytorch_may_be_the_users_own() -> None:
    result = rf.check(Own(), (torch.ones(2, 3),), box=(-2, 2), self_check=False)
    assert result.mended is not None
    assert not any("log_softmax" in change.mended for change in result.mended.changes)


def test_the_page_counts_them(repository: Path) -> None:
    text = (repository / "docs" / "training.md").read_text(encoding="utf-8")
    mended, kept = len(HAZARDS) - len(LEFT), len(HAZARDS) - len(LEFT | LOSSY)
    assert f"{len(HAZARDS)} such lines" in text and f"{mended} are mended" in text and f"{kept} of them keep" in text


def read_mended(mended: rf.Mended, folder: Path) -> dict[str, Hazard]:
    """Return the hazards of a file in which these lines are written."""
    lines = inspect.getsource(hazards).splitlines()
    for change in mended.changes:
        before = lines[change.source.line - 1]
        lines[change.source.line - 1] = before[: len(before) - len(before.lstrip())] + change.mended
    path = folder / "mended_hazards.py"
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, path.stem, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
    found: dict[str, Hazard] = module.HAZARDS
    return found


def hold(name: str, mended: dict[str, Hazard]) -> None:
    """Run a mended module, and its derivative, on corners and random inputs of its box."""
    case, random = mended[name], torch.Generator().manual_seed(0)
    module: nn.Module = case.kind()
    for share in [0.0, 1.0, 0.5, *torch.rand(60, generator=random).tolist()]:
        inputs = []
        for x, (low, high) in zip(case.args, case.box.values(), strict=True):
            within = torch.rand(x.shape, generator=random) if share not in (0.0, 1.0, 0.5) else torch.tensor(share)
            inputs.append((low + (high - low) * within).expand(x.shape).to(x.dtype).requires_grad_())
        result = module(*inputs)
        assert result.isfinite().all(), (name, inputs)
        if case.options:
            assert all(x.isfinite().all() for x in torch.autograd.grad(result.sum(), inputs))


def sigmoid(x: Tensor) -> Tensor:
    return (x / 6 + 0.5).clamp(0, 1)


TABLE = torch.arange(4.0)


class Changed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        share = torch.softmax(x, 1)
        share[0, 0] = 0.5
        return torch.log(share)


class View(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        share = torch.softmax(x, 1)
        flat = share.view(-1)
        flat.mul_(0.5)
        return torch.log(share)


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        share = torch.softmax(x, 1)
        return share.log_()


class OwnSigmoid(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(sigmoid(x))


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(torch.add(1, torch.exp(x), alpha=2))


class ByKeyword(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.div(x, other=x.norm(dim=-1, keepdim=True))


class OwnSum(nn.Module):
    def add(self, a: Tensor, b: float) -> Tensor:
        return a + b

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(self.add(x, 1.0))


class Chosen(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return TABLE[torch.sqrt(x).long()]


class Total(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(sum(torch.exp(x), 1))  # type: ignore[arg-type]


class OnSeveralLines(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        # fmt: off
        a = torch.sqrt(
            x
        )
        # fmt: on
        b = x / x.norm(dim=-1, keepdim=True)
        y: Tensor = a + b + torch.log(x.abs())
        return y


TRAPS: dict[type[nn.Module], tuple[float, list[str | None]]] = {
    Changed: (200, ["share.clamp("]),
    View: (200, ["share.clamp("]),
    InPlace: (200, [None]),
    OwnSigmoid: (6, ["sigmoid(x).clamp("]),
    Scaled: (200, ["torch.add(1, torch.exp(x.clamp(", None]),
    ByKeyword: (1, [None]),
    OwnSum: (1, ["self.add(x, 1.0).clamp("]),
    Chosen: (3, ["torch.sqrt(x.clamp(min=0))"]),
    Total: (200, ["torch.exp(x.clamp(", None]),
    OnSeveralLines: (1, ["x.clamp(min=0)", "normalize(x, dim=-1)", "x.abs().clamp("]),
}
"""Modules with the size of their input, and what the mended lines of what fails hold."""


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", TRAPS, ids=lambda kind: str(kind.__name__))
def test_a_form_is_what_the_line_computes(kind: type[nn.Module]) -> None:
    size, texts = TRAPS[kind]
    result = rf.check(kind(), (torch.ones(2, 3),), box=(-size, size), self_check=False)
    mended = [operator.mended for operator in result.operators if operator.verdict == "violated"]
    assert len(mended) == len(texts)
    for text, line in zip(texts, mended, strict=True):
        assert (text is None and line is None) or (text is not None and line is not None and text in line.code)
