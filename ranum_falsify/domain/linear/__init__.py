"""Linear bounds, which use how tensors depend on each other, and proofs on parts of a box."""

__all__: list[str] = []
