"""The pytest file of a PyTorch module that fails: it calls the module on inputs that made NaN or infinity."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from ranum_falsify.api.checking import check
from ranum_falsify.api.eager import compute
from ranum_falsify.api.exporting import make_step
from ranum_falsify.api.result import OperatorReport, Result
from ranum_falsify.api.tracing import TrainingStep
from ranum_falsify.errors import ModuleError
from ranum_falsify.escaping import escape
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.results.places import make_safe_name, unique_names
from ranum_falsify.saving import Content, make_folder, save_together
from ranum_falsify.verify.search.result import KIND_NAMES
from ranum_falsify.witness.pytest_file import MODULE_NAME, write_module_file


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleTests:
    """Tests of a module, red until it is mended.

    Attributes:
        result: What `check` says of the module.
        tested: By names of their tests, the operators that fail by themselves, and show it in an output or a gradient;
            the first of each line.
        untested: Those that fail without showing it, each with why.
    """

    result: Result
    tested: Mapping[str, OperatorReport]
    untested: tuple[str, ...]
    _step: TrainingStep = field(repr=False)
    _gradient: bool = field(repr=False)

    def write(self, folder: str | Path) -> Path | None:
        """Write the tests: a pytest file that needs only PyTorch, the module, and the inputs of each test.

        Args:
            folder: Where they go; made where its parent exists.

        Returns:
            The pytest file; None where there are no tests.

        Raises:
            ModuleError: Other programs cannot load the module, as one whose class is defined in a program's main file;
                then none is written.
            SaveError: They cannot be written; then none is.
        """
        if not self.tested:
            return None
        module, place = self._step.module, make_folder(folder)
        files: dict[str, Content] = {
            f"{name}.pt": partial(torch.save, self._case(_feeds(one))) for name, one in self.tested.items()
        }
        test = f"test_{make_safe_name(type(module).__name__).lower()}.py"
        files |= {f"{MODULE_NAME}.pt": partial(_save_module, module), test: self._pytest_file().encode()}
        save_together({place / name: content for name, content in files.items()})
        return place / test

    def _case(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        step = self._step
        inputs = {name: to_torch(feeds[name]) if name in feeds else x for name, x in step.arguments.tensors.items()}
        wanted = step.leaves if self._gradient else set()
        args, kwargs = step.arguments.rebuild(
            [x.detach().clone().requires_grad_(name in wanted) for name, x in inputs.items()]
        )
        weights = {name: to_torch(x) for name, x in feeds.items() if name not in inputs}
        return {"args": args, "kwargs": kwargs, "weights": weights}

    def _pytest_file(self) -> str:
        cases = {name: _describe(one) for name, one in self.tested.items()}
        wrt = sorted(self._step.trained) if self._gradient else None
        return write_module_file(type(self._step.module), cases, wrt=wrt, autocast=self._step.autocast)

    def __str__(self) -> str:
        return "\n".join(map(escape, self._lines()))

    def _lines(self) -> Iterator[str]:
        yield f"{self.result.verdict}: {len(self.tested)} {'test' if len(self.tested) == 1 else 'tests'}"
        yield from (f"{name}: {_describe(one)}" for name, one in self.tested.items())
        yield from (f"no test: {text}" for text in self.untested)


def confirm_module(
    module: torch.nn.Module, /, args: Any = None, kwargs: Mapping[str, Any] | None = None, **options: Any
) -> ModuleTests:
    """Make a test for each line of a module that fails by itself.

    Args and errors are those of `check`.
    """
    result = check(module, args, kwargs, **{**options, "mend": 0.0})
    gradient = bool(options.get("gradient"))
    step = make_step(module, args, kwargs, options.get("wrt"), options.get("autocast"))
    causes: dict[object, OperatorReport] = {}
    for one in result.operators:
        if one.verdict == "violated" and not one.after:
            causes.setdefault(_place(one), one)
    tested: list[OperatorReport] = []
    untested = list[str]()
    for operator in causes.values():
        if operator.oracle == "module" and _shows(step, _feeds(operator), gradient):
            tested.append(operator)
        else:
            untested.append(f"{_describe(operator)}; no output and no gradient of the module shows it")
    names = unique_names((operator.node for operator in tested), {MODULE_NAME})
    named = dict(zip(names, tested, strict=True))
    return ModuleTests(result=result, tested=named, untested=tuple(untested), _step=step, _gradient=gradient)


def _place(operator: OperatorReport) -> object:
    source = operator.source
    return (source.file, source.line) if source is not None and source.line else operator.node


def _feeds(operator: OperatorReport) -> Mapping[str, np.ndarray]:
    found = operator.counterexample
    return {} if found is None else found.feeds


def _shows(step: TrainingStep, feeds: Mapping[str, np.ndarray], gradient: bool) -> bool:
    """Tell whether a module stops on inputs, or an output or a gradient is not finite, as the test sees it."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return not all(bool(y.isfinite().all()) for y in compute(step, feeds, gradient=gradient))
    except Exception:  # the module is the user's own
        return True


def _describe(operator: OperatorReport) -> str:
    place = "" if operator.source is None else f"{operator.source}: "
    return f"{place}{operator.op_type} gives {KIND_NAMES[operator.kind] if operator.kind else 'an invalid number'}"


def _save_module(module: torch.nn.Module, stream: BinaryIO) -> None:
    for kind in {type(part) for part in module.modules()}:
        if kind.__module__ == "__main__":  # pickle would take it from another main file
            raise ModuleError(_unsaved(module, f"{kind.__name__} is defined in the main file of a program"))
    try:
        torch.save(module, stream)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ModuleError(_unsaved(module, str(error).partition("\n")[0])) from error


def _unsaved(module: torch.nn.Module, reason: str) -> str:
    return (
        f"{type(module).__name__}: tests cannot load it ({reason}); define what it consists of at the top of files that"
        " tests can import"
    )
