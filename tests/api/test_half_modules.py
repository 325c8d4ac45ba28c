"""`check` of modules in half precision: asked of PyTorch, in the types that compute."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ranum_falsify as rf

LIMITS = {torch.float16: "x <= 11.08594 (in float16)", torch.bfloat16: "x <= 88.5 (in bfloat16)"}
"""Where `exp` of a type is finite."""


class Rate(nn.Module):
    """The exponential of a layer's results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(self.layer(x))


class Share(nn.Module):
    """A logarithm of probabilities, under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.log(torch.softmax(self.layer(x), -1))


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_modules_are_decided_in_their_type(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module, x = Rate().to(dtype), torch.randn(2, 4).to(dtype)
    assert rf.check(module, (x,), box=(-1, 1), self_check=False).verdict == "holds"
    result = rf.check(module, (x,), box=(-300, 300), self_check=False)
    (found,) = (operator for operator in result.operators if operator.verdict == "violated")
    assert (found.op_type, found.condition) == ("Exp", LIMITS[dtype])
    assert found.operands["x"][1] > float(LIMITS[dtype].split()[2])
    assert found.counterexample is not None
    given = torch.from_numpy(found.counterexample["x"].astype("float32")).to(dtype)
    assert not bool(module(given).isfinite().all())
    # ONNX Runtime's processor provider has no bfloat16 product.
    unasked = [notice for notice in result.notices if notice.startswith("ONNX Runtime was not asked")]
    assert len(unasked) == (dtype is torch.bfloat16)


def test_a_module_under_autocast_is_asked() -> None:
    torch.manual_seed(0)
    result = rf.check(Share(), (torch.randn(2, 4),), box=(-1, 1), self_check=False)
    assert result.verdict == "holds" and {"bfloat16"} <= set(result.assumptions.element_types)


def test_a_function_is_no_module() -> None:
    with pytest.raises(rf.errors.UsageError, match=r"'log' is a function; give a torch\.nn\.Module"):
        rf.check(torch.log, (torch.ones(2),), box=(0, 1))  # type: ignore[arg-type]


class Guarded(nn.Module):
    """A logarithm of what is 1 where it would be 0; PyTorch compares in float32."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(torch.where(x == 0, 1.0, x))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_a_test_of_a_wider_type_guards(dtype: torch.dtype) -> None:
    x = torch.rand(2, 4).to(dtype)
    assert rf.check(Guarded(), (x,), box=(0, 1), self_check=False).verdict == "holds"
    assert rf.check(Guarded(), (x,), box=(-1, 1), self_check=False).verdict == "violated"
