"""`check` of a PyTorch module: exported, asked about, and what is found shown on the module itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ranum_falsify.api.boxes import BoxLike, default_range
from ranum_falsify.api.check_request import ValidityQuestion
from ranum_falsify.api.eager import ModuleRun, compare_export, run_module
from ranum_falsify.api.entry_points import ask_in_time
from ranum_falsify.api.exporting import Exported, export
from ranum_falsify.api.mending import Mending, put_on
from ranum_falsify.api.models import Model, load_model
from ranum_falsify.api.result import Result
from ranum_falsify.api.sources import find_sources, find_words
from ranum_falsify.config import CUDA, Options
from ranum_falsify.errors import UsageError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph
from ranum_falsify.network.functions import first_line
from ranum_falsify.network.source import Source
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.search.result import KIND_NAMES, Answer, Counterexample, OperatorResult


def check_module(
    module: torch.nn.Module,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    question: ValidityQuestion,
    options: Options,
    wrt: str | Sequence[str] | None = None,
    autocast: torch.dtype | None = None,
    mend_seconds: float = 0.0,
) -> Result:
    """Ask a question about a module, and look for other texts of lines that fail for some seconds; see `check`.

    Raises:
        ModuleError: The module cannot be exported.
        RanumFalsifyError: The question does not fit it.
    """
    if args is None and not kwargs:
        raise UsageError(f"{type(module).__name__}: give the arguments of an example call, as in check(module, (x,))")

    def read() -> tuple[Exported, Model]:
        example = () if args is None else args
        of_torch = "onnxruntime" not in options.runtimes
        exported = export(
            module, example, kwargs, gradient=question.gradient, wrt=wrt, autocast=autocast, of_torch=of_torch
        )
        return exported, load_model(exported.model)

    def ask(found: tuple[Exported, Model], left: Options) -> Result:
        exported, model = found
        model = replace(model, source=replace(model.source, path=type(module).__name__))
        compare_export(exported, model.graph)
        asked = replace(
            question,
            box=_box_of(exported, model.graph, question.box),
            free=exported.parameters if question.free == "all" else question.free,
            # The backward pass is part of the model.
            gradient=False,
        )
        blame = _Blame(exported, left)
        result = asked.ask(lambda: model, left, blame.refute)
        return replace(result, answer=blame.put_on(result.answer))

    def ask_again(starts: int, seconds: float, effort: float) -> Result:
        left = replace(options, n_starts=starts, timeout=seconds, prove_timeout=effort, self_check=False)
        return ask_in_time(read, ask, left)

    def ask_first(found: tuple[Exported, Model], left: Options) -> Result:
        deadline = Deadline.after(left.timeout)
        result = ask(found, left)
        if result.verdict != "violated" or not mend_seconds or not options.prove:
            return result
        mended = Mending(found[0], ask_again, deadline.within(mend_seconds)).run(result)
        return replace(result, answer=put_on(result.answer, mended), mended=mended)

    return ask_in_time(read, ask_first, options)


def _box_of(exported: Exported, graph: Graph, box: BoxLike | None) -> BoxLike:
    """Return ranges by name: one range is about floating numbers, integers of unknown use stay as in the example."""
    others = {name: x for name, x in exported.inputs.items() if x.dtype.kind in "iub"}
    named = dict(box) if isinstance(box, Mapping) else {}
    if box is not None and not isinstance(box, Mapping):
        named = {name: box for name in exported.inputs if name not in others}
    rest = named.pop(..., None)
    if rest is not None:
        named |= {name: rest for name in exported.inputs if name not in named and name not in others}
    held = (name for name in others if name not in named)
    return named | {name: others[name] for name in held if default_range(graph, graph.input_names.index(name)).is_guess}


@dataclass(frozen=True)
class _Blame:
    """Shows what was found on the module itself."""

    exported: Exported
    options: Options
    _runs: dict[int, ModuleRun | str] = field(default_factory=dict)

    def put_on(self, answer: Answer) -> Answer:
        """Return the answer as the module shows it; what PyTorch is asked about and does not show is open."""
        notices: list[str] = [*self._scope(), *answer.notices]
        operators = []
        for operator in answer.operators:
            if operator.counterexample is not None and self.options.dtype is None:
                operator = self._show(operator, operator.counterexample, notices)
            operators.append(operator)
        found = next(
            (o.counterexample for o in operators if o.verdict == "violated" and o.counterexample is not None), None
        )
        lost = answer.verdict == "violated" and found is None
        return replace(
            answer,
            verdict="unknown" if lost else answer.verdict,
            operators=tuple(operators),
            counterexample=found,
            notices=tuple(notices),
            steep=() if self.exported.gradient else answer.steep,
        )

    def _scope(self) -> Iterator[str]:
        """Yield what autocast and the backward pass are, a sentence each."""
        step = self.exported.step
        if step.autocast is not None:
            name = str(step.autocast).removeprefix("torch.")
            kernels = "" if CUDA in self.options.runtimes else ", by kernels of the CPU"
            yield f"computed in {name} and float32, as autocast on CUDA chooses{kernels}"
            if self.exported.gradient and step.autocast is torch.float16:
                yield "the loss is not scaled: what is infinite at a larger scale alone, a GradScaler skips"
        if self.exported.gradient:
            leaves, trained = step.leaves, step.trained
            named = [name for name in step.wrt or () if name in trained]
            parameters = ["the parameters"] if trained and step.wrt is None else named
            reached = _list([*(name for name in self.exported.inputs if name in leaves), *parameters])
            tensors = step.arguments.tensors
            left_out = [name for name, x in tensors.items() if x.is_floating_point() and name not in leaves]
            rest = f", not to {_list(left_out)} (wrt= chooses)" if left_out and step.wrt is None else ""
            formulas = "by PyTorch's formulas for derivatives"
            yield f"the backward pass goes from the sum of the floating outputs to {reached}{rest}, {formulas}"

    def refute(self, operator: OperatorResult) -> str | None:
        """Return a sentence about why the module itself does not show a violation; None if it does."""
        example = operator.counterexample
        if operator.kind == "crash" or example is None or self.options.dtype is not None:
            return None  # a crash would end this process
        operator = replace(operator, source=operator.source or self._sources.get(operator.node))
        run = self._run(example)
        stops = operator.kind == "error" and isinstance(run, str)
        if stops or (isinstance(run, ModuleRun) and run.shows(operator.source)):
            return None
        place = "" if operator.source is None else f" at {operator.source}"
        gives = KIND_NAMES[operator.kind] if operator.kind else "an invalid number"
        model = "the exported model" if operator.oracle == "torch" else "ONNX Runtime"
        return (
            f"{operator.node} ({operator.op_type}){place}: {model} gives {gives}, "
            f"the module itself {run if isinstance(run, str) else _describe(run)}"
        )

    @cached_property
    def _sources(self) -> Mapping[str, Source]:
        return find_sources(self.exported.model)

    def _show(self, operator: OperatorResult, counterexample: Counterexample, notices: list[str]) -> OperatorResult:
        if operator.kind == "crash":
            return operator
        refuted = self.refute(operator)
        if refuted is None:
            run = self._run(counterexample)
            others = tuple(runtime for runtime in operator.runtimes if runtime != "torch")
            backward = isinstance(run, ModuleRun) and operator.source is not None and operator.source.backward
            gradients = run.gradients if isinstance(run, ModuleRun) and backward else ()
            words = find_words(self.exported.model, operator.node, [*operator.operands])
            return replace(
                operator, oracle="module", runtimes=("torch", *others), gradients=gradients, expressions=words
            )
        notices.append(refuted)
        if self.options.prove and "onnxruntime" in self.options.runtimes:
            return replace(operator, runtimes=tuple(runtime for runtime in operator.runtimes if runtime != "torch"))
        return OperatorResult(
            network=operator.network,
            node=operator.node,
            op_type=operator.op_type,
            verdict="open",
            constraint=operator.constraint,
            source=operator.source,
        )

    def _run(self, counterexample: Counterexample) -> ModuleRun | str:
        """Run the module on a counterexample, once; return what it did, or how it stopped."""
        key = id(counterexample.feeds)
        if key not in self._runs:
            try:
                self._runs[key] = run_module(self.exported, counterexample.feeds)
            except Exception as error:  # the module is the user's own
                self._runs[key] = f"stops: {type(error).__name__}: {first_line(error)}"
        return self._runs[key]


def _list(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _describe(run: ModuleRun) -> str:
    outputs = "its outputs are finite" if run.outputs else "outputs that are not finite, for another reason"
    return f"does not; {outputs}"
