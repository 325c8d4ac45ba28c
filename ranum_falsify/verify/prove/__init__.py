"""Proofs: bounds of the interval domain, read as verdicts on operators and properties."""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing

__all__: list[str] = []
