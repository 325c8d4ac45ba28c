"""Names in ONNX models, changed throughout."""

from __future__ import annotations

import contextlib
import io
import logging
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import torch
from torch import Tensor

from ranum_falsify.api.casting import TYPES, casts_of_cuda, under_autocast
from ranum_falsify.api.fidelity import Use, calls_of, dtype_of, find_unchecked, list_uses, note_uses
from ranum_falsify.api.formulas import list_formulas
from ranum_falsify.api.replaced import ReplacedFunctions
from ranum_falsify.api.sources import StackFrame, find_innermost
from ranum_falsify.api.tracing import (
    Arguments,
    FlatCall,
    TrainingStep,
    keep_stacks,
    name_arguments,
    trace_training,
    unchecked,
)
from ranum_falsify.api.translations import list_translations
from ranum_falsify.errors import ModuleError, UsageError
from ranum_falsify.network.nesting import attribute_graphs
from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.operators.relations.unpublished import UNCHECKED
from ranum_falsify.process.starting import pause_collector, pause_for_imports, shorten_end, turn


def _rename_tensors(model: onnx.ModelProto, names: Mapping[str, str]) -> onnx.ModelProto:
    """Return the model with other names of tensors; where another tensor has such a name, that one gives way."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    taken = set(_list_names(copy.graph))
    known = {old: new for old, new in names.items() if old in taken}
    wanted = set(known.values())
    for name in sorted(wanted & taken - known.keys()):
        known[name] = next(fresh for i in range(len(taken) + 1) if (fresh := f"{name}.{i}") not in taken | wanted)
    _rename_within(copy.graph, known)
    return copy


def _list_names(graph: onnx.GraphProto) -> Iterator[str]:
    for info in (*graph.input, *graph.initializer):
        yield info.name
    for node in graph.node:
        yield from node.output
        for child in attribute_graphs(node):
            yield from _list_names(child)


def _rename_within(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for info in (*graph.input, *graph.initializer, *graph.output, *graph.value_info):
        info.name = names.get(info.name, info.name)
    for node in graph.node:
        for ends in (node.input, node.output):
            ends[:] = [names.get(name, name) for name in ends]
        for child in attribute_graphs(node):
            _rename_within(child, names)


def _hold_inputs(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return the model with these inputs as initializers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inputs = [info for info in copy.graph.input if info.name not in values]
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    copy.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in values.items())
    return copy


def _run_exporter(
    module: torch.nn.Module, tensors: Sequence[Tensor], uses: Collection[Use] = (), *, of_torch: bool = True
) -> onnx.ModelProto:
    """Return a module as an ONNX model whose nodes note where they come from.

    The model notes an operator that PyTorch may compute otherwise, too; see `find_unchecked`.
    """
    notes = _ExportNotes(set(uses))
    with keep_stacks(), _once(), _with_kernels(notes, of_torch=of_torch), _with_doubles(notes):
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
    _keep_types(program)
    model = program.model_proto
    model.metadata_props.add(key=UNCHECKED, value=notes.unchecked)
    return model


@dataclass
class _ExportNotes:
    """What the exporter does with a module.

    Attributes:
        uses: Operators of the module, and those that are taken apart on the way by formulas of PyTorch's own, which
            kernels need not follow.
        unchecked: See `find_unchecked`.
        wide: Whether the module computes in float64.
    """

    uses: set[Use] = field(default_factory=set)
    unchecked: str = ""
    wide: bool = False


def _keep_types(program: torch.onnx.ONNXProgram) -> None:
    """Give outputs the types that the module gives them: the exporter leaves out the last cast of a sum of halves."""
    from onnxscript import ir

    assert program.exported_program is not None
    graph, (known,) = program.model.graph, program.exported_program.graph.output_node().args
    for index, (output, node) in enumerate(zip(graph.outputs, cast(Any, known), strict=False)):
        dtype = dtype_of(node) if isinstance(node, torch.fx.Node) else None
        kept = None if dtype not in _HALVES else ir.DataType[_HALVES[dtype]]
        if kept is None or kept == output.dtype:
            continue
        last = ir.node("Cast", [output], {"to": kept.value}, name=f"{output.name}_cast")
        last.outputs[0].name, output.name = output.name, f"{output.name}_wide"
        last.outputs[0].dtype, last.outputs[0].shape = kept, output.shape
        graph.append(last)
        graph.outputs[index] = last.outputs[0]


_HALVES = {torch.float16: "FLOAT16", torch.bfloat16: "BFLOAT16"}


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
def _replaced(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    usual = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, usual)


@contextlib.contextmanager
def _with_kernels(notes: _ExportNotes, *, of_torch: bool) -> Iterator[None]:
    """Make the exporter take operators apart as their kernels compute them, before it looks for them in ONNX."""
    from torch.onnx._internal.exporter import _decomp, _fx_passes

    list_usual, decompose_usually = _decomp.create_onnx_friendly_decomposition_table, _fx_passes.decompose_with_registry

    def list_table(onnx_registered_ops: Any) -> dict[Any, Any]:
        formulas = list_usual(onnx_registered_ops)
        formulas |= {op: _first(ours, formulas.get(op)) for op, ours in list_formulas(of_torch=of_torch).items()}
        return note_uses(formulas, notes.uses)

    def decompose(program: torch.export.ExportedProgram, registry: Any) -> Any:
        # Formulas that PyTorch has for autograd need no table.
        notes.uses.update(list_uses(program.graph_module))
        return decompose_usually(program, registry)

    with (
        _replaced(_decomp, "create_onnx_friendly_decomposition_table", list_table),
        _replaced(_fx_passes, "decompose_with_registry", decompose),
    ):
        yield


def _first(ours: Callable[..., Any], other: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a formula that is another one where it is not implemented."""
    if other is None:
        return ours

    def take_apart(*args: Any, **kwargs: Any) -> Any:
        found = ours(*args, **kwargs)
        return other(*args, **kwargs) if found is NotImplemented else found

    return take_apart


@contextlib.contextmanager
def _with_doubles(notes: _ExportNotes) -> Iterator[None]:
    """Make the exporter keep Python's numbers in a module that computes in float64; it rounds them to float32."""
    from onnxscript import ir
    from torch.onnx._internal.exporter import _building, _fx_passes

    promote, determine_usually = _fx_passes.insert_type_promotion_nodes, _building._determine_input_dtype

    def look(module: torch.fx.GraphModule) -> None:
        notes.unchecked = find_unchecked(module, notes.uses)
        promote(module)
        notes.wide = any(dtype_of(node) is torch.float64 for node in calls_of(module))

    def determine(param: Any, arg: Any, types: Any) -> Any:
        found = determine_usually(param, arg, types)
        is_open = param.type_constraint not in types and len(param.type_constraint.allowed_types) > 1
        return ir.DataType.DOUBLE if notes.wide and is_open and isinstance(arg, float) else found

    with (
        _replaced(_fx_passes, "insert_type_promotion_nodes", look),
        _replaced(_building, "_determine_input_dtype", determine),
    ):
        yield


@contextlib.contextmanager
def _once() -> Iterator[None]:
    """Spare the exporter what it does again and again, or for nothing.

    onnxscript parses 500 functions to learn the domain that they are all in, and torch.export lists all operators of
    PyTorch for each of their namespaces.
    """
    from onnxscript._internal.values import TracedOnnxFunction
    from torch._export import utils

    lean = property(lambda function: SimpleNamespace(domain=function.domain))
    with (
        _replaced(TracedOnnxFunction, "function_ir", lean),
        _replaced(utils, "_materialize_cpp_cia_ops", cache(utils._materialize_cpp_cia_ops)),
    ):
        yield


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
        model = _run_exporter(call, tensors, of_torch=of_torch)
    own = {f"module.{name}": name for name in step.state}
    return _rename_tensors(model, own | _input_names(model, step.arguments))


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
    model = _run_exporter(graph, values, uses)
    state = step.state
    held = [info.name for info in model.graph.input][: len(state)]
    model = _hold_inputs(model, {name: to_numpy(x.detach().cpu()) for name, x in zip(held, values, strict=False)})
    return _rename_tensors(model, dict(zip(held, state, strict=True)) | _input_names(model, step.arguments))


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
