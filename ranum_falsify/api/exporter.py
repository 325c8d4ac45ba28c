"""`torch.onnx.export`, silent, quicker, and true to what PyTorch computes."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import onnx
import torch
from torch import Tensor

from ranum_falsify.api.tracing import keep_stacks

__all__ = ["no_collection", "run_exporter", "silence"]


def run_exporter(module: torch.nn.Module, tensors: Sequence[Tensor]) -> onnx.ModelProto:
    """Return a module as an ONNX model whose nodes note where they come from.

    Args:
        module: The module; its arguments and outputs are tensors.
        tensors: The arguments of an example call.
    """
    with keep_stacks(), _without_bodies():
        program = torch.onnx.export(
            module,
            # An input that is given twice would be one input.
            tuple(x.detach().clone() for x in tensors),
            dynamo=True,
            custom_translation_table=_translations(),
            verify=False,
            verbose=False,
            optimize=False,
        )
    assert program is not None
    return program.model_proto


@cache
def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return translations of functions that PyTorch computes with care and its exporter does not, by operator.

    The exporter writes log(sigmoid(x)) and log(exp(a) + exp(b)) as these formulas, which give infinity where PyTorch's
    kernels give a number.
    """
    from onnxscript import opset18 as op

    def log_sigmoid(self: Any) -> Any:
        return op.Neg(op.Softplus(op.Neg(self)))

    def log_add_exp(self: Any, other: Any) -> Any:
        return op.Add(op.Max(self, other), op.Softplus(op.Neg(op.Abs(op.Sub(self, other)))))

    aten = torch.ops.aten
    return {aten.log_sigmoid.default: log_sigmoid, aten.logaddexp.default: log_add_exp}


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep what PyTorch's exporter prints, warns of and logs off the terminal."""
    before, traces = logging.root.manager.disable, logging.getLogger("torch.__trace")
    logging.disable(logging.CRITICAL)
    traced, traces.disabled = traces.disabled, True  # it heeds no other switch
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        traces.disabled = traced


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage: looking at the objects that the exporter makes, which stay, is a quarter of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _without_bodies() -> Iterator[None]:
    """Spare onnxscript the parsing of 500 functions, which it does to learn the domain that they are all in."""
    from onnxscript._internal.values import TracedOnnxFunction

    usual = TracedOnnxFunction.function_ir
    lean = property(lambda function: SimpleNamespace(domain=function.domain))
    TracedOnnxFunction.function_ir = lean  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        TracedOnnxFunction.function_ir = usual  # type: ignore[method-assign]
