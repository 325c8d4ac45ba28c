"""Settings of a process that let PyTorch multiply in less than float32 change no bound."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import ranum_falsify as rf
from ranum_falsify.api.precision import FullPrecision


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
    with FullPrecision():
        inner = threading.Thread(target=FullPrecision()(lambda: None))
        inner.start()
        inner.join()
        assert matmul.fp32_precision == "ieee"
    assert matmul.fp32_precision == "bf16"
