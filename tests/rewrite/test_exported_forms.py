"""Stable passes find what PyTorch's exporters write, both of them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ranum_falsify.rewrite.apply import apply_pass
from ranum_falsify.rewrite.catalogue import find_pass
from tests.rewrite.sweeping import session

Forms = Mapping[str, Callable[[Tensor, Tensor], Tensor]]

LOGARITHMS: Forms = {
    "stable_log_softmax": lambda x, t: torch.log(torch.softmax(x, 1).clamp(1e-7, 1.0).reshape(3, 2)),
    "stable_log_softmax ": lambda x, t: torch.log(torch.softmax(x.half(), 1).float() + 1e-5),
    "stable_log_sigmoid": lambda x, t: torch.log(torch.sigmoid(x)).squeeze(),
    "stable_log_one_minus_sigmoid": lambda x, t: torch.log1p(-torch.sigmoid(x)),
    "stable_log_one_minus_sigmoid ": lambda x, t: torch.log(1 - torch.sigmoid(x) + 1e-5),
    "stable_log_one_minus_softmax": lambda x, t: torch.log(1 - torch.softmax(x, 1)),
    "stable_log_one_minus_tanh_squared": lambda x, t: torch.log(1 - torch.tanh(x).pow(2) + 1e-6),
    "stable_softplus": lambda x, t: torch.log1p(torch.exp(x)),
    "stable_softplus ": lambda x, t: -torch.log(1 + torch.exp(-x)),
    "stable_log_expm1": lambda x, t: torch.log(torch.exp(x.abs() + 0.5) - 1),
    "stable_log_sum_exp": lambda x, t: torch.log(torch.exp(x).sum(1)),
    "stable_log_sum_exp ": lambda x, t: torch.log(torch.exp(x).mean(1, keepdim=True)),
    "stable_log_add_exp": lambda x, t: torch.log(torch.exp(x) + torch.exp(t)),
    "stable_log_quotient": lambda x, t: torch.log(torch.exp(-((x - t) ** 2) / 2) / 2.5066),
    "stable_log_quotient ": lambda x, t: torch.log(1 / (1 + torch.exp(-x))),
    "drop_log_epsilon": lambda x, t: torch.log(torch.softmax(t, 1) + 1e-6),
}
EXPONENTIALS: Forms = {
    "stable_softmax": lambda x, t: x.exp() / x.exp().sum(1)[:, None],
    "stable_softmax ": lambda x, t: x.exp() / x.exp().sum(1, keepdim=True).expand(2, 3),
    "stable_sigmoid": lambda x, t: 1 / (1 + torch.exp(-x)),
    "stable_tanh": lambda x, t: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),
    "stable_tanh ": lambda x, t: (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1),
    "stable_one_minus_sigmoid": lambda x, t: (1 - torch.sigmoid(x)) ** 2,
    "stable_one_minus_softmax": lambda x, t: 1 - torch.softmax(x[:, :2], 1),
    "stable_expm1": lambda x, t: torch.exp(t) - 1,
    "stable_root_of_exp": lambda x, t: t * torch.sqrt(torch.exp(x)),
    "stable_root_of_exp ": lambda x, t: torch.softmax(x, 1) ** 0.5,
    "stable_inverse_hyperbolic": lambda x, t: torch.log(x + torch.sqrt(x * x + 1)),
    "stable_one_minus_cos": lambda x, t: 1 - torch.cos(x),
}
OTHERS: Forms = {
    "stable_normalize": lambda x, t: x / x.norm(dim=1, keepdim=True),
    "stable_normalize ": lambda x, t: x / torch.sqrt((x * x).sum(1))[:, None],
    "stable_normalize  ": lambda x, t: x * torch.rsqrt(x.pow(2).sum(1, keepdim=True)),
    "stable_norm": lambda x, t: F.normalize(x, dim=1),
    "stable_norm ": lambda x, t: x / (x**2).sum(1, keepdim=True).pow(0.5).clamp(min=1e-6),
    "stable_norm_product": lambda x, t: (x * t).sum(1) / torch.sqrt((x * x).sum(1) * (t * t).sum(1)),
    "stable_hypot": lambda x, t: torch.sqrt(x**2 + t**2),
    "stable_variance": lambda x, t: torch.sqrt((x * x).mean(1, keepdim=True) - x.mean(1, keepdim=True).pow(2)),
    "stable_variance ": lambda x, t: (x * x).sum(1) - x.sum(1) ** 2 / 3,
    "stable_squared_distance": lambda x, t: (x**2).sum(1) + (t**2).sum(1) - 2 * (x * t).sum(1),
    "stable_division_by_square": lambda x, t: -x / (t * t),
    "stable_x_log_x": lambda x, t: t * torch.log(t),
    "stable_x_log_x ": lambda x, t: (1 - t) * torch.log(1 - t),
    "stable_x_log_x  ": lambda x, t: (t * (torch.log(t) - x)).sum(),
    "stable_bce_with_logits": lambda x, t: (
        -(t * torch.log(torch.sigmoid(x)) + (1 - t) * torch.log(1 - torch.sigmoid(x))).mean()
    ),
    "stable_bce_loss": lambda x, t: (
        -(t * torch.log(torch.sigmoid(x)).clamp(min=-100) + (1 - t) * torch.log(1 - torch.sigmoid(x)).clamp(min=-100))
    ),
}
FAMILIES = {"logarithms": LOGARITHMS, "exponentials": EXPONENTIALS, "others": OTHERS}
X = torch.tensor([[0.3, -1.2, 2.1], [0.7, 0.1, -0.4]])
T = torch.tensor([[0.3, 0.2, 0.9], [0.7, 0.1, 0.4]])


class All(torch.nn.Module):
    """All forms of a family, an output each."""

    def __init__(self, forms: Forms) -> None:
        super().__init__()
        self.forms = forms

    def forward(self, x: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        return tuple(form(x, t) for form in self.forms.values())


def export(forms: Forms, *, dynamo: bool) -> onnx.ModelProto:
    """The forms as an exporter writes them."""
    file: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [f"y{number}" for number in range(len(forms))]
        opset = 18 if dynamo else 17
        torch.onnx.export(All(forms), (X, T), file, dynamo=dynamo, opset_version=opset, output_names=names)
    return onnx.load_from_string(file.getvalue())


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "script"])
@pytest.mark.parametrize("family", FAMILIES)
def test_passes_find_what_exporters_write(family: str, dynamo: bool) -> None:
    forms = FAMILIES[family]
    proto = export(forms, dynamo=dynamo)
    feeds = {value.name: array.numpy() for value, array in zip(proto.graph.input, (X, T), strict=True)}
    loaded = session(proto)
    assert loaded is not None
    expected = loaded.run(None, feeds)
    missed = []
    for number, name in enumerate(forms):
        alone = onnx.utils.Extractor(proto).extract_model(list(feeds), [f"y{number}"])
        applied = apply_pass(find_pass(name.strip()), ir.from_proto(alone))
        if applied.model is None:
            missed.append((name, applied.refusals))
            continue
        new = session(ir.to_proto(applied.model))
        assert new is not None
        used = {value.name for value in alone.graph.input}
        found = new.run(None, {key: array for key, array in feeds.items() if key in used})[0]
        half = name == "stable_log_softmax "  # its softmax is of float16
        np.testing.assert_allclose(found, expected[number], rtol=2e-3 if half else 1e-4, atol=1e-5, err_msg=name)
    assert not missed


@pytest.mark.slow
def test_a_loss_of_pytorch_is_found_as_it_is_exported() -> None:
    """The exporter has no operator for BCELoss, and writes its clamps."""
    proto = export({"loss": lambda x, t: F.binary_cross_entropy(torch.sigmoid(x), t)}, dynamo=True)
    applied = apply_pass(find_pass("stable_bce_loss"), ir.from_proto(proto))
    assert applied.model is not None and "Log" not in {node.op_type for node in applied.model.graph}
    far = {value.name: array for value, array in zip(proto.graph.input, (np.float32(90 * X), T.numpy()), strict=True)}
    new = session(ir.to_proto(applied.model))
    assert new is not None
    loss = F.binary_cross_entropy_with_logits(90 * X, T)
    np.testing.assert_allclose(new.run(None, far)[0], loss, rtol=1e-5)
