"""`check(autocast=...)`: modules computed in the types that autocast chooses on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import ranum_falsify as rf
from ranum_falsify.api.casting import HALF, REFUSED, WIDEST, casts_of_cuda, names_of, under_autocast
from tests.api.losses import LOSSES

CALLS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "addcmul": lambda x, y: torch.addcmul(x, y, y),
    "addmm": lambda x, y: torch.addmm(x, y, y),
    "atan2": torch.atan2,
    "bmm": lambda x, y: torch.bmm(x.unsqueeze(0), y.unsqueeze(0)),
    "cat": lambda x, y: torch.cat([x, y]),
    "conv": lambda x, y: F.conv1d(x.unsqueeze(0), y.unsqueeze(2)),
    "cosine": F.cosine_similarity,
    "cross_entropy": F.cross_entropy,
    "cumsum": lambda x, _: x.cumsum(0),
    "dot": lambda x, y: torch.dot(x.flatten(), y.flatten()),
    "exp": lambda x, _: x.exp(),
    "gelu": lambda x, _: F.gelu(x),
    "layer_norm": lambda x, _: F.layer_norm(x, (4,)),
    "linear": F.linear,
    "log": lambda _, y: y.log(),
    "log_softmax": lambda x, _: x.log_softmax(-1),
    "logsumexp": lambda x, _: x.logsumexp(-1),
    "matmul": torch.matmul,
    "mean": lambda x, _: x.mean(),
    "mse": F.mse_loss,
    "norm": lambda x, _: x.norm(),
    "normalize": lambda x, _: F.normalize(x),
    "pow": lambda _, y: y**2,
    "prod": lambda x, _: x.prod(),
    "quotient": torch.div,
    "reciprocal": lambda x, _: x.reciprocal(),
    "rms_norm": lambda x, _: F.rms_norm(x, (4,)),
    "softmax": lambda x, _: x.softmax(-1),
    "softplus": lambda x, _: F.softplus(x),
    "sqrt": lambda _, y: y.sqrt(),
    "std": lambda x, _: x.std(),
    "sum": lambda x, _: x.sum(),
    "sum in a type": lambda x, _: x.sum(dtype=torch.float16),
    "tanh": lambda x, _: x.tanh(),
    "vector_norm": lambda x, _: torch.linalg.vector_norm(x),
}
KINDS = [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)]


def on_cuda(call: Callable[[Tensor, Tensor], Any], types: tuple[torch.dtype, torch.dtype]) -> torch.dtype | None:
    """The type of a result under PyTorch's autocast of CUDA, of tensors that hold nothing."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    with FakeTensorMode():
        operands = [torch.empty(4, 4, device="cuda", dtype=dtype) for dtype in types]
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        try:
            return type_of(call, *operands)
        finally:
            torch.set_autocast_enabled("cuda", before[0])
            torch.set_autocast_dtype("cuda", before[1])


def type_of(call: Callable[[Tensor, Tensor], Any], x: Tensor, y: Tensor) -> torch.dtype | None:
    """The type of a result; None where the types do not fit."""
    try:
        found: torch.dtype = call(x, y).dtype
    except RuntimeError:
        return None
    return found


@pytest.mark.parametrize("types", KINDS, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_types_are_those_of_cuda(name: str, types: tuple[torch.dtype, torch.dtype]) -> None:
    x, y = (torch.rand(4, 4).to(dtype) for dtype in types)
    with casts_of_cuda(torch.bfloat16), under_autocast(torch.bfloat16):
        here = type_of(CALLS[name], x, y)
    assert here == on_cuda(CALLS[name], types)


def test_every_name_is_one_of_pytorch() -> None:
    assert names_of("CUDA") >= HALF | WIDEST | REFUSED


def test_what_the_processor_casts_itself_comes_back() -> None:
    x = torch.rand(4, 4)

    def results() -> list[torch.dtype]:
        with torch.autocast("cpu", torch.bfloat16):
            return [x.mm(x).dtype, x.mm(x).exp().dtype, torch.stack([x, x]).dtype]

    before = results()
    with casts_of_cuda(torch.bfloat16), casts_of_cuda(torch.bfloat16):
        assert results()[:2] == [torch.bfloat16, torch.float32]
    assert results() == before


class Rate(nn.Module):
    """The square of a layer's results."""

    def __init__(self, power: int) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        nn.init.eye_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
        self.power = power

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y * y if self.power == 1 else y**self.power


def test_a_product_is_computed_in_half_precision_and_a_power_is_not() -> None:
    x, box = (torch.ones(1, 2),), (-300, 300)
    assert rf.check(Rate(1), x, box=box, self_check=False).verdict == "holds"
    found = rf.check(Rate(1), x, box=box, self_check=False, autocast=torch.float16)
    assert found.verdict == "violated"
    assert any("as autocast on CUDA chooses" in notice for notice in found.notices)
    (product,) = (operator for operator in found.operators if operator.verdict == "violated")
    assert product.op_type == "Mul" and product.source is not None and "y * y" in product.source.code
    assert rf.check(Rate(2), x, box=box, self_check=False, autocast=torch.float16).verdict == "holds"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_proof_is_about_the_kernels_of_cuda_where_it_is_asked(dtype: torch.dtype) -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2), nn.Softmax(-1))
    found = rf.check(module, (torch.zeros(1, 4),), box=(-1, 1), autocast=dtype, runtime="torch-cuda", timeout=10)
    assert found.verdict == "holds" and found.runtimes == ("torch", "torch-cuda")
    assert not any("kernels of the CPU" in notice for notice in found.notices)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_backward_pass_is_that_of_autocast(dtype: torch.dtype) -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.layer(x)
            return -scores.log_softmax(-1).mean()

    torch.manual_seed(0)
    options: dict[str, Any] = {"box": (-1, 1), "gradient": True, "autocast": dtype, "self_check": False}
    result = rf.check(Loss(), (torch.randn(2, 4),), **options)
    assert result.verdict == "holds" and str(dtype).removeprefix("torch.") in result.assumptions.element_types


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["soft_margin_loss", "cross_entropy, ignore_index", "poisson_nll_loss, full"])
def test_losses_that_fail_in_float32_fail_at_their_line(name: str) -> None:
    loss = LOSSES[name]
    result = rf.check(loss.module(), loss.args, box=loss.box, self_check=False, autocast=torch.bfloat16, fail_on="any")
    assert result.verdict == "violated"


def test_what_is_no_type_of_it_is_refused() -> None:
    with pytest.raises(rf.UsageError, match=r"autocast: torch\.float64 is no type of it; give torch\.float16 or"):
        rf.check(Rate(1), (torch.ones(1, 2),), autocast=torch.float64)
    with pytest.raises(rf.UsageError, match="autocast: is about PyTorch modules"):
        rf.check("model.onnx", autocast=torch.float16)
    with pytest.raises(rf.ModuleError, match="binary_cross_entropy is unsafe under autocast"):
        rf.check(nn.BCELoss(), (torch.rand(3), torch.rand(3)), autocast=torch.float16)
