"""Operands of exported operators, in the words of the line of Python that they come from."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import onnx

from ranum_falsify.api.source_rewrites import read_applied
from ranum_falsify.api.sources import find_sources

_BINARY: dict[str, type[ast.operator]] = {"Div": ast.Div, "MatMul": ast.MatMult}
_UNARY = {"Exp": "exp", "Log": "log", "Sqrt": "sqrt"}
_PLAIN = frozenset("abs clamp exp log matmul mean norm relu reshape sqrt sum T unsqueeze view".split())
"""Calls that the exporter makes none of these operators of, but for their own."""


def find_words(model: onnx.ModelProto, name: str, operands: Sequence[str]) -> dict[str, str]:
    """Return the text of each operand of a node; nothing where the line leaves in doubt which expression it is.

    Args:
        model: A model that was exported from a module.
        name: The node.
        operands: The names of its operands, in their order.
    """
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
