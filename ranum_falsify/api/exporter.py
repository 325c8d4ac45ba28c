"""`torch.onnx.export`, silent, quicker, and true to what PyTorch computes."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import onnx
import torch
from torch import Tensor

from ranum_falsify.api.fidelity import Use, calls_of, dtype_of, find_unchecked, list_uses, note_uses
from ranum_falsify.api.formulas import list_formulas
from ranum_falsify.api.tracing import keep_stacks
from ranum_falsify.api.translations import list_translations
from ranum_falsify.operators.relations.unpublished import UNCHECKED


def run_exporter(
    module: torch.nn.Module, tensors: Sequence[Tensor], uses: Collection[Use] = (), *, of_torch: bool = True
) -> onnx.ModelProto:
    """Return a module as an ONNX model whose nodes note where they come from.

    The model notes an operator that PyTorch may compute otherwise, too; see `find_unchecked`.

    Args:
        module: The module; its arguments and outputs are tensors.
        tensors: The arguments of an example call.
        uses: Operators that the module stands for, if it was traced.
        of_torch: Whether the model is to say what PyTorch computes where the exporter writes something less valid.
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
