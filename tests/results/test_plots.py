"""Plots of bounds and margins."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

import ranum_falsify as rf

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.mark.slow
def test_each_layer_is_a_bar_of_the_sizes_of_its_bounds(repository: Path) -> None:
    result = rf.check(repository / "networks" / "l2_normalise.onnx", box=(-1, 1), self_check=False)
    axes = result.plot()
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == [operator.op_type for operator in result.operators]
    tops = sorted((bar.get_x(), bar.get_y() + bar.get_height()) for group in axes.containers for bar in group)
    ends = {operator.node: operator.bounds for operator in result.operators}
    assert tops[3][1] == pytest.approx(ends["normalise_div"]["b"][1]), "the divisor is what the root makes"
    lines = [line.get_ydata()[0] for line in axes.lines]
    assert lines == [65504, pytest.approx(6.1e-5, rel=0.01)]
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"proved", "violated"}


@pytest.mark.slow
def test_a_training_run_is_a_line_for_each_limit_that_falls_to_0(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    module = torch.nn.ParameterList([weight])
    optimizer = torch.optim.SGD([weight], 1.0)
    warnings.simplefilter("ignore", rf.WatchWarning)
    with pytest.raises(rf.NonFiniteError), rf.watch(module, every=1, folder=tmp_path, mend=0) as watch:
        for _ in range(200):
            optimizer.zero_grad()
            (-weight.exp().log()).sum().backward()
            optimizer.step()
    axes = watch.plot()
    (line,) = [one for one in axes.lines if str(one.get_label()).startswith("exp at test_plots.py")]
    left = list(line.get_ydata())
    assert len(left) > 80
    assert left == sorted(left, reverse=True) and left[0] > 0.9 and left[-1] < 0.1


def test_readings_are_thinned_out() -> None:
    from ranum_falsify.monitor.findings import _Trend

    trend = _Trend((0, 1.0), 0.0, 0.0)
    for step in range(10_000):
        trend.note(step, 1.0)
    steps = [step for step, _ in trend.left]
    assert len(steps) <= 512 and steps[0] == 0 and steps == sorted(steps)


def test_without_matplotlib_an_error_says_what_to_install(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = rf.check(repository / "networks" / "l2_normalise.onnx", box=(1, 2), self_check=False)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(rf.UsageError, match="pip install matplotlib"):
        result.plot()
