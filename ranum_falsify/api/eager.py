"""The user's own module run by PyTorch on given inputs, with every operator watched."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ranum_falsify.api import casting
from ranum_falsify.api.casting import casts_of_cuda
from ranum_falsify.api.exporting import Exported
from ranum_falsify.api.sources import StackFrame, find_innermost, own_folder
from ranum_falsify.api.tracing import TrainingStep, unchecked
from ranum_falsify.errors import ModuleError
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.functions import first_line
from ranum_falsify.network.source import Source
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.process.starting import turn

_TOLERANCE, _ROUNDINGS = 1e-2, 16
"""Share of the greatest number by which results may differ: more than rounding, less than another formula.

In types of 16 bits that are as many roundings.
"""


@dataclass(frozen=True)
class Fault:
    """An operator of PyTorch that got invalid input.

    Attributes:
        operator: Its name, such as `log`.
        kind: What came out.
        source: The line that called it; in the backward pass, nothing but that.
    """

    operator: str
    kind: Literal["nan", "inf"]
    source: Source


@dataclass(frozen=True)
class ModuleRun:
    """What a module did on inputs.

    Attributes:
        faults: The operators that got invalid input, in the order in which they ran.
        outputs: Whether all outputs are finite.
        gradients: Names of the parameters and inputs whose gradients are not finite.
    """

    faults: tuple[Fault, ...]
    outputs: bool
    gradients: tuple[str, ...] = ()

    def shows(self, source: Source | None) -> bool:
        """Tell whether a violation at a line shows here."""
        if source is not None and source.backward:
            return bool(self.gradients)
        faults = [fault.source for fault in self.faults if not fault.source.backward]
        if source is None or not source.file:
            return bool(faults)
        return any((fault.file, fault.line) == (source.file, source.line) for fault in faults)


def run_module(exported: Exported, values: Mapping[str, np.ndarray]) -> ModuleRun:
    """Run the module that was exported, on other inputs.

    Args:
        exported: The module, as it was exported; it is not changed, and the backward pass runs if that was exported.
        values: Arrays by the name of an input or of a parameter that was freed; others are as they were.
    """
    watch = _Watch()
    with watch:
        outputs, gradients = _run(exported.step, values, exported.gradient, watch.turn)
    return ModuleRun(
        faults=tuple(watch.faults),
        outputs=all(bool(y.isfinite().all()) for y in outputs),
        gradients=tuple(name for name, x in gradients.items() if not bool(x.isfinite().all())),
    )


def compute(step: TrainingStep, values: Mapping[str, np.ndarray], *, gradient: bool) -> list[Tensor]:
    """Return the outputs of a module, and its gradients if they are wanted.

    Args:
        step: The module's passes; it is not changed.
        values: Arrays by the name of an input or of a parameter; others are as they were.
        gradient: Whether the backward pass runs too.
    """
    outputs, gradients = _run(step, values, gradient, lambda: None)
    return [*outputs, *gradients.values()]


def _run(
    step: TrainingStep, values: Mapping[str, np.ndarray], gradient: bool, before_backward: Callable[[], None]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Return the outputs of a module, and its gradients if they are wanted."""
    inputs = step.arguments.tensors
    given = {name: to_torch(array) for name, array in values.items()}
    # The module holds these tensors while it runs, and threads may share it.
    with turn(), torch.random.fork_rng(devices=[]), unchecked(), casts_of_cuda(step.autocast):
        state = {name: given.get(name, x).detach().to(x.device, copy=True) for name, x in step.state.items()}
        tensors = [given.get(name, x).detach().to(x.device, copy=True) for name, x in inputs.items()]
        if gradient:
            return step(state, tensors, before_backward=lambda loss: before_backward())
        return [y.detach() for y in step.forward(step.hold(state), tensors)], {}


def compare_export(exported: Exported, graph: Graph) -> None:
    """Check that what was exported computes what the module does, on the example call.

    Numbers that are not finite, and networks that draw random numbers, are not compared.

    Raises:
        ModuleError: It does not.
    """
    if any(spec_of(op).is_random(op) for op in graph.nodes):
        return
    try:
        results = compute(exported.step, {}, gradient=exported.gradient)
    except Exception as error:  # the module is the user's own
        raise ModuleError(
            f"{type(exported.step.module).__name__}: does not run on the example ({type(error).__name__}: "
            f"{first_line(error)}); give arguments on which it does"
        ) from error
    found = graph(*(exported.inputs[name] for name in graph.input_names), squeeze=False)
    for mine, theirs in zip(found, results, strict=True):
        one, other = to_torch(mine).double(), theirs.detach().cpu().double()
        difference = (one - other)[one.isfinite() & other.isfinite()].abs()
        scale = float(other[other.isfinite()].abs().max()) if bool(other.isfinite().any()) else 0.0
        tolerance = max(_TOLERANCE, _ROUNDINGS * torch.finfo(theirs.dtype).eps if theirs.is_floating_point() else 0.0)
        if difference.numel() and float(difference.max()) > tolerance * (1 + scale):
            raise ModuleError(
                f"{type(exported.step.module).__name__}: torch.onnx exports something else than the module computes "
                f"(they differ by {float(difference.max()):.3g} on the example); check parts of it one by one"
            )


class _Watch(TorchDispatchMode):
    """Watches the operators that run, backward passes included."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.faults: list[Fault] = []
        self._backward = False

    def turn(self) -> None:
        """Take what follows as the backward pass."""
        self._backward = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, and note whether it makes what its operands do not explain."""
        before = _worst(args, kwargs or {})
        outputs = func(*args, **(kwargs or {}))
        # What is not initialised holds anything; what reads no number is a constant, infinite by intent.
        name = func.overloadpacket.__name__
        if before is not None and not name.startswith(("empty", "new_empty")):
            after = _worst((outputs,), {})
            if after == "nan" != before or (after == "inf" and before == "finite"):
                self.faults.append(Fault(name, after, self._source()))
        return outputs

    def _source(self) -> Source:
        if self._backward:
            return Source(backward=True)
        frame = find_innermost(reversed(list(_frames(sys._getframe(1)))))
        return Source() if frame is None else Source(frame.file, frame.line, frame.code)


def _worst(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Literal["finite", "inf", "nan"] | None:
    """Return the worst number among operands, None where there is none."""
    found: Literal["finite", "inf", "nan"] | None = None
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, float):
            leaf = torch.tensor(leaf)
        elif not isinstance(leaf, Tensor) or not leaf.is_floating_point() or not leaf.numel():
            continue
        else:
            found = found or "finite"
        if bool(leaf.isnan().any()):
            return "nan"
        if bool(leaf.isinf().any()):
            found = "inf"
    return found


def _frames(frame: FrameType | None) -> Iterator[StackFrame]:
    """Yield the frames of a call, the innermost first, up to where this package made it."""
    while frame is not None:
        file = frame.f_code.co_filename
        between = file in (__file__, casting.__file__) or frame.f_code.co_name == "_source"
        if file.startswith(own_folder()) and not between:
            return
        yield StackFrame(file, frame.f_lineno, linecache.getline(file, frame.f_lineno).strip())
        frame = frame.f_back
