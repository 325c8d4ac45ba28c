"""PyTorch modules as ONNX models whose nodes know their lines of Python."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch

from ranum_falsify.api.arguments import Arguments, name_arguments
from ranum_falsify.api.casting import TYPES, casts_of_cuda, under_autocast
from ranum_falsify.api.exporter import run_exporter, silence
from ranum_falsify.api.naming import hold_inputs, rename_tensors
from ranum_falsify.api.replaced import ReplacedFunctions
from ranum_falsify.api.sources import StackFrame, find_innermost
from ranum_falsify.api.tracing import FlatCall, TrainingStep, trace_training, unchecked
from ranum_falsify.errors import ModuleError, UsageError
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.process.starting import pause_collector, pause_for_imports, shorten_end, turn


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A PyTorch module as an ONNX model.

    Attributes:
        step: The module's passes, with the arguments that it was exported with.
        gradient: Whether the model holds the backward pass too.
        model: The model. Its inputs are the tensors among the arguments, by the names of `forward`'s parameters; its
            initializers include the module's parameters and buffers under their own names.
        parameters: Names of the module's parameters among the initializers.
    """

    step: TrainingStep
    gradient: bool
    model: onnx.ModelProto
    parameters: tuple[str, ...]

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The inputs' values among the arguments, by name."""
        return {name: to_numpy(x.detach().cpu()) for name, x in self.step.arguments.tensors.items()}


def export(
    module: torch.nn.Module,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    gradient: bool = False,
    wrt: str | Sequence[str] | None = None,
    autocast: torch.dtype | None = None,
    of_torch: bool = True,
) -> Exported:
    """Export a module with `torch.onnx.export`, in memory.

    The module is exported as it is: in training mode unless `eval()` was called, with the values of its parameters and
    buffers, for the shapes of the arguments.  It is not changed.

    Args:
        module: The module.
        args: Positional arguments of an example call: a tuple, or a single tensor.
        kwargs: Keyword arguments of it.
        gradient: Whether to export the backward pass too, as the operators that autograd runs: from the sum of all
            floating outputs to what `wrt` says.
        wrt: Names of inputs and parameters, "parameters" standing for all of these; None for those of `TrainingStep`.
        autocast: The type that autocast casts to, as on CUDA; None for no autocast.
        of_torch: Whether the model is to say what PyTorch computes where the exporter writes something less valid.

    Raises:
        UsageError: `wrt` names what is no input and no parameter, or has no derivative; or autocast has no such type.
        ModuleError: onnxscript is missing, the arguments do not fit, or PyTorch cannot export the module.
    """
    shorten_end()
    try:
        with pause_for_imports():
            import onnxscript.function_libs.torch_lib.ops  # noqa: F401 - torch.onnx needs it
            import torch.export._trace  # noqa: F401 - torch.export imports it on first use
    except ImportError as error:
        raise ModuleError("exporting a module needs onnxscript; run: pip install onnxscript") from error
    step = make_step(module, args, kwargs, wrt, autocast)
    try:
        with turn(), silence(), pause_collector(), unchecked(), ReplacedFunctions(), casts_of_cuda(autocast):
            model = _training(step) if gradient else _forward(step, of_torch=of_torch)
    except Exception as error:
        raise ModuleError(f"{type(module).__name__}: cannot be exported ({_reason(error)}); {_ADVICE}") from error
    names = dict(module.named_parameters())
    parameters = tuple(initializer.name for initializer in model.graph.initializer if initializer.name in names)
    return Exported(step=step, gradient=gradient, model=model, parameters=parameters)


def make_step(
    module: torch.nn.Module,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    wrt: str | Sequence[str] | None,
    autocast: torch.dtype | None,
) -> TrainingStep:
    """Return the passes of a module; args and errors are those of `export`."""
    if autocast not in (None, *TYPES):
        raise UsageError(f"autocast: {autocast!r} is no type of it; give torch.float16 or torch.bfloat16")
    arguments = name_arguments(module, args, kwargs)
    if not arguments.tensors:
        raise ModuleError(f"{type(module).__name__}: the arguments hold no tensor; give those of an example call")
    named = None if wrt is None else _choose_leaves(module, arguments, (wrt,) if isinstance(wrt, str) else tuple(wrt))
    return TrainingStep(module, arguments, named, autocast)


_ADVICE = "torch.onnx.export(module, args, dynamo=True) tells more"


def _forward(step: TrainingStep, *, of_torch: bool) -> onnx.ModelProto:
    # An autocast that begins in the exported call becomes a graph of its own there, which loses lines.
    with under_autocast(step.autocast):
        call, tensors = FlatCall(step.module, step.arguments), list(step.arguments.tensors.values())
        model = run_exporter(call, tensors, of_torch=of_torch)
    own = {f"module.{name}": name for name in step.state}
    return rename_tensors(model, own | _input_names(model, step.arguments))


def _choose_leaves(module: torch.nn.Module, arguments: Arguments, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of inputs and parameters that derivatives are wanted in."""
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    floating = [name for name, x in arguments.tensors.items() if x.is_floating_point()]
    for name in names:
        if name not in (*trained, *floating, "parameters"):
            known = ", ".join(floating)
            raise UsageError(f"wrt: {name!r} has no derivative; {known}, parameters or the name of one have")
    return tuple(part for name in names for part in (trained if name == "parameters" else [name]))


def _training(step: TrainingStep) -> onnx.ModelProto:
    graph, values, uses = trace_training(step)
    model = run_exporter(graph, values, uses)
    state = step.state
    held = [info.name for info in model.graph.input][: len(state)]
    model = hold_inputs(model, {name: to_numpy(x.detach().cpu()) for name, x in zip(held, values, strict=False)})
    return rename_tensors(model, dict(zip(held, state, strict=True)) | _input_names(model, step.arguments))


def _input_names(model: onnx.ModelProto, arguments: Arguments) -> dict[str, str]:
    return dict(zip((info.name for info in model.graph.input), arguments.tensors, strict=True))


def _reason(error: BaseException) -> str:
    """Return the first line of what started a chain of errors, and the line of the user's code where it did."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
    stack = traceback.extract_tb(error.__traceback__)
    frame = find_innermost(StackFrame(entry.filename, entry.lineno or 0, entry.line or "") for entry in stack)
    return text if frame is None else f"{text}, at {frame.file}:{frame.line}: {frame.code}"
