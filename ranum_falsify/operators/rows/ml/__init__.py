"""Operators of `ai.onnx.ml`: what converters of classical models write."""

from ranum_falsify.operators.rows.ml import encoders, features, forests, linear  # noqa: F401 - they fill the registry
