"""`torch.onnx.export`, silent, quicker, and true to what PyTorch computes."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import onnx
import torch
from torch import Tensor
from torch.onnx._internal.exporter import _decomp

from ranum_falsify.api.loss_kernels import list_kernels
from ranum_falsify.api.tracing import keep_stacks
from ranum_falsify.api.translations import list_translations


def run_exporter(module: torch.nn.Module, tensors: Sequence[Tensor]) -> onnx.ModelProto:
    """Return a module as an ONNX model whose nodes note where they come from.

    Args:
        module: The module; its arguments and outputs are tensors.
        tensors: The arguments of an example call.
    """
    with keep_stacks(), _without_bodies(), _with_kernels():
        program = torch.onnx.export(
            module,
            # An input that is given twice would be one input.
            tuple(x.detach().clone() for x in tensors),
            dynamo=True,
            custom_translation_table=list_translations(),
            verify=False,
            verbose=False,
            optimize=False,
        )
    assert program is not None
    return program.model_proto


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
def _with_kernels() -> Iterator[None]:
    """Make the exporter take operators apart as their kernels compute them, before it looks for them in ONNX."""
    usual = _decomp.create_onnx_friendly_decomposition_table
    _decomp.create_onnx_friendly_decomposition_table = lambda onnx_registered_ops: (
        usual(onnx_registered_ops) | list_kernels()
    )
    try:
        yield
    finally:
        _decomp.create_onnx_friendly_decomposition_table = usual


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
