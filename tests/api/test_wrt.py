"""What the backward pass of a module goes to."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ranum_falsify as rf
from ranum_falsify.api.exporting import export


class Entropy(nn.Module):
    """A cross entropy of probabilities: its derivative in the target is a logarithm that is not clamped."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        return -(target * torch.log(prediction * self.scale)).sum()


ARGS = torch.full((2, 4), 0.5), torch.full((2, 4), 0.5)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("wrt", "outputs"),
    [(None, 3), ("target", 2), (("prediction", "target"), 3), ("parameters", 2), (["scale", "prediction"], 3)],
)
def test_derivatives_are_taken_in_what_is_named(wrt: str | None, outputs: int) -> None:
    assert len(export(Entropy(), ARGS, gradient=True, wrt=wrt).model.graph.output) == outputs


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("wrt", "text"),
    [
        (None, "to prediction and the parameters, not to target (wrt= chooses), by"),
        ("target", "to target, by"),
        (["parameters", "target"], "to target and scale, by"),
    ],
)
def test_the_report_says_what_it_goes_to(wrt: str | None, text: str) -> None:
    result = rf.check(Entropy(), ARGS, box=(0.1, 1), gradient=True, wrt=wrt, n_starts=5, self_check=False)
    assert any(text in notice for notice in result.notices), result.notices


def test_wrong_names_are_told() -> None:
    with pytest.raises(rf.UsageError, match=r"wrt: 'targets' has no derivative; prediction, target, parameters or"):
        rf.check(Entropy(), ARGS, box=(0, 1), gradient=True, wrt="targets")
    with pytest.raises(rf.UsageError, match="wrt: says what the backward pass"):
        rf.check(Entropy(), ARGS, box=(0, 1), wrt="target")
