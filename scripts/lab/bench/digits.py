"""Handwritten digits that stand for the pictures of the zoo's programs: scikit-learn's, at the size of MNIST's."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

from ranum_falsify.zoo.natural import Pictures

__all__ = ["load_pictures"]

_SIDE, _MARGIN = 20, 4
"""MNIST's digits fill 20 of 28 pixels."""


def load_pictures() -> Pictures:
    """Return 1,797 pictures of 28 by 28 pixels, enlarged from 8 by 8."""
    digits = load_digits()
    small = torch.from_numpy(digits.images / 16.0)[:, None]
    large = torch.nn.functional.interpolate(small, size=(_SIDE, _SIDE), mode="bilinear")[:, 0]
    pixels = np.pad(large.numpy(), ((0, 0), (_MARGIN, _MARGIN), (_MARGIN, _MARGIN)))
    return Pictures(pixels=pixels, classes=digits.target)
