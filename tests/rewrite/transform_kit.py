"""Models in ONNX's text form, and passes that exist for one test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from onnx import parser

from ranum_falsify.rewrite.config import TransformConfig
from ranum_falsify.rewrite.outcome import Transformed
from ranum_falsify.rewrite.registry import forget, registered
from ranum_falsify.rewrite.runner import transform

OPSET = 17


def model_of(text: str, opset: int = OPSET) -> ir.Model:
    """The model of a graph in text form."""
    return ir.from_proto(proto_of(text, opset))


def proto_of(text: str, opset: int = OPSET) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')


def transformed(text: str | ir.Model, passes: Sequence[str], opset: int = OPSET, **config: Any) -> Transformed:
    """A model after passes, verified on a few samples."""
    model = model_of(text, opset) if isinstance(text, str) else text
    settings = TransformConfig(**{"samples": 24, "verify_timeout": 0.0, **config})
    return transform(model, passes, settings, folder=Path.cwd())


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


@contextmanager
def temporary_passes() -> Iterator[None]:
    """Passes registered inside are gone afterwards."""
    before = registered()
    try:
        yield
    finally:
        forget(registered().keys() - before.keys())
