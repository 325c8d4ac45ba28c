import pytest
import torch
from losses import DiceLoss

from ranum_falsify.testing import assert_no_invalid_input

masks = (torch.zeros(1, 8), torch.zeros(1, 8))


def test_the_loss_is_finite() -> None:
    assert_no_invalid_input(DiceLoss(), masks, box=(0, 1))


@pytest.mark.ranum_falsify(holds=True)
def test_the_smooth_loss_is_proved_finite() -> None:
    assert_no_invalid_input(DiceLoss(smooth=1.0), masks, box=(0, 1))
