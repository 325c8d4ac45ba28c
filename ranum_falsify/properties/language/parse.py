"""Property files to DNNP expressions, with parameters applied.

A DNNP file is Python that DNNV transforms before running it: names without a value become symbols, comparisons and
calls become expressions.  Running a property file therefore runs its author's code.  The transformation is DNNV's; this
module runs it so that every failure is one line that names the file and the line.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import warnings
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

from dnnv.properties import Expression, expressions
from dnnv.properties.parser.dnnp.parser import Py2PropertyTransformer, SymbolFactory
from dnnv.properties.parser.errors import ParserError

from ranum_falsify.errors import PropertyError, RanumFalsifyError
from ranum_falsify.network.resource_limits import OversizeError, content_of
from ranum_falsify.process.starting import pause_collector
from ranum_falsify.properties.language import vnnlib
from ranum_falsify.properties.language.walk import subexpressions

_RESULT = "phi"
_LARGEST = 64 * 2**20  # bytes of a property; VNN-LIB files over images of 224x224 pixels have 10 MB


def is_vnnlib(path: Path) -> bool:
    """Tell whether a file is VNN-LIB by its name."""
    return path.name.removesuffix(".gz").endswith(".vnnlib")


def parse(path: str | Path, parameters: Mapping[str, str] | None = None, *, vnnlib: bool | None = None) -> Expression:
    """Read a property file.

    Args:
        path: A DNNP file, or a VNN-LIB file (`.vnnlib`, `.vnnlib.gz`).
        parameters: Values of the property's `Parameter`s as text, by name or the beginning of one; each is converted by
            its type.
        vnnlib: Whether it is VNN-LIB; by its suffix if None.

    Raises:
        PropertyError: It cannot be read, is not a property, fails while running, or a parameter is unknown, missing or
            of the wrong type.  The message is one line with file and line number.
    """
    path = Path(path)
    text = _read(path)
    if vnnlib is None:
        vnnlib = is_vnnlib(path)
    return parse_text(text, path, parameters, vnnlib=vnnlib)


def parse_text(
    text: str, path: Path, parameters: Mapping[str, str] | None = None, *, vnnlib: bool = False
) -> Expression:
    """Parse the text of a property; messages call it `path`.

    Raises:
        PropertyError: As `parse` does.
    """
    if not vnnlib:
        return parse_dnnp(text, path, parameters)
    if parameters:
        raise PropertyError(f"{path}: a VNN-LIB file has no parameters, got {', '.join(sorted(parameters))}")
    return _vnnlib(text, path)


def parameters_of(phi: Expression) -> dict[str, Any]:
    """Return the values of the parameters that a property depends on, as given or by default."""
    found = {e.name: e.value for e in subexpressions(phi) if isinstance(e, expressions.Parameter)}
    return dict(sorted(found.items()))


def _read(path: Path) -> str:
    try:
        data = content_of(path, most=_LARGEST)
    except FileNotFoundError as error:
        raise PropertyError(f"{path}: no such property file; check the path") from error
    except IsADirectoryError as error:
        raise PropertyError(f"{path}: is a directory; give a property file in it") from error
    except OversizeError as error:
        raise PropertyError(f"{path}: {error}, larger than any property needs; give a smaller one") from error
    except (OSError, EOFError, ValueError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise PropertyError(f"{path}: cannot be read: {reason}") from error
    if {".onnx", ".onnx.gz"} & {path.suffix.lower(), "".join(path.suffixes[-2:]).lower()}:
        raise PropertyError(
            f"{path}: a model, where a property file is expected; give one, as properties/no_invalid_input_box.py, "
            "and the model as --network NAME MODEL; ranum-falsify check MODEL --print-property PATH writes one"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PropertyError(f"{path}:{line}: not UTF-8 text (byte {error.start}); is it a property file?") from error


def _vnnlib(text: str, path: Path) -> Expression:
    try:
        with pause_collector():
            return vnnlib.parse_text(text)
    except vnnlib.SyntaxProblem as error:
        line = f":{error.line}" if error.line else ""
        raise PropertyError(f"{path}{line}: {error.reason}") from error


# ------------------------------------------------------------------------------------------------------------- DNNP


def parse_dnnp(text: str, path: Path, parameters: Mapping[str, str] | None = None) -> Expression:
    """Parse the text of a DNNP file; `path` is for messages and for `__path__` in the property.

    Raises:
        PropertyError: As `parse` does.
    """
    with warnings.catch_warnings():
        # A warning would be a second line, about code that was transformed beyond recognition.
        warnings.simplefilter("ignore")
        code = _compile(text, path)
        with expressions.Context() as context:
            phi = _run(code, path)
    declared = {
        parameter.name: parameter for parameter in context._instance_cache.get(expressions.Parameter, {}).values()
    }
    used = {e.name for e in subexpressions(phi) if isinstance(e, expressions.Parameter)}
    _apply(declared, used, parameters or {}, path)
    return phi


def _compile(text: str, path: Path) -> CodeType:
    def failure(line: int | None, reason: str) -> PropertyError:
        return PropertyError(f"{path}:{line or 1}: {reason}")

    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise failure(error.lineno, f"syntax error: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise failure(1, f"not a property: {_one_line(error)}") from error
    if not module.body:
        raise failure(1, "no property; the last statement must be one, such as Forall(x, Implies(...))")
    for node in module.body[:-1]:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not isinstance(node, ast.Assign | ast.Import | ast.ImportFrom) and not is_text:
            raise failure(
                node.lineno, "not DNNP: only imports and assignments may precede the property, which comes last"
            )
    last = module.body[-1]
    if not isinstance(last, ast.Expr):
        raise failure(last.lineno, "not DNNP: the last statement must be the property, such as Forall(x, ...)")
    try:
        transformed = Py2PropertyTransformer().visit(module)
        target = ast.Name(_RESULT, ast.Store())
        transformed.body[-1] = ast.Assign([target], transformed.body[-1].value)
        ast.copy_location(transformed.body[-1], last)
        return compile(ast.fix_missing_locations(transformed), str(path), "exec")
    except Exception as error:
        line = _line_in(str(error)) or getattr(error, "lineno", None) or last.lineno
        raise failure(line, f"not DNNP: {_one_line(error)}") from error


def _line_in(message: str) -> int | None:
    """Return the line that DNNV's parser names at the start of its messages."""
    head = message.removeprefix("line ").split(",")[0].split(":")[0]
    return int(head) if message.startswith("line ") and head.isdigit() else None


def _run(code: CodeType, path: Path) -> Expression:
    names = SymbolFactory()
    names.update(vars(builtins))
    names.update({name: value for name, value in vars(expressions).items() if not name.startswith("__")})
    names["__path__"] = path
    try:
        exec(code, names)
    except (Exception, SystemExit) as error:
        line = _line_of(error.__traceback__, str(path)) or getattr(error, "lineno", None) or 1
        raise PropertyError(f"{path}:{line}: {_explain(error)}") from error
    phi = names[_RESULT]
    if not isinstance(phi, expressions.LogicalExpression) or isinstance(phi, expressions.Constant):
        raise PropertyError(f"{path}: the last statement is not a property, such as Forall(x, Implies(...))")
    return phi


def _line_of(traceback: TracebackType | None, filename: str) -> int | None:
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename and traceback.tb_lineno:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _explain(error: BaseException) -> str:
    if isinstance(error, RanumFalsifyError | ParserError):
        return _one_line(error).removeprefix("property: ")
    message = f"{type(error).__name__}: {_one_line(error)}"
    if "truth value of a non-concrete expression" in message:
        message += "; write And(a, b), Or(a, b), Not(a) instead of `and`, `or`, `not`"
    return message


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return (text if len(text) <= 200 else f"{text[:197]}...") or type(error).__name__


# ------------------------------------------------------------------------------------------------------- parameters


def _apply(declared: Mapping[str, Any], used: set[str], given: Mapping[str, str], path: Path) -> None:
    values: dict[str, str] = {}
    for name in sorted(given):
        whole = _complete_name(name, declared, path)
        if whole in values:
            raise PropertyError(f"{path}: parameter {whole!r} is given twice, once abbreviated; give it once")
        values[whole] = given[name]
    for name, parameter in sorted(declared.items()):
        if name in values:
            parameter.concretize(_convert(parameter, values[name], path))
        elif name in used:
            parameter.concretize(_default(parameter, path))


def _complete_name(name: str, declared: Collection[str], path: Path) -> str:
    """Return the parameter meant by a name or the beginning of one, as DNNV reads its command line."""
    if name in declared:
        return name
    longer = sorted(other for other in declared if other.startswith(name))
    if len(longer) == 1:
        return longer[0]
    if longer:
        raise PropertyError(f"{path}: parameter {name!r} is ambiguous; it could be {', '.join(longer)}")
    known = ", ".join(sorted(declared)) or "none"
    near = difflib.get_close_matches(name, declared, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"its parameters: {known}"
    raise PropertyError(f"{path}: the property has no parameter {name!r}; {hint}")


def _default(parameter: Any, path: Path) -> Any:
    default = parameter.default
    if isinstance(default, Expression):
        try:
            value = default.value if default.is_concrete else None
        except Exception as error:  # DNNV evaluates what the property's author wrote
            raise PropertyError(f"{path}: the default of parameter {parameter.name!r}: {_explain(error)}") from error
        if value is None:
            raise PropertyError(f"{path}: the default of parameter {parameter.name!r} is not a constant")
        default = value
    if default is None:
        raise PropertyError(f"{path}: parameter {parameter.name!r} has no value; give --prop.{parameter.name}=VALUE")
    return default


def _convert(parameter: Any, text: str, path: Path) -> Any:
    convert: Callable[[str], Any] = _boolean if parameter.type is bool else parameter.type
    try:
        return convert(text)
    except Exception as error:
        kind = getattr(parameter.type, "__name__", str(parameter.type))
        raise PropertyError(f"{path}: parameter {parameter.name!r} takes {kind}, got {text!r}") from error


def _boolean(text: str) -> bool:
    """`bool("False")` is true, so booleans are read by name."""
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    return values[text.lower()]
