"""Repairs of models whose operators can receive invalid input: rewrites, guards and clips, each proved or searched."""

__all__: list[str] = []
