"""The passes that there are: those that come with the package, and those of users' files."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir
from onnxscript.rewriter.pattern import RewriteRuleClassBase

import ranum_falsify.rewrite.passes  # noqa: F401 - registers them
from ranum_falsify.errors import TransformError
from ranum_falsify.rewrite.checks.comparing import METRICS
from ranum_falsify.rewrite.registry import PassSpec, faults, forget, keep_faults, registered
from ranum_falsify.rewrite.rewrite import AnalysisPass, Rewrite


@dataclass(frozen=True)
class PassCall:
    """A pass as a user asks for it."""

    spec: PassSpec
    text: str

    def make(self) -> AnalysisPass | Rewrite | RewriteRuleClassBase | ir.passes.PassBase:
        """Return a pass that has not run."""
        _, equals, argument = self.text.partition("=")
        make: Callable[..., AnalysisPass | Rewrite | RewriteRuleClassBase | ir.passes.PassBase] = self.spec.make
        return make(argument) if equals else make()


def find_pass(text: str) -> PassCall:
    """Return the pass that a text names: `name`, or `name=argument`.

    Raises:
        TransformError: There is none, it cannot be one, or it takes an argument and has none, or the other way round.
    """
    known = registered()
    name, equals, _ = text.partition("=")
    if name in faults():
        raise faults()[name]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]!r}?" if near else "transform --list shows all"
        raise TransformError(f"there is no pass {name!r}; {meant}")
    spec = known[name]
    _ = spec.guarantee  # told before anything runs
    if bool(equals) != bool(spec.argument):
        example = f"write {name}=ARGUMENT ({spec.argument})" if spec.argument else f"write {name}"
        raise TransformError(
            f"pass {text!r}: {'no argument is given' if spec.argument else 'takes no argument'}; {example}"
        )
    call = PassCall(spec, text)
    if spec.argument:
        call.make()
    return call


def all_passes() -> tuple[PassSpec, ...]:
    """Return all registered passes, in the order of their registration."""
    return tuple(registered().values())


def import_passes(path: Path) -> tuple[PassSpec, ...]:
    """Run a Python file that registers passes or metrics, with all rights of the user; return the passes.

    Where the file fails, none of its passes stays; a class that is no pass, or promises nothing, blocks itself alone.

    Raises:
        TransformError: The file is missing, fails, or registers nothing.
    """
    if not path.is_file():
        raise TransformError(f"{path}: no such file; give the path of a Python file that registers passes")
    before, metrics = {*registered(), *faults()}, {*METRICS}
    name = f"_ranum_falsify_passes_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TransformError(f"{path}: not a Python file; give the path of one that registers passes")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with keep_faults():
            spec.loader.exec_module(module)
    except Exception as error:
        forget({*registered(), *faults()} - before)
        raise TransformError(
            f"{path}: {_place(error, path)}{type(error).__name__}: {error}; repair the file"
        ) from error
    found = tuple(spec for name, spec in registered().items() if name not in before)
    if not ({*registered(), *faults()} - before or METRICS.keys() - metrics):
        raise TransformError(f'{path}: registers no pass; put @register("NAME") above a class')
    return found


def _place(error: Exception, path: Path) -> str:
    """Return the line of a file at which an error arose, as the start of a message."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == path.resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f"line {line}: "
