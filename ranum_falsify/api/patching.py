"""Functions of a module in another text: found by a line of theirs, and run in its place for a while."""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import linecache
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch

from ranum_falsify.network.source import Source


@dataclass(frozen=True)
class Written:
    """A function, and the lines that it is written in.

    Attributes:
        function: The function.
        first: Number of the first line in its file.
        lines: The lines, as the file has them.
    """

    function: FunctionType
    first: int
    lines: tuple[str, ...]

    @property
    def tree(self) -> ast.FunctionDef:
        """Its syntax tree, with the numbers of lines and columns of the lines without their common indentation.

        Raises:
            SyntaxError: These lines are no function by themselves.
        """
        found = ast.parse(textwrap.dedent("".join(self.lines))).body[0]
        if not isinstance(found, ast.FunctionDef):
            raise SyntaxError("no function")
        return found

    def statement_at(self, number: int) -> ast.stmt | None:
        """Return the innermost statement that spans a line of the file."""
        line, found = number - self.first + 1, None
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
                found = node if not isinstance(node, ast.FunctionDef) else found
        return found

    def names_before(self, statement: ast.stmt) -> dict[str, ast.expr]:
        """Return what the local names stand for that are assigned once, above a statement, and not changed in place."""
        changed = self._names_changed()
        counts: dict[str, int] = {}
        values: dict[str, ast.expr] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                counts[node.id] = counts.get(node.id, 0) + 1
            if isinstance(node, ast.Assign) and node.lineno < statement.lineno and len(node.targets) == 1:
                target = node.targets[0]
                if isinstance(target, ast.Name):
                    values[target.id] = node.value
        arguments = {arg.arg for arg in self.tree.args.args}

        def stays(value: ast.expr) -> bool:
            used = _names_in(value)
            once = all(counts.get(name, 0) <= (0 if name in arguments else 1) for name in used)
            return once and changed.isdisjoint(used)

        return {name: v for name, v in values.items() if counts[name] == 1 and name not in changed and stays(v)}

    def _names_changed(self) -> set[str]:
        """Return the names of what is changed in place, and of what that may be a view of."""
        changed = {name for node in ast.walk(self.tree) if (name := _name_changed(node)) is not None}
        assigned = [node for node in ast.walk(self.tree) if isinstance(node, ast.Assign)]
        waiting = list(changed)
        while waiting:
            name = waiting.pop()
            values = (one.value for one in assigned if any(name in _names_in(target) for target in one.targets))
            new = {used for value in values for used in _names_in(value)} - changed
            changed |= new
            waiting += new
        return changed

    def functions_called(self) -> dict[str, Any]:
        """Return what it calls by a plain name, but for local names."""
        calls = (node.func for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        named = {node.id for node in calls if isinstance(node, ast.Name)}
        known = {**vars(builtins), **self.function.__globals__}
        return {name: known[name] for name in named if name in known}

    def statements_from(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return a statement, and those of the function that come after it."""
        return [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef) and node.lineno >= statement.lineno
        ]

    def values_read(self, statement: ast.stmt) -> list[ast.expr]:
        """Return what was assigned, above a statement, to the names that it reads."""
        used = _names_in(statement)
        above = [node for node in ast.walk(self.tree) if isinstance(node, ast.Assign)]
        return [
            node.value
            for node in above
            if node.lineno < statement.lineno
            and any(isinstance(target, ast.Name) and target.id in used for target in node.targets)
        ]

    def replaced(self, node: ast.expr, text: str) -> Written:
        """Return the function with another text for an expression of one line or several."""
        indent = len(self.lines[0]) - len(self.lines[0].lstrip())
        start, end = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        margin = [len(line) - len(line.lstrip()) if not line.strip() else indent for line in self.lines]
        head = self.lines[start].encode()[: node.col_offset + margin[start]].decode()
        tail = self.lines[end].encode()[(node.end_col_offset or 0) + margin[end] :].decode()
        found = self._with_line(start, end, head + text + tail)
        # No more parentheses than it takes.
        texts = [text[1:-1], text] if text.startswith("(") else [text]
        ends = [(head[:-1], tail[1:])] if head.endswith("(") and tail.startswith(")") else []
        plainer = (
            self._with_line(start, end, before + one + after)
            for one in texts
            for before, after in [*ends, (head, tail)]
        )
        return next((one for one in plainer if one.is_like(found)), found)

    def _with_line(self, start: int, end: int, line: str) -> Written:
        # Lines below keep their numbers.
        return Written(
            self.function, self.first, (*self.lines[:start], line, *["\n"] * (end - start), *self.lines[end + 1 :])
        )

    def is_like(self, other: Written) -> bool:
        """Tell whether another text has the same syntax tree."""
        try:
            return ast.dump(self.tree) == ast.dump(other.tree)
        except SyntaxError:
            return False

    def compile(self) -> CodeType:
        """Return the code of these lines, with their numbers.

        Raises:
            SyntaxError: They are no function.
            ValueError: The function holds variables of another one.
        """
        if self.function.__code__.co_freevars not in ((), ("__class__",)):
            raise ValueError("the function holds variables of another one")
        tree = ast.increment_lineno(self.tree, self.first - 1)
        tree.decorator_list = []
        body: ast.stmt = tree
        if self.function.__code__.co_freevars:  # super() needs a class around it
            body = ast.ClassDef(name="Around", bases=[], keywords=[], body=[tree], decorator_list=[])
            ast.copy_location(body, tree)
        whole = compile(ast.fix_missing_locations(ast.Module([body], [])), self.function.__code__.co_filename, "exec")
        return next(code for code in _codes(whole) if code.co_name == self.function.__name__)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Make the function run these lines."""
        usual = self.function.__code__
        self.function.__code__ = self.compile()
        try:
            yield
        finally:
            self.function.__code__ = usual


def _names_in(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _name_changed(node: ast.AST) -> str | None:
    """Return the name of what a node changes in place, as `x` of `x[0] = 1`, `x.mul_(2)` and `x += 1`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
        changed: ast.AST = node.func.value
    elif isinstance(node, ast.AugAssign):
        changed = node.target
    elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
        changed = node.value
    else:
        return None
    while isinstance(changed, ast.Attribute | ast.Subscript | ast.Call):
        changed = changed.func if isinstance(changed, ast.Call) else changed.value
    return changed.id if isinstance(changed, ast.Name) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def find_written(module: torch.nn.Module, source: Source) -> Written | None:
    """Return the function of a module's classes, or of the files that these are in, that a line belongs to."""
    for function in _functions(module):
        code = function.__code__
        if code.co_filename != source.file or code.co_name == "<lambda>":
            continue
        lines = inspect.getblock(linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :])
        if code.co_firstlineno <= (source.line or 0) < code.co_firstlineno + len(lines):
            return Written(function, code.co_firstlineno, tuple(lines))
    return None


def _functions(module: torch.nn.Module) -> Iterator[FunctionType]:
    for kind in {kind for part in module.modules() for kind in type(part).__mro__}:
        yield from (value for value in vars(kind).values() if isinstance(value, FunctionType))
    names: Mapping[str, Any] = getattr(type(module).forward, "__globals__", {})
    yield from (value for value in names.values() if isinstance(value, FunctionType))
