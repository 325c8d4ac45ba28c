"""Proofs: bounds of the interval domain, read as verdicts on operators and properties."""
