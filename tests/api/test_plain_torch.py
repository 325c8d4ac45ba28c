"""Settings of a process that have PyTorch compute otherwise, or elsewhere, change no bound."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import ranum_falsify as rf
from ranum_falsify.api.plain_torch import PlainTorch


@pytest.fixture(autouse=True)
def medium() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


def test_products_of_bounds_are_in_float32_and_the_answer_says_so() -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(256, 256), nn.Softplus()), (torch.zeros(1, 256),)
    low = rf.check(module, x, box=(-1, 1), n_starts=2, self_check=False)
    torch.set_float32_matmul_precision("highest")
    full = rf.check(module, x, box=(-1, 1), n_starts=2, self_check=False)
    assert low.verdict == full.verdict == "holds"
    (notice,) = set(low.notices) - set(full.notices)
    assert notice == "this process lets PyTorch's products on the CPU be in bf16: the answer is about float32"
    assert [operator.bounds for operator in low.operators] == [operator.bounds for operator in full.operators]


def test_settings_come_back_after_errors_and_from_threads() -> None:
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    with pytest.raises(rf.ModelError):
        rf.check("no such file.onnx", box=(-1, 1))
    with PlainTorch():
        inner = threading.Thread(target=PlainTorch()(lambda: None))
        inner.start()
        inner.join()
        assert matmul.fp32_precision == "ieee"
    assert matmul.fp32_precision == "bf16"


def test_a_default_device_is_that_of_what_the_process_computes() -> None:
    torch.set_default_device("meta")
    try:
        found = rf.check(nn.Softplus(), (torch.zeros(1, 4, device="cpu"),), box=(-1, 1), n_starts=2, self_check=False)
        assert torch.zeros(1).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert found.verdict == "holds" and found.operators[0].bounds["output"][0] >= 0
