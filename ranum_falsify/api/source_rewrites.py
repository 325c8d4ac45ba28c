"""Stable forms of expressions of Python: which text to put in the place of an expression that can fail."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Names = Mapping[str, ast.expr]
"""What local names stand for, of those that are assigned once."""


@dataclass(frozen=True)
class LineRewrite:
    """Another text for an expression.

    Attributes:
        node: The expression, as the source has it.
        text: What to write in its place.
        cause: Why the expression fails, in its own words.
    """

    node: ast.expr
    text: str
    cause: str


@dataclass(frozen=True)
class _Limits:
    """Numbers that keep operands valid in the type that computes.

    Attributes:
        least: Below this, a divisor, a root's operand or a logarithm's is too near to 0.
        exponents: Limits of an exponential's operand, the widest first.
    """

    least: str
    exponents: tuple[str, ...]


_LIMITS = {True: _Limits("1e-4", ("10.0", "5.0")), False: _Limits("1e-8", ("80.0", "20.0", "5.0"))}
"""By whether the type is float16."""


def list_rewrites(nodes: Sequence[ast.expr], names: Names, *, narrow: bool) -> list[LineRewrite]:
    """Return the rewrites of expressions, those that keep the formula first.

    Args:
        nodes: The expressions, those that fail first.
        names: What local names stand for.
        narrow: Whether float16 computes.
    """
    exact = [found for rule in _EXACT for node in nodes for found in rule(node, names)]
    guards = [found for rule in _GUARDS for node in nodes for found in rule(node, _LIMITS[narrow])]
    return [*exact, *guards]


def _text(node: ast.expr) -> str:
    return ast.unparse(node)


def _operand(node: ast.expr) -> str:
    """Return an expression as one whose attributes are read."""
    text = _text(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({text})"


def call_of(node: ast.expr, names: Names, *wanted: str) -> tuple[ast.expr, list[ast.expr], dict[str, ast.expr]] | None:
    """Return what a function is called on, with its other arguments: `torch.exp(x)`, `F.exp(x)`, `x.exp()` alike."""
    node = names.get(node.id, node) if isinstance(node, ast.Name) else node
    if not isinstance(node, ast.Call):
        return None
    keywords = {word.arg: word.value for word in node.keywords if word.arg}
    function = node.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    if name not in wanted:
        return None
    is_method = isinstance(function, ast.Attribute) and not _is_module(function.value)
    args = [function.value, *node.args] if is_method and isinstance(function, ast.Attribute) else list(node.args)
    return (args[0], args[1:], keywords) if args else None


def _is_module(node: ast.expr) -> bool:
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in ("torch", "F", "nn", "functional", "math", "np")


def _dim(args: list[ast.expr], keywords: Mapping[str, ast.expr]) -> str | None:
    found = keywords.get("dim", args[0] if args else None)
    return None if found is None else _text(found)


# forms that are the same numbers ----------------------------------------------------------------------------------


def _log_softmax(node: ast.expr, names: Names) -> Iterator[LineRewrite]:
    log = call_of(node, {}, "log")
    inner = None if log is None else call_of(log[0], names, "softmax")
    dim = None if inner is None else _dim(inner[1], inner[2])
    if log is not None and inner is not None and dim is not None:
        yield LineRewrite(node, f"torch.log_softmax({_text(inner[0])}, {dim})", f"`{_text(log[0])}` may be 0")


def _log_sigmoid(node: ast.expr, names: Names) -> Iterator[LineRewrite]:
    log = call_of(node, {}, "log")
    if log is None:
        return
    sigmoid, sign = call_of(log[0], names, "sigmoid"), ""
    if sigmoid is None and isinstance(log[0], ast.BinOp) and isinstance(log[0].op, ast.Sub):
        one = log[0].left
        if isinstance(one, ast.Constant) and one.value == 1:
            sigmoid, sign = call_of(log[0].right, names, "sigmoid"), "-"
    if sigmoid is not None:
        operand = _operand(sigmoid[0]) if sign else _text(sigmoid[0])
        yield LineRewrite(node, f"torch.nn.functional.logsigmoid({sign}{operand})", f"`{_text(log[0])}` may be 0")


def _log_sum_exp(node: ast.expr, names: Names) -> Iterator[LineRewrite]:
    log = call_of(node, {}, "log")
    total = None if log is None else call_of(log[0], names, "sum")
    inner = None if total is None else call_of(total[0], names, "exp")
    dim = None if total is None else _dim(total[1], total[2])
    if inner is not None and dim is not None and total is not None:
        keep = ", keepdim=True" if "keepdim" in total[2] else ""
        yield LineRewrite(node, f"torch.logsumexp({_text(inner[0])}, {dim}{keep})", f"`{_text(total[0])}` may overflow")


def _normalize(node: ast.expr, names: Names) -> Iterator[LineRewrite]:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return
    norm = call_of(node.right, names, "norm", "vector_norm")
    if norm is None or _text(norm[0]) != _text(node.left) or "keepdim" not in norm[2]:
        return
    dim = norm[2].get("dim")
    if dim is not None and len(norm[1]) == 0:
        text = f"torch.nn.functional.normalize({_text(node.left)}, dim={_text(dim)})"
        yield LineRewrite(node, text, f"`{_text(node.right)}` may be 0")


def _finite_mask(node: ast.expr, names: Names) -> Iterator[LineRewrite]:
    filled = call_of(node, {}, "masked_fill", "masked_fill_")
    if filled is None or len(filled[1]) != 2:
        return
    value = _text(filled[1][1])
    if value in ("float('-inf')", "-torch.inf", "-math.inf", "-np.inf", "-float('inf')"):
        least = f"torch.finfo({_operand(filled[0])}.dtype).min"
        yield LineRewrite(filled[1][1], least, "a mask may hide all of a row")


_EXACT: tuple[Callable[[ast.expr, Names], Iterator[LineRewrite]], ...] = (
    _log_softmax,
    _log_sigmoid,
    _log_sum_exp,
    _normalize,
    _finite_mask,
)


# guards -----------------------------------------------------------------------------------------------------------


def _guard_root(node: ast.expr, limits: _Limits) -> Iterator[LineRewrite]:
    call = call_of(node, {}, "sqrt", "rsqrt")
    if call is not None:
        yield LineRewrite(call[0], f"({_text(call[0])} + {limits.least})", f"`{_text(call[0])}` may be 0")


def _guard_divisor(node: ast.expr, limits: _Limits) -> Iterator[LineRewrite]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and not isinstance(node.right, ast.Constant):
        cause = f"`{_text(node.right)}` may be 0"
        yield LineRewrite(node.right, f"({_text(node.right)} + {limits.least})", cause)
        yield LineRewrite(node.right, f"{_operand(node.right)}.clamp(min={limits.least})", cause)


def _guard_logarithm(node: ast.expr, limits: _Limits) -> Iterator[LineRewrite]:
    call = call_of(node, {}, "log", "log2", "log10")
    if call is not None:
        yield LineRewrite(call[0], f"{_operand(call[0])}.clamp(min={limits.least})", f"`{_text(call[0])}` may be 0")


def _guard_exponential(node: ast.expr, limits: _Limits) -> Iterator[LineRewrite]:
    call = call_of(node, {}, "exp")
    for limit in limits.exponents if call is not None else ():
        assert call is not None
        cause = f"`{_text(call[0])}` may be large"
        yield LineRewrite(call[0], f"{_operand(call[0])}.clamp(max={limit})", cause)
        yield LineRewrite(call[0], f"{_operand(call[0])}.clamp(-{limit}, {limit})", cause)


_GUARDS: tuple[Callable[[ast.expr, _Limits], Iterator[LineRewrite]], ...] = (
    _guard_root,
    _guard_divisor,
    _guard_logarithm,
    _guard_exponential,
)
