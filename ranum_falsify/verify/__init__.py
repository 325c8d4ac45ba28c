"""The engine: proofs, search, replay, and the decision by all three."""
