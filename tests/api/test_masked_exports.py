"""Masked attention as PyTorch's exporters write it: all of it is proved."""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import ranum_falsify as rf

T, C, HEADS, WORDS = 6, 16, 2, 11


class Block(nn.Module):
    """A block of a decoder, whose mask is written in one of the usual ways."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.mask = mask
        self.first, self.second = nn.LayerNorm(C), nn.LayerNorm(C)
        self.heads, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.layers = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C))
        self.register_buffer("seen", torch.tril(torch.ones(1, 1, T, T)))

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (part.reshape(1, T, HEADS, -1).transpose(1, 2) for part in self.heads(x).split(C, 2))
        if self.mask == "causal":
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(C // HEADS)
            value = torch.finfo(torch.float32).min if self.mask == "lowest" else -math.inf
            if self.mask == "filled":
                scores = scores.masked_fill(self.seen == 0, value)
            else:
                scores = scores + torch.full((T, T), value).triu(1)
            y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(1, T, C))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.first(x))
        return x + self.layers(self.second(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Words to the logits of the next ones, by two blocks."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, C), nn.Parameter(0.02 * torch.randn(T, C))
        self.blocks = nn.Sequential(Block(mask), Block(mask), nn.LayerNorm(C), nn.Linear(C, WORDS))

    def forward(self, words: Tensor) -> Tensor:
        return self.blocks(self.words(words) + self.places)  # type: ignore[no-any-return]


class Padded(nn.Module):
    """An encoder that is told which words are padding."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(C, HEADS, 2 * C, batch_first=True)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.layer(x, src_key_padding_mask=padding)  # type: ignore[no-any-return]


def export(module: nn.Module, arguments: tuple[Any, ...], folder: Path, *, dynamo: bool = False) -> bytes:
    path = folder / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            program = torch.onnx.export(module.eval(), arguments, dynamo=True, opset_version=18, verbose=False)
            assert program is not None
            return program.model_proto.SerializeToString()  # type: ignore[no-any-return]
        torch.onnx.export(module.eval(), arguments, str(path), dynamo=False, opset_version=17)
    return path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "dynamo"),
    [("causal", True), ("filled", False), ("added", False), ("lowest", False)],
)
def test_a_masked_decoder_of_two_layers_holds(mask: str, dynamo: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = export(Decoder(mask), (torch.zeros(1, T, dtype=torch.int64),), tmp_path, dynamo=dynamo)
    start = time.monotonic()
    assert rf.check(model, box=(0, WORDS - 1)).verdict == "holds"
    assert time.monotonic() - start < 60


@pytest.mark.slow
@pytest.mark.parametrize(("condition", "verdict"), [("np.sum(padding) < 6", "holds"), ("True", "violated")])
def test_padding_must_leave_a_word(condition: str, verdict: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    padding = torch.arange(T)[None] >= 4
    model = export(Padded(), (torch.randn(1, T, C), padding), tmp_path)
    text = f"""
from dnnv.properties import *
from ranum_falsify.properties import *
import numpy as np
N = Network("N")
Forall(x, Forall(padding, Implies(And(-1 <= x <= 1, {condition}), no_invalid_input(N(x, padding)))))
"""
    assert rf.falsify(model, text).verdict == verdict


def test_multihead_attention_with_a_mask_holds(tmp_path: Path) -> None:
    torch.manual_seed(0)

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.MultiheadAttention(C, HEADS, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(T)
            return self.heads(x, x, x, attn_mask=mask, need_weights=False)[0]  # type: ignore[no-any-return]

    assert rf.check(export(Masked(), (torch.randn(1, T, C),), tmp_path), box=(-1, 1)).verdict == "holds"


class Attention(nn.Module):
    """Attention that is told which keys are padding."""

    def __init__(self, *, weights: bool) -> None:
        super().__init__()
        self.weights = weights
        self.layer = nn.MultiheadAttention(C, HEADS, batch_first=True)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.layer(x, x, x, key_padding_mask=padding, need_weights=self.weights)[0]  # type: ignore[no-any-return]


PADDED = (torch.zeros(2, T, C), torch.zeros(2, T, dtype=torch.bool))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("make", [Padded, lambda: Attention(weights=False)], ids=["encoder", "attention"])
def test_any_padding_is_safe_in_pytorch(make: Any, gradient: bool) -> None:
    module = make()
    found = rf.check(module, PADDED, box={"x": (-3, 3)}, gradient=gradient, n_starts=0, self_check=False)
    assert found.verdict == "holds", found
    x, padding = torch.randn(*PADDED[0].shape, requires_grad=True), torch.ones(2, T, dtype=torch.bool)
    outputs = module(x, padding)
    assert bool(outputs.isfinite().all())
    assert all(bool(y.isfinite().all()) for y in torch.autograd.grad(outputs.sum(), [x, *module.parameters()]))


def test_rows_that_are_padding_fail_in_files_and_where_weights_are_wanted() -> None:
    options: dict[str, Any] = {"box": {"x": (-3, 3)}, "n_steps": 20, "mend": 0, "self_check": False}
    assert rf.check(Attention(weights=False), PADDED, runtime="onnxruntime", **options).verdict == "violated"
    assert rf.check(Attention(weights=True), PADDED, **options).verdict == "violated"
