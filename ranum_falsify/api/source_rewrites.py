"""Stable forms of expressions of Python: which text to put in the place of an expression that can fail."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

Names = Mapping[str, ast.expr]
"""What local names stand for, of those that are assigned once; and functions of the user's own, by any expression."""


@dataclass(frozen=True)
class LineRewrite:
    """Another text for an expression.

    Attributes:
        node: The expression, as the source has it.
        text: What to write in its place.
        cause: Why the expression fails, in its own words.
        exact: Whether it is the same function of real numbers.
    """

    node: ast.expr
    text: str
    cause: str
    exact: bool = False


@dataclass(frozen=True)
class Application:
    """An operator of Python, or a function, and what it is applied to.

    Attributes:
        name: The function, without the underscore of what works in place; of operators, `torch`'s name for them.
        operands: Its arguments in their order; of a method, what it is called on comes first.
        keywords: Its arguments by name.
        in_place: Whether it changes the first operand.
    """

    name: str
    operands: list[ast.expr]
    keywords: dict[str, ast.expr] = field(default_factory=dict)
    in_place: bool = False


_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Div: "div",
    ast.MatMult: "matmul",
    ast.Mult: "mul",
    ast.Pow: "pow",
    ast.Sub: "sub",
}


def read_applied(node: ast.AST, names: Names = {}) -> Application | None:  # noqa: B006 - never changed
    """Return what an expression applies: `torch.div(a, b)`, `a.div(b)`, `a / b` and `a /= b` alike; None if nothing."""
    node = names.get(node.id, node) if isinstance(node, ast.Name) else node
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return Application(_OPERATORS[type(node.op)], [node.left, node.right])
    if isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS:
        return Application(_OPERATORS[type(node.op)], [node.target, node.value], in_place=True)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return Application("neg", [node.operand])
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    if isinstance(function, ast.Name) and function.id in names:
        return None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    is_method = isinstance(function, ast.Attribute) and not _is_module(function.value)
    operands = [function.value, *node.args] if is_method and isinstance(function, ast.Attribute) else list(node.args)
    keywords = {word.arg: word.value for word in node.keywords if word.arg}
    base = name.removesuffix("_")
    return Application(_ALIASES.get(base, base), operands, keywords, in_place=base != name) if operands else None


_ALIASES = {
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arctanh": "atanh",
    "divide": "div",
    "true_divide": "div",
    "vector_norm": "norm",
}


def _is_module(node: ast.expr) -> bool:
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in ("torch", "F", "nn", "functional", "math", "np")


def list_forms(nodes: Sequence[ast.AST], names: Names) -> Iterator[LineRewrite]:
    """Yield stable forms of expressions."""
    for node in nodes:
        if isinstance(node, ast.expr):
            for rule, exact in _FORMS.items():
                found = (LineRewrite(node, text, f"`{of}` may {does}", exact) for text, of, does in rule(node, names))
                yield from found


def list_guards(nodes: Sequence[ast.AST], op_type: str, dtype: torch.dtype) -> Iterator[LineRewrite]:
    """Yield texts that keep the operands of expressions where these are valid."""
    limits = _LIMITS.get(dtype, _LIMITS[torch.float32])
    read = [(node, applied) for node in nodes if (applied := read_applied(node)) is not None]
    for node, applied in read:
        yield from _finite_mask(applied)
        yield from _deviation(node, applied, limits)
    # What fails by the name of its function comes first.
    for _, applied in sorted(read, key=lambda one: one[1].name != op_type.lower()):
        yield from _guard(applied, limits)


def _text(node: ast.expr) -> str:
    return re.sub(r"e-0(\d)\b", r"e-\1", ast.unparse(node))


def _operand(node: ast.expr) -> str:
    """Return an expression as one whose attributes are read."""
    text = _text(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({text})"


def _is_number(node: ast.expr, value: float) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def _dim(applied: Application, *others: str) -> str | None:
    """Return the dimension of an operator over one; None if it has none, or other arguments than are named."""
    if len(applied.operands) > 2 or not {*applied.keywords} <= {"dim", *others}:
        return None
    found = applied.keywords.get("dim", applied.operands[1] if len(applied.operands) > 1 else None)
    return None if found is None else _text(found)


def _keeps(applied: Application) -> bool:
    """Tell whether the dimension stays, of size 1."""
    kept = applied.keywords.get("keepdim")
    return isinstance(kept, ast.Constant) and kept.value is True


# forms that are the same numbers ----------------------------------------------------------------------------------

_Found = Iterator[tuple[str, str, str]]
"""What to write, what fails, and what it may do."""


def _applied(node: ast.AST, names: Names, name: str, count: int = 1, *keywords: str) -> Application | None:
    """Return what a function is applied to, if it has so many operands, and no other arguments than are named."""
    found = read_applied(node, names)
    if found is None or found.name != name or found.in_place or len(found.operands) != count:
        return None
    return found if {*found.keywords} <= {*keywords} else None


def _operand_of(node: ast.AST, names: Names, name: str) -> ast.expr | None:
    found = _applied(node, names, name)
    return None if found is None else found.operands[0]


def _one_more(node: ast.expr, names: Names) -> ast.expr | None:
    """Return x of `1 + exp(x)`, in either order."""
    found = _applied(node, names, "add", 2)
    if found is None:
        return None
    left, right = found.operands
    other = right if _is_number(left, 1) else left if _is_number(right, 1) else None
    return None if other is None else _operand_of(other, names, "exp")


def _negated(node: ast.expr) -> str:
    found = read_applied(node)
    return _text(found.operands[0]) if found is not None and found.name == "neg" else f"-{_operand(node)}"


def _over_dim(node: ast.AST, names: Names, name: str, *keywords: str) -> tuple[ast.expr, str] | None:
    """Return the operand of a function over one dimension, and the dimension."""
    found = read_applied(node, names)
    dim = None if found is None or found.name != name or found.in_place else _dim(found, *keywords)
    return None if found is None or dim is None else (found.operands[0], dim)


def _logarithm(node: ast.AST, names: Names) -> _Found:
    operand, more = _operand_of(node, {}, "log"), _operand_of(node, {}, "log1p")
    if more is not None and (exponent := _operand_of(more, names, "exp")) is not None:
        yield f"torch.nn.functional.softplus({_text(exponent)})", _text(more), "overflow"
    if operand is None:
        return
    if (exponent := _one_more(operand, names)) is not None:
        yield f"torch.nn.functional.softplus({_text(exponent)})", _text(operand), "overflow"
    if (share := _over_dim(operand, names, "softmax")) is not None:
        yield f"torch.log_softmax({_text(share[0])}, {share[1]})", _text(operand), "be 0"
    if (x := _operand_of(operand, names, "sigmoid")) is not None:
        yield f"torch.nn.functional.logsigmoid({_text(x)})", _text(operand), "be 0"
    rest = _applied(operand, names, "sub", 2)
    if rest is not None and _is_number(rest.operands[0], 1):
        if (x := _operand_of(rest.operands[1], names, "sigmoid")) is not None:
            yield f"torch.nn.functional.logsigmoid({_negated(x)})", _text(operand), "be 0"
    if (total := _over_dim(operand, names, "sum", "keepdim")) is not None:
        summed, exponent = read_applied(operand, names), _operand_of(total[0], names, "exp")
        if exponent is not None and summed is not None and _keeps(summed) == ("keepdim" in summed.keywords):
            keep = ", keepdim=True" if _keeps(summed) else ""
            yield f"torch.logsumexp({_text(exponent)}, {total[1]}{keep})", _text(operand), "overflow"
    if (x := _operand_of(operand, names, "cosh")) is not None:
        yield f"(torch.logaddexp({_text(x)}, {_negated(x)}) - 0.6931471805599453)", _text(operand), "overflow"


def _quotient(node: ast.AST, names: Names) -> _Found:
    applied = _applied(node, {}, "div", 2)
    if applied is None:
        return
    top, bottom = applied.operands
    exponent, below = _operand_of(top, names, "exp"), read_applied(bottom, names)
    total = _over_dim(bottom, names, "sum", "keepdim")
    if exponent is not None and total is not None and below is not None and _keeps(below):
        summed = _operand_of(total[0], names, "exp")
        if summed is not None and _text(summed) == _text(exponent):
            yield f"torch.softmax({_text(exponent)}, {total[1]})", _text(top), "overflow"
    if (other := _one_more(bottom, names)) is not None:
        if exponent is not None and _text(exponent) == _text(other):
            yield f"torch.sigmoid({_text(other)})", _text(top), "overflow"
        if _is_number(top, 1):
            yield f"torch.sigmoid({_negated(other)})", _text(bottom), "overflow"


def _direction(node: ast.AST, names: Names) -> _Found:
    """A norm of at least 1e-12, so that it is not quite the same."""
    applied = _applied(node, {}, "div", 2)
    norm = None if applied is None else _applied(applied.operands[1], names, "norm", 1, "dim", "keepdim")
    if applied is None or norm is None or not _keeps(norm) or (dim := _dim(norm, "keepdim")) is None:
        return
    x = _text(applied.operands[0])
    if _text(norm.operands[0]) == x:
        yield f"torch.nn.functional.normalize({x}, dim={dim})", _text(applied.operands[1]), "be 0"


def _soft_margin(node: ast.AST, names: Names) -> _Found:
    applied = _applied(node, names, "soft_margin_loss", 2)
    if applied is not None:
        x, target = applied.operands
        yield (
            f"torch.nn.functional.softplus(-{_operand(target)} * {_operand(x)}).mean()",
            "exp(-target * input)",
            ("overflow"),
        )


def _ignored(node: ast.AST, names: Names) -> _Found:
    for name in ("cross_entropy", "nll_loss"):
        applied = _applied(node, names, name, 2, "ignore_index", "label_smoothing")
        if applied is not None and "ignore_index" in applied.keywords:
            x, target = map(_text, applied.operands)
            options = "".join(f", {option}={_text(value)}" for option, value in applied.keywords.items())
            count = f"({target} != {_operand(applied.keywords['ignore_index'])}).sum()"
            call = f"torch.nn.functional.{name}({x}, {target}{options}, reduction='sum')"
            yield f"({call} / {count}.clamp(min=1))", count, "be 0"


_FORMS: dict[Callable[[ast.AST, Names], _Found], bool] = {
    _logarithm: True,
    _quotient: True,
    _soft_margin: True,
    _ignored: True,
    _direction: False,
}
"""Rules, and whether what they write is the same function of real numbers."""

_INFINITIES = ("float('-inf')", "-torch.inf", "-math.inf", "-np.inf", "-float('inf')")


def _finite_mask(applied: Application) -> Iterator[LineRewrite]:
    if applied.name == "masked_fill" and len(applied.operands) == 3 and _text(applied.operands[2]) in _INFINITIES:
        least = f"torch.finfo({_operand(applied.operands[0])}.dtype).min"
        yield LineRewrite(applied.operands[2], least, "a mask may hide all of a row")


# guards -----------------------------------------------------------------------------------------------------------


def _deviation(node: ast.AST, applied: Application, limits: _Limits) -> Iterator[LineRewrite]:
    if applied.name == "std" and isinstance(node, ast.Call):
        operand, *others = applied.operands
        words = [*map(_text, others), *(f"{name}={_text(value)}" for name, value in applied.keywords.items())]
        variance = f"{_operand(operand)}.var({', '.join(words)})"
        yield LineRewrite(node, f"({variance} + {limits.root}).sqrt()", f"`{_text(node)}` may be 0")


@dataclass(frozen=True)
class _Limits:
    """Numbers that keep operands valid in a type.

    Attributes:
        least: Below this, a divisor or a logarithm's operand is too near to 0.
        root: Likewise of a root's operand.
        step: What keeps an operand off 1 and -1.
        exponents: Limits of an exponential's operand, the widest first.
    """

    least: str
    root: str
    step: str
    exponents: tuple[str, ...]


_LIMITS = {
    torch.float64: _Limits("1e-12", "1e-24", "1e-12", ("700.0", "300.0", "20.0", "5.0")),
    torch.float32: _Limits("1e-8", "1e-12", "1e-6", ("80.0", "20.0", "5.0")),
    torch.bfloat16: _Limits("1e-8", "1e-12", "1e-2", ("80.0", "20.0", "5.0")),
    torch.float16: _Limits("1e-4", "1e-4", "1e-3", ("10.0", "5.0")),
}

_Guards = Callable[[str, str, _Limits], Iterator[str]]


def _nonzero(text: str, operand: str, limits: _Limits) -> Iterator[str]:
    yield f"({text} + {limits.least})"
    yield f"{operand}.clamp(min={limits.least})"
    yield f"torch.where({operand}.abs() < {limits.least}, {limits.least}, {text})"


def _positive(text: str, operand: str, limits: _Limits) -> Iterator[str]:
    yield f"{operand}.clamp(min={limits.least})"
    yield f"({text} + {limits.least})"


def _under_root(text: str, operand: str, limits: _Limits) -> Iterator[str]:
    yield f"({text} + {limits.root})"
    yield f"{operand}.clamp(min=0)"
    yield f"{operand}.clamp(min={limits.root})"


def _small(text: str, operand: str, limits: _Limits) -> Iterator[str]:
    for limit in limits.exponents:
        yield f"{operand}.clamp(max={limit})"
        yield f"{operand}.clamp(-{limit}, {limit})"


def _within(low: str, high: str) -> _Guards:
    """Return a guard that keeps an operand between two numbers, or a step off them; "" stands for no upper one."""

    def guard(text: str, operand: str, limits: _Limits) -> Iterator[str]:
        above = limits.step if low == "0" else f"{low} + {limits.step}"
        if high:
            yield f"{operand}.clamp({low}, {high})"
            yield f"{operand}.clamp({above}, {high} - {limits.step})"
        else:
            yield f"{operand}.clamp(min={low})"
            yield f"{operand}.clamp(min={above})"

    return guard


_GUARDS: dict[str, tuple[int, str, _Guards]] = {
    "acos": (0, "leave [-1, 1]", _within("-1", "1")),
    "acosh": (0, "be below 1", _within("1", "")),
    "asin": (0, "leave [-1, 1]", _within("-1", "1")),
    "atanh": (0, "be 1 or -1", _within("-1", "1")),
    "div": (1, "be 0", _nonzero),
    "logit": (0, "be 0 or 1", _within("0", "1")),
    "log1p": (0, "be -1", _within("-1", "")),
    "reciprocal": (0, "be 0", _nonzero),
    "rsqrt": (0, "be 0", _under_root),
    "sqrt": (0, "be 0 or negative", _under_root),
    **dict.fromkeys(("cosh", "exp", "exp2", "expm1", "sinh"), (0, "be large", _small)),
    **dict.fromkeys(("log", "log2", "log10"), (0, "be 0", _positive)),
}
"""Which operand of a function has a limit, what it may be, and other texts for it."""


def _guard(applied: Application, limits: _Limits) -> Iterator[LineRewrite]:
    place, effect, guard = _GUARDS.get(applied.name, (0, "", None))
    if applied.name == "pow" and len(applied.operands) > 1:
        power = applied.operands[1]
        effect, guard = ("be 0", _positive) if _is_negative(power) else ("be negative", _under_root)
    if guard is None or len(applied.operands) <= place or isinstance(applied.operands[place], ast.Constant):
        return
    if applied.in_place and place == 0:
        return  # another tensor would change
    node = applied.operands[place]
    for text in guard(_text(node), _operand(node), limits):
        yield LineRewrite(node, text, f"`{_text(node)}` may {effect}")


def _is_negative(node: ast.expr) -> bool:
    found = read_applied(node)
    return found is not None and found.name == "neg"
