"""Mutated property and model files for `scripts/fuzz_inputs.py`."""

__all__: list[str] = []
