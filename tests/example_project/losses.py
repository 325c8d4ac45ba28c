"""A loss as it is often written."""

import torch
from torch import Tensor


class DiceLoss(torch.nn.Module):
    """One minus twice the overlap of two masks by their sizes, which may be 0."""

    def __init__(self, smooth: float = 0.0) -> None:
        super().__init__()
        self.smooth = smooth

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        overlap = (prediction * target).sum()
        sizes = prediction.sum() + target.sum()
        return 1 - (2 * overlap + self.smooth) / (sizes + self.smooth)
