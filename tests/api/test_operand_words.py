"""Operands of a violated operator, in the words of its line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ranum_falsify as rf
from ranum_falsify.api.exporting import export
from ranum_falsify.api.sources import find_words


class Directions(nn.Module):
    def forward(self, anchors: Tensor) -> Any:
        return anchors / anchors.norm(dim=-1, keepdim=True)


class Doubtful(nn.Module):
    share: float = 3.0

    def forward(self, anchors: Tensor) -> Any:
        first = F.normalize(anchors, dim=-1) * (self.share / 2)
        second = anchors / anchors.norm() / anchors.sum()
        return first + second


def test_conditions_and_operands_are_in_the_words_of_the_line() -> None:
    result = rf.check(Directions(), (torch.ones(2, 3),), box=(0, 1), n_steps=20, self_check=False)
    (operator,) = (one for one in result.operators if one.verdict == "violated")
    assert operator.condition == "b != 0"
    assert operator.expressions == {"a": "anchors", "b": "anchors.norm(dim=-1, keepdim=True)"}
    assert "valid where anchors.norm(dim=-1, keepdim=True) != 0 (else: division by zero)" in str(result)
    assert "operands: anchors = 0, anchors.norm(dim=-1, keepdim=True) = 0" in str(result)
    assert result.to_json()["operators"][-1]["expressions"] == operator.expressions


@pytest.mark.few(1)
def test_where_a_line_leaves_doubt_the_words_are_those_of_the_schema() -> None:
    model = export(Doubtful(), (torch.ones(2, 3),), None, gradient=False).model
    divisions = [node.name for node in model.graph.node if node.op_type == "Div"]
    assert len(divisions) == 3
    assert not any(find_words(model, name, ["a", "b"]) for name in divisions)
