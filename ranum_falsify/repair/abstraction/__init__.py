"""Clips: the widest ranges of chosen tensors within which the interval analysis proves that operators are valid."""

__all__: list[str] = []
