"""Lines of the user's Python code, found in what PyTorch's tracers note down about operators."""

from __future__ import annotations

import ast
import os
import re
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

import onnx

from ranum_falsify.api.source_rewrites import read_applied
from ranum_falsify.network.source import BACKWARD, Source

# Notes may be a stranger's, so this takes time in proportion to their length.
_FRAME = re.compile(
    r'File "(?P<file>[^"\n]*)", line (?P<line>\d{1,9}), in .*$(?:\n(?!.*File ")[^\S\n]+(?P<code>.*))?', re.MULTILINE
)
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\](torch[/\\])?")
"""A place of installed packages, on whichever machine a model was exported; and PyTorch's among them."""
_GENERATED = ("<frozen", "<eval_with_key>")
_STACK = "pkg.torch.onnx.stack_trace"
_SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass(frozen=True)
class StackFrame:
    """A frame of a formatted traceback."""

    file: str
    line: int
    code: str


def own_folder() -> str:
    """Return the folder of this package."""
    return str(Path(__file__).resolve().parent.parent) + os.sep


@cache
def _library_folders() -> tuple[str, ...]:
    """Return the folders of torch, of installed packages, of Python, and of this package."""
    import torch

    installed = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
    return (
        str(Path(torch.__file__).parent) + os.sep,
        own_folder(),
        *(f"{folder}{os.sep}" for folder in sorted(installed)),
    )


@cache
def _is_foreign(file: str) -> bool:
    """Tell whether a file is not the user's own: PyTorch's, another installed package's, or this package's."""
    return file.startswith(_library_folders()) or file.startswith(_GENERATED) or _INSTALLED.search(file) is not None


@cache
def is_machinery(file: str) -> bool:
    """Tell whether a file can never be where a module is written: PyTorch's or this package's."""
    installed = _INSTALLED.search(file)
    return file.startswith((*_library_folders()[:2], *_GENERATED)) or bool(installed and installed[1])


def find_innermost(frames: Iterable[StackFrame]) -> StackFrame | None:
    """Return the innermost frame of the user's own code, else that of an installed package other than PyTorch."""
    known = list(frames)[::-1]
    own = (frame for frame in known if not _is_foreign(frame.file))
    return next(own, next((frame for frame in known if not is_machinery(frame.file)), None))


def find_line(frame: FrameType | None) -> tuple[str, int] | None:
    """Return file and number of the line of the user's own code that runs, as :func:`find_innermost` chooses it."""
    installed = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_foreign(file):
            return file, frame.f_lineno
        if installed is None and not is_machinery(file):
            installed = file, frame.f_lineno
        frame = frame.f_back
    return installed


def _parse_frames(stack_trace: str) -> list[StackFrame]:
    """Return the frames of a formatted traceback, the outermost first."""
    return [
        StackFrame(match["file"], int(match["line"]), (match["code"] or "").strip())
        for match in _FRAME.finditer(stack_trace)
    ]


def _module_path(names: Iterable[str]) -> str:
    """Return the path of the innermost of nested modules, without the wrapper that they are exported in."""
    last = ([name for name in names if name] or [""])[-1]
    return last.removeprefix("module").removeprefix(".")


def find_sources(model: onnx.ModelProto) -> dict[str, Source]:
    """Return where the nodes of an exported model come from, by node name.

    A node that the exporter made without a note comes from where the nearest node comes from that reads its output,
    else from where the nearest comes from that writes its input.
    """
    noted = {node.name: _read_note(node) for node in model.graph.node if node.metadata_props}
    if not any(noted.values()):
        return {}
    return {name: source for name, source in _fill(model.graph, noted).items() if source is not None}


def _read_note(node: onnx.NodeProto) -> Source | None:
    """Return what a node's own metadata says."""
    notes = {entry.key: entry.value for entry in node.metadata_props}
    trace = notes.get(_STACK, "")
    path = _module_path(_parse_names(notes.get(_SCOPES, "[]"))[:-1])
    frame = find_innermost(_parse_frames(trace))
    if frame is None:
        return Source(module_path=path) if path else None
    return Source(frame.file, frame.line, frame.code, path, trace.startswith(BACKWARD))


def _parse_names(text: str) -> list[str]:
    try:
        return [str(name) for name in ast.literal_eval(text)]
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return []


def _fill(graph: onnx.GraphProto, noted: Mapping[str, Source | None]) -> dict[str, Source | None]:
    """Give nodes without a source that of a neighbour: a reader's, else a writer's."""
    filled = dict(noted)
    by_output: dict[str, Source] = {}
    by_input: dict[str, Source] = {}
    for node in reversed(graph.node):
        found = filled.get(node.name) or next((by_input[name] for name in node.output if name in by_input), None)
        filled[node.name] = found
        by_input |= {name: found for name in node.input if found is not None}
    for node in graph.node:
        found = filled.get(node.name) or next((by_output[name] for name in node.input if name in by_output), None)
        filled[node.name] = found
        by_output |= {name: found for name in node.output if found is not None}
    return filled


_BINARY: dict[str, type[ast.operator]] = {"Div": ast.Div, "MatMul": ast.MatMult}
_UNARY = {"Exp": "exp", "Log": "log", "Sqrt": "sqrt"}
_PLAIN = frozenset("abs clamp exp log matmul mean norm relu reshape sqrt sum T unsqueeze view".split())
"""Calls that the exporter makes none of these operators of, but for their own."""


def find_words(model: onnx.ModelProto, name: str, operands: Sequence[str]) -> dict[str, str]:
    """Return the text of each operand of a node; nothing where the line leaves in doubt which expression it is."""
    node = next((node for node in model.graph.node if node.name == name), None)
    sources = find_sources(model)
    source = sources.get(name)
    if node is None or source is None or source.backward or not source.line or not node.metadata_props:
        return {}
    place = (source.file, source.line)
    alike = [other for other in model.graph.node if other.op_type == node.op_type and other.name in sources]
    if sum((sources[other.name].file, sources[other.name].line) == place for other in alike) != 1:
        return {}
    found = _find_operands(source.code, node.op_type)
    return dict(zip(operands, found, strict=True)) if len(found) == len(operands) else {}


def _find_operands(code: str, op_type: str) -> list[str]:
    """Return the operands of the only expression of a line that is an operator; none if others may stand for it."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return []
    if not all(_is_plain(node) for node in nodes if isinstance(node, ast.Call)):
        return []
    found: list[list[ast.expr]] = []
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, _BINARY.get(op_type, ast.FloorDiv)):
            found.append([node.left, node.right])
        call = read_applied(node) if isinstance(node, ast.Call) else None
        if call is not None and call.name == _UNARY.get(op_type):
            found.append(call.operands if len(call.operands) == 1 and not call.keywords else [])
    return [_as_operand(node) for node in found[0]] if len(found) == 1 else []


def _is_plain(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _PLAIN


def _as_operand(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({text})"
