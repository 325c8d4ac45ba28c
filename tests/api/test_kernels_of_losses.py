"""What stands for kernels computes what they do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ranum_falsify.api.formulas import list_formulas
from ranum_falsify.api.replaced import ReplacedFunctions, ctc_loss

GENERATOR = torch.Generator().manual_seed(0)
ATEN = torch.ops.aten


def draw(*shape: int, size: float = 3.0) -> Tensor:
    return (torch.rand(*shape, generator=GENERATOR) * 2 - 1) * size


LABELS = torch.tensor([[3, 0, -1, 1], [1, -1, 2, 3], [-1, 0, 0, 0]])
CALLS = [
    (ATEN.softplus_backward.default, (draw(3, 4), draw(3, 4, size=60.0), 2.0, 20.0)),
    (ATEN._safe_softmax.default, (torch.tensor([[-torch.inf, 1.0, 2.0], [-torch.inf] * 3]), -1)),
    (ATEN.std.correction, (draw(3, 4, size=1e-41), [1])),
    (ATEN.std.correction, (draw(3, 4, size=1e25), None)),
    *(
        (ATEN.index_put.default, (draw(3, 4), indices, number))
        for number in (torch.tensor(0.5), torch.tensor([-torch.inf]))
        for mask in (torch.tensor([True, False, True]), torch.zeros(3, dtype=torch.bool))
        for indices in ([mask], [mask, None], [None, torch.tensor([True, False, False, True])], [draw(3, 4) > 0])
    ),
    *(
        call
        for reduction in (0, 1, 2)
        for gradient in [draw(3) if reduction == 0 else draw(1).reshape(())]
        for x in [draw(3, 4)]
        for call in (
            (ATEN.multi_margin_loss.default, (x, torch.tensor([0, 3, 1]), 2, 1.5, draw(4).abs(), reduction)),
            (
                ATEN.multi_margin_loss_backward.default,
                (gradient, x, torch.tensor([0, 3, 1]), 1, 1.5, draw(4).abs(), reduction),
            ),
            (
                ATEN.multilabel_margin_loss_backward.default,
                (gradient, x, LABELS, reduction, ATEN.multilabel_margin_loss_forward.default(x, LABELS, reduction)[1]),
            ),
            (ATEN.multilabel_margin_loss_forward.default, (x, LABELS, reduction)),
            (ATEN.cross_entropy_loss.default, (x, draw(3, 4).softmax(1), draw(4).abs(), reduction, -100, 0.1)),
        )
    ),
]


@pytest.mark.parametrize("index", range(len(CALLS)))
def test_numbers_are_those_of_the_operator(index: int) -> None:
    operator, args = CALLS[index]
    found, expected = list_formulas()[operator](*args), operator(*args)
    many = (found, expected) if isinstance(found, tuple) else ((found,), (expected,))
    for one, other in zip(*many, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 if "std" not in str(operator) else 0.0)


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_alignments_are_those_of_the_kernel(seed: int, zero_infinity: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    times, samples, classes, most = (int(torch.randint(2, 7, (), generator=generator)) for _ in range(4))
    scores = torch.randn(times, samples, classes, generator=generator) * 10.0 ** (seed % 3)
    targets = torch.randint(1, classes, (samples, most), generator=generator)
    lengths = torch.randint(1, times + 1, (samples,), generator=generator)
    counts = torch.randint(0, most + 1, (samples,), generator=generator)
    results = []
    for function in (F.ctc_loss, ctc_loss):
        given = scores.log_softmax(-1).requires_grad_()
        loss = function(given, targets, lengths, counts, reduction="none", zero_infinity=zero_infinity)
        loss.sum().backward()
        assert given.grad is not None
        results.append((loss.detach(), given.grad))
    (expected, slopes), (found, others) = results
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert bool((slopes.isfinite() | ~others.isfinite()).all())
    finite = slopes.isfinite() & others.isfinite()
    torch.testing.assert_close(others[finite], slopes[finite], rtol=1e-3, atol=1e-3)


def test_a_negative_variance_gives_nan() -> None:
    x = draw(3, 4), draw(3, 4), draw(3, 4).abs()
    with ReplacedFunctions():
        found = F.gaussian_nll_loss(*x, full=True)
        refused = F.gaussian_nll_loss(x[0], x[1], -x[2])
    torch.testing.assert_close(found, F.gaussian_nll_loss(*x, full=True))
    assert bool(refused.isnan())


@pytest.mark.parametrize("size", [1e-40, 1e-20, 1.0, 1e19, 1e37, 3e38])
@pytest.mark.parametrize("dims", [None, [0, 1], [1]])
def test_where_the_kernel_of_a_deviation_overflows_so_does_ours(size: float, dims: list[int] | None) -> None:
    kernel = torch.ops.aten.std.correction
    ours = list_formulas()[kernel]
    generator = torch.Generator().manual_seed(0)
    for x in (torch.full((3, 4), 0.6 * size), (torch.rand(3, 4, generator=generator) * 2 - 1) * size):
        assert not bool((~kernel(x, dims, correction=1).isfinite() & ours(x, dims, 1).isfinite()).any())
