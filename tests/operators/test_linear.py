"""The product of integer matrices for devices where PyTorch has none."""

import pytest
import torch

from ranum_falsify.operators.rows.matrix import spell_out

SHAPES = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 2, 3), (3,)),
    ((3,), (2, 3, 4)),
    ((5, 1, 2, 3), (4, 3, 2)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_spelled_out_product(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = torch.randint(-9, 9, left), torch.randint(-9, 9, right)
    assert torch.equal(spell_out(a, b), torch.matmul(a, b))
