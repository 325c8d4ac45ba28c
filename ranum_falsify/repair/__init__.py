"""Repairs of models whose operators can receive invalid input: rewrites, guards and clips, each proved or searched."""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing

__all__: list[str] = []
