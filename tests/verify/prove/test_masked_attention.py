"""Attention with masks, as PyTorch exports it: the NaN of rows that a mask hides is taken out before any output."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import ranum_falsify as rf

LENGTH, WIDTH = 3, 4


class Exported(nn.Module):
    """A function of queries and a mask, as a module."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Attend from x to itself."""
        return self.function(x, mask)


def by_hand(clean: Callable[[Tensor], Tensor], hide: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Attention with hidden scores of -inf, and what takes NaN out of its weights."""

    def attend(x: Tensor, mask: Tensor) -> Tensor:
        scores = x @ x.transpose(-2, -1) / math.sqrt(WIDTH)
        return clean(torch.softmax(scores.masked_fill(hide(mask), -math.inf), -1)) @ x

    return attend


def keep_all(mask: Tensor) -> Tensor:
    """What a boolean mask hides."""
    return mask > 0


def pad(mask: Tensor) -> Tensor:
    """The same keys for all queries, as padding is."""
    return (mask[..., :1, :] > 0).expand(mask.shape)


CLEAN: dict[str, Callable[[Tensor], Tensor]] = {
    "where isnan": lambda p: torch.where(torch.isnan(p), 0.0, p),
    "masked_fill isnan": lambda p: p.masked_fill(torch.isnan(p), 0.0),
    "nan_to_num": torch.nan_to_num,
    "isfinite": lambda p: torch.where(torch.isfinite(p), p, 0.0),
}
BY_HAND = {
    f"{name}, {kind}": by_hand(clean, hide)
    for name, clean in CLEAN.items()
    for kind, hide in {"boolean mask": keep_all, "padded rows": pad}.items()
}
BY_TORCH: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "free mask": lambda x, mask: scaled_dot_product_attention(x, x, x, attn_mask=mask),
    "boolean mask": lambda x, mask: scaled_dot_product_attention(x, x, x, attn_mask=keep_all(mask)),
    "padded rows": lambda x, mask: scaled_dot_product_attention(x, x, x, attn_mask=pad(mask)),
    "causal": lambda x, mask: scaled_dot_product_attention(x, x, x, is_causal=True),
}


def export(module: nn.Module) -> onnx.ModelProto:
    """The model that PyTorch's exporter writes."""
    arguments = torch.zeros(1, 1, LENGTH, WIDTH), torch.zeros(1, 1, LENGTH, LENGTH)
    program = torch.onnx.export(module.eval(), arguments, dynamo=True, verbose=False)
    assert program is not None
    return program.model_proto


@pytest.mark.few(1)
@pytest.mark.parametrize("function", BY_HAND.values(), ids=BY_HAND)
def test_attention_by_hand_holds_on_outputs(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    result = rf.check(export(Exported(function)), box=(-1, 1), timeout=20, self_check=False)
    assert str(result).startswith("holds on outputs"), str(result)
    assert [op.op_type for op in result.operators if op.verdict == "masked" and not op.after] == ["Softmax"]


@pytest.mark.slow
@pytest.mark.parametrize("function", BY_TORCH.values(), ids=BY_TORCH)
def test_attention_of_pytorch_holds(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert rf.check(export(Exported(function)), box=(-1, 1), timeout=20, self_check=False).verdict == "holds"


@pytest.mark.slow
def test_what_takes_no_nan_out_is_violated() -> None:
    result = rf.check(export(Exported(by_hand(torch.abs, keep_all))), box=(-1, 1), timeout=20, self_check=False)
    assert result.verdict == "violated"
