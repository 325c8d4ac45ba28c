"""`confirm` of a module: tests that are red until its lines are mended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import ranum_falsify as rf

LAYER = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, inputs, power=1):
        x = inputs["x"] ** power
        deviation = {deviation}
        return (self.scale * x / {divisor}).sum(), deviation
"""
FAILING = LAYER.format(deviation="x.square().mean(-1).sqrt()", divisor="x.norm(dim=-1, keepdim=True)")
MENDED = LAYER.format(
    deviation="(x.square().mean(-1) + 1e-6).sqrt()", divisor="(x.square().sum(-1, keepdim=True) + 1e-6).sqrt()"
)


def run(folder: Path, test: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:ranum_falsify", "-p", "no:cacheprovider", str(test)]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    return done.returncode, done.stdout


@pytest.mark.parametrize("gradient", [False, True])
def test_tests_are_red_until_the_lines_are_mended(
    gradient: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / f"failing_layer_{gradient}.py"
    source.write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    layer = __import__(source.stem).Layer()
    example = ({"x": torch.ones(2, 3)},)
    tests = rf.confirm(layer, example, {"power": 1}, box=(-1, 1), gradient=gradient, n_steps=20, self_check=False)
    assert len(tests.tested) == (2 if gradient else 1) and not tests.untested
    test = tests.write(tmp_path / "tests")
    assert test is not None and test.name == "test_layer.py"
    status, text = run(tmp_path, test)
    assert status == 1 and f"{len(tests.tested)} failed" in text
    source.write_text(MENDED)
    status, text = run(tmp_path, test)
    assert status == 0 and f"{len(tests.tested)} passed" in text, text


class Masked(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, torch.log(x), 0.0)


def test_what_no_output_shows_has_no_test(tmp_path: Path) -> None:
    tests = rf.confirm(Masked(), (torch.ones(3),), box=(-1, 1), n_steps=20, self_check=False, fail_on="any")
    assert not tests.tested and "no output" in tests.untested[0] and "no test: " in str(tests)
    assert tests.write(tmp_path / "tests") is None and not (tmp_path / "tests").exists()


def test_a_module_that_nobody_can_import_is_refused_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 1 / x

    tests = rf.confirm(Local(), (torch.ones(3),), box=(-1, 1), n_steps=20, self_check=False)
    with pytest.raises(rf.ModuleError, match=r"Local: tests cannot load it .*local object"):
        tests.write(tmp_path / "tests")
    assert not list((tmp_path / "tests").iterdir())
    monkeypatch.setattr(Local, "__module__", "__main__")
    with pytest.raises(rf.ModuleError, match="defined in the main file"):
        tests.write(tmp_path / "tests")
    assert not list((tmp_path / "tests").iterdir())
