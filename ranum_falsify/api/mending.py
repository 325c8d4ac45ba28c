"""`mend`: the lines of a PyTorch module that can fail, written so that they cannot, and proved."""

from __future__ import annotations

import ast
import contextlib
import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ranum_falsify.api.asking import show_keywords
from ranum_falsify.api.checking import check
from ranum_falsify.api.patching import Written, find_written
from ranum_falsify.api.result import OperatorReport, Result
from ranum_falsify.api.source_rewrites import LineRewrite, list_rewrites
from ranum_falsify.errors import RanumFalsifyError, UsageError
from ranum_falsify.network.source import Source

_PATIENCE = 10.0
"""Seconds for one check of a changed module."""

_MOST = 12
"""How many modules are checked for one line that fails."""


@dataclass(frozen=True, kw_only=True)
class LineChange:
    """A line that was changed.

    Attributes:
        source: The line.
        mended: What to write in its place.
        cause: Why it fails.
        failing: The operators that fail because of it, by their ONNX names: its own first, then those that get what it
            makes.
    """

    source: Source
    mended: str
    cause: str
    failing: tuple[str, ...]

    def __str__(self) -> str:
        more = f"; {len(self.failing) - 1} more fail because of it" if len(self.failing) > 1 else ""
        place = replace(self.source, code="")
        return f"{place}: {self.cause}{more}\n  - {self.source.code}\n  + {self.mended}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Mended:
    """What became of a module.

    Attributes:
        changes: The lines that were changed, in the order in which they fail.
        result: What `check` says of the module with these lines.
        diff: The changes as a unified diff.
    """

    changes: tuple[LineChange, ...]
    result: Result
    diff: str

    @property
    def is_proved(self) -> bool:
        """Whether no operator of the module with these lines fails."""
        return self.result.verdict == "holds"

    def __str__(self) -> str:
        verdict = "proved with these lines" if self.is_proved else f"{self.result.verdict} with these lines"
        return "\n".join([verdict, *map(str, self.changes)])


@show_keywords
def mend(module: torch.nn.Module, args: Any = None, **options: Any) -> Mended:
    """Change the lines of a module that can fail, one after the other, until `check` proves that none does.

    Stable forms come first, such as `torch.log_softmax(x, -1)` for `torch.log(torch.softmax(x, -1))`, then guards. The
    module is not changed.

    Args:
        module: The module.
        args: The positional arguments of an example call, as a tuple.
        **options: What `check` takes.

    Returns:
        The changes; those found so far where not all could be mended.

    Raises:
        UsageError: Nothing fails, so that there is nothing to mend.
        RanumFalsifyError: The module, the box or an option is invalid; one line says what to do.
    """
    result = check(module, args, **options)
    if result.verdict != "violated":
        raise UsageError(f"{type(module).__name__}: {result.verdict}; there is no violation to mend")
    narrow = any(x.dtype is torch.float16 for x in module.parameters())
    # What is neither proved nor violated soon is tried no longer.
    quick = {**options, "timeout": min(options.get("timeout") or _PATIENCE, _PATIENCE)}
    return _Mending(module, lambda: check(module, args, **quick), narrow).run(result)


class _Mending:
    """Changes of one module, each of which leaves fewer operators that fail."""

    def __init__(self, module: torch.nn.Module, ask: Callable[[], Result], narrow: bool) -> None:
        self._module = module
        self._ask = ask
        self._narrow = narrow
        self._written: dict[Any, Written] = {}

    def run(self, result: Result) -> Mended:
        changes: list[LineChange] = []
        while result.verdict == "violated":
            found = next((one for one in self._try(result)), None)
            if found is None:
                break
            change, result = found
            changes.append(change)
        return Mended(changes=tuple(changes), result=result, diff="".join(self._diff()))

    def _try(self, result: Result) -> Iterator[tuple[LineChange, Result]]:
        """Yield a change after which the first operators fail no more, of which a caller takes one."""
        failing = [operator for operator in result.operators if operator.verdict == "violated"]
        for operator in failing:
            source = operator.source
            if source is None or not source.line:
                continue
            written = self._find(source)
            for rewrite in self._rewrites(written, source)[:_MOST] if written is not None else ():
                assert written is not None
                tried = written.replaced(rewrite.node, rewrite.text)
                after = self._check(tried)
                if after is None or not _is_better(result, after):
                    continue
                self._written[written.function] = tried
                yield _describe(source, written, tried, rewrite, failing, after), after

    def _find(self, source: Source) -> Written | None:
        found = find_written(self._module, source)
        return None if found is None else self._written.get(found.function, found)

    def _rewrites(self, written: Written | None, source: Source) -> list[LineRewrite]:
        assert written is not None
        try:
            statement = written.statement_at(source.line or 0)
        except SyntaxError:
            return []
        if statement is None:
            return []
        names = written.names_before(statement)
        # What a line reads may be made wrong above it.
        behind = [node for value in written.values_read(statement) for node in _expressions(value)]
        return list_rewrites([*_expressions(statement), *behind], names, narrow=self._narrow)

    def _check(self, tried: Written) -> Result | None:
        """Return what is said of the module with a function, and those that were changed before; None if it stops."""
        try:
            with contextlib.ExitStack() as stack:
                for written in {**self._written, tried.function: tried}.values():
                    stack.enter_context(written.running())
                return self._ask()
        except (RanumFalsifyError, SyntaxError, ValueError):
            return None

    def _diff(self) -> Iterator[str]:
        for function, written in self._written.items():
            code = function.__code__
            before = find_written(self._module, Source(code.co_filename, code.co_firstlineno))
            path = os.path.relpath(code.co_filename)
            if before is not None:
                yield from difflib.unified_diff(before.lines, written.lines, path, path, n=0)


def _expressions(node: ast.AST) -> list[ast.expr]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.expr) and not isinstance(inner, ast.Constant)]


def _is_better(before: Result, after: Result) -> bool:
    if after.verdict == "holds":
        return True
    counts = [sum(operator.verdict != "proved" for operator in one.operators) for one in (before, after)]
    return bool(after.operators) and counts[1] < counts[0]


def _describe(
    source: Source,
    before: Written,
    after: Written,
    rewrite: LineRewrite,
    failing: Sequence[OperatorReport],
    result: Result,
) -> LineChange:
    still = {operator.node for operator in result.operators if operator.verdict == "violated"}
    place = before.first + rewrite.node.lineno - 1
    code = before.lines[rewrite.node.lineno - 1].strip()
    return LineChange(
        source=replace(source, line=place, code=code, backward=False),
        mended=after.lines[rewrite.node.lineno - 1].strip(),
        cause=rewrite.cause,
        failing=tuple(operator.node for operator in failing if operator.node not in still),
    )
