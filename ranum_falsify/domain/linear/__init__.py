"""Linear bounds, which know how tensors depend on each other, and proofs on parts of a box."""

__all__: list[str] = []
