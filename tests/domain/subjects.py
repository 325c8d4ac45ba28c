"""Models with the runtimes that run them, and the statements of the analysis about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

from ranum_falsify.config import RUNTIMES, Runtime, library_of
from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.network import Graph, read, spec_of
from ranum_falsify.network.order import operands_in
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.operators.support.conditions import conditions_of
from ranum_falsify.operators.support.deciding import find_open, is_proved
from ranum_falsify.validity import Constraint, Finite
from ranum_falsify.verify.prove.analyses import Analyses, analyses_of
from ranum_falsify.verify.prove.checked import Checked, check
from tests.domain.boxes import Array, Feeds
from tests.network.building import session

__all__ = ["Held", "Place", "SessionOf", "Setting", "Subject", "Verdict", "conditions", "executed", "tensor_of"]

_ASCENT = 1e8
"""Multiplications that linear analyses of subjects may spend on better slopes."""

SessionOf = Callable[[bytes, bool], Callable[[Any], Any]]
"""Loads a model, optimised or not; returns a function that runs it, from inputs by name to outputs by name."""

Held = tuple[tuple[Constraint, bool, bool], ...]
"""Conditions of a node: the condition, whether it is claimed to hold, whether it is one of validity."""


@dataclass(frozen=True)
class Verdict:
    """The statements of the analysis about a box.

    Attributes:
        bounds: Bounds by tensor name; None where the shape depends on the input.
        held: Conditions by node name.
        constants: Names of nodes that make constants and are not proved.
        executed: What holds if ONNX Runtime runs another graph in its place; None if it does not.
        finite: Bounds of the finite values by tensor name, where those of all values do not tell.
    """

    bounds: Mapping[str, Interval | None]
    held: Mapping[str, Held]
    constants: tuple[str, ...] = ()
    executed: Checked | None = None
    finite: Mapping[str, Interval] = field(default_factory=dict)

    def proves(self, node: str) -> bool:
        """Tell whether all conditions of validity of a node hold."""
        return all(holds for _, holds, of_validity in self.held.get(node, ((Finite(), False, True),)) if of_validity)


class Place:
    """A node with the names of the tensors around it.

    Attributes:
        op: The node.
        where: Its name in messages.
        read: Tensors that it reads.
        outputs: Tensors that it writes and the graph has, by position.
        written: The same as a tuple.
        operands: By operand name a tensor's name, or a constant.
        finite_constants: Whether no constant operand is infinite.
        nan_constants: Whether one holds NaN, which is none of the node's doing.
        is_elementwise: Whether each element of an output depends on the operands' elements at the same place alone.
        has_fixed_shape: Whether its shape does not depend on values.
    """

    def __init__(self, op: Operation, names: Mapping[int, str], present: Collection[str]) -> None:
        spec = spec_of(op)
        self.op = op
        self.where = f"{type(op).__name__} {op.name!r}"
        self.read = tuple(names[id(operand)] for operand in operands_in(op))
        self.outputs = {i: name for i, name in enumerate(op.output_names) if name in present}
        self.written = tuple(self.outputs.values())
        fields = spec.name_values(spec.operands_of(op))
        self.operands: dict[str, str | torch.Tensor] = {
            name: to_torch(x) if isinstance(x, np.ndarray) else names[id(x)]
            for name, x in fields.items()
            if x is not None
        }
        stored = [to_torch(x) for name, x in vars(op).items() if name not in fields and isinstance(x, np.ndarray)]
        constants = [x for x in (*self.operands.values(), *stored) if isinstance(x, torch.Tensor)]
        constants = [x for x in constants if x.is_floating_point()]
        self.finite_constants = all(bool(x.isfinite().all()) for x in constants)
        self.nan_constants = any(bool(x.isnan().any()) for x in constants)
        self.is_elementwise = spec.elementwise
        computed = any(isinstance(fields.get(name), Operation) for name in spec.static)
        self.has_fixed_shape = not spec.dynamic_shape and not computed


@dataclass(frozen=True)
class Setting:
    """How a graph is analysed.

    Attributes:
        keep: Whether all bounds are kept, so that those of inner tensors are checked.
        linear: Whether backward linear bounds narrow the bounds of the rules.
        runtimes: Runtimes that the bounds must cover.
        rewritten: Whether the graph that ONNX Runtime runs in its place is analysed, too.
    """

    keep: bool = True
    linear: bool = False
    runtimes: tuple[str, ...] = RUNTIMES
    rewritten: bool = True

    @classmethod
    def drawn(cls, rng: np.random.Generator, further: Sequence[Runtime] = ()) -> Setting:
        """Return the setting of a run as users choose it: most cover all runtimes, and further ones of libraries."""
        setting = cls._draw(rng)
        covered = (runtime for runtime in further if library_of(runtime) in setting.runtimes)
        return replace(setting, runtimes=(*setting.runtimes, *covered))

    @classmethod
    def _draw(cls, rng: np.random.Generator) -> Setting:
        kinds = (RUNTIMES, RUNTIMES, RUNTIMES, ("torch",), ("onnxruntime",))
        return cls(bool(rng.random() < 0.6), bool(rng.random() < 0.35), kinds[int(rng.integers(len(kinds)))])

    def covers(self, runtime: str) -> bool:
        """Tell whether a runtime, by its name in :class:`Subject`, is among those covered."""
        return runtime.split("-")[0] in self.runtimes or (runtime == "cuda" and "torch" in self.runtimes)


class Subject:
    """A model, its graph and the runtimes that run it.

    Attributes:
        graph: The graph that is analysed.
        exposed: The same with every tensor as an output.
        places: Its nodes.
        runtimes: `fn(feeds) -> values by tensor name` by name of the runtime.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        sessions: Mapping[Runtime, SessionOf] = MappingProxyType({}),
        *,
        strict: bool = False,
    ) -> None:
        """Prepare.

        Args:
            model: The model.
            sessions: Loads models, by library; one that is not given runs them in this process.
            strict: Whether operators that only ONNX Runtime evaluates are refused.

        Raises:
            ModelError: The model cannot be read.
        """
        self.graph = read(model, strict=strict)
        shown = _with_all_outputs(model)
        self.exposed = self.graph if len(self.graph.nodes) == 1 else read(shown, strict=strict)
        self.runtimes: dict[str, Any] = {
            "onnxruntime": _session(sessions.get("onnxruntime", _loaded), shown, optimised=False),
            "onnxruntime-optimised": _session(sessions.get("onnxruntime", _loaded), model, optimised=True),
            "torch": lambda feeds: _evaluated(self.exposed, feeds, "cpu"),
        }
        if torch.cuda.is_available():
            self.runtimes["cuda"] = lambda feeds: _evaluated(self.exposed, feeds, "cuda")
        if "torch" in sessions:
            self.runtimes["torch"] = _session(sessions["torch"], shown, optimised=False)
        names = {id(op): op.name if isinstance(op, Input) else tensor_of(op) for op in self.graph.order}
        present = {tensor_of(op) for op in self.graph.order if not isinstance(op, Input)} - {""}
        self.places = [Place(op, names, present) for op in self.graph.nodes]
        self.is_random = any(spec_of(op).is_random(op) for op in self.graph.nodes)

    def analyse(self, lower: Feeds, upper: Feeds, setting: Setting | None = None) -> Verdict:
        """Analyse the graph over a box."""
        setting = setting or Setting()
        held: dict[str, Held] = {}
        bounds: dict[str, Interval | None] = {}
        finite: dict[str, Interval] = {}

        def observe(visited: Visited) -> None:
            held[visited.op.name] = conditions(analysis, visited)

        inputs = [Interval.box(lower[name], upper[name]) for name in self.graph.input_names]
        analyses = self._analyses(setting)
        analysis = analyses.written
        outputs = analysis.run(inputs, observe)
        if setting.keep or isinstance(analysis, LinearAnalysis):
            for op in self.graph.order:
                if not isinstance(op, Input):
                    bounds[tensor_of(op)] = analysis.bounds_of(op)
                    if (part := analysis.finite_bounds_of(op)) is not None:
                        finite[tensor_of(op)] = part
        bounds |= dict(zip(self.graph.output_names, outputs, strict=True))
        constants = tuple(v.op.name for v in analysis.folded if not is_proved(analysis, v))
        return Verdict(bounds, held, constants, executed(analyses, inputs, outputs), finite)

    def _analyses(self, setting: Setting) -> Analyses:
        def plain(graph: Graph, runtimes: Sequence[Runtime]) -> IntervalAnalysis:
            return IntervalAnalysis(graph, runtimes=runtimes, keep=setting.keep)

        def linear(graph: Graph, runtimes: Sequence[Runtime]) -> IntervalAnalysis:
            return LinearAnalysis(graph, runtimes=runtimes, ascent=_ASCENT)

        make = linear if setting.linear else plain
        if not setting.rewritten:
            return Analyses(make(self.graph, setting.runtimes))
        return analyses_of(self.graph, setting.runtimes, make)

    def proved(self, verdict: Verdict) -> set[str]:
        """Return the outputs whose operators a verdict proves without exception, as written and as run."""
        failed: set[str] = set()
        run = verdict.executed or Checked((), {}, {})
        for place in self.places:
            proved = verdict.proves(place.op.name) and id(place.op) not in run.open
            if not proved or not failed.isdisjoint(place.read):
                failed.update(place.written)
        return set() if verdict.constants or run.constants else set(self.graph.output_names) - failed

    def final(self, verdict: Verdict) -> dict[str, Interval | None]:
        """Return the bounds of the outputs as they are written and as they are run."""
        if verdict.executed is None:
            return {name: verdict.bounds[name] for name in self.graph.output_names}
        return dict(zip(self.graph.output_names, verdict.executed.outputs, strict=True))


def executed(analyses: Analyses, inputs: Sequence[Interval], outputs: tuple[Interval | None, ...]) -> Checked | None:
    """Return what holds if ONNX Runtime runs another graph in place of a network; None if it does not.

    Args:
        analyses: The analyses of the network; that of the network as written was run.
        inputs: The box.
        outputs: Bounds of the outputs of the network as written.
    """
    if analyses.execution is None:
        return None
    written = Checked(outputs, {}, {})
    if analyses.executed is None:
        return analyses.execution.narrow(written, None)
    boxes = analyses.execution.inputs(analyses.executed.graph, inputs)
    return analyses.execution.narrow(written, check(analyses.executed, boxes))


def _session(load: SessionOf, model: onnx.ModelProto, *, optimised: bool) -> Any:
    try:
        run = load(model.SerializeToString(), optimised)
    except Exception as error:  # the library has no kernel for this type
        refusal = error

        def refuse(feeds: Feeds) -> dict[str, Array]:
            raise refusal

        return refuse
    return lambda feeds: run(dict(feeds))


def _loaded(model: bytes, optimised: bool) -> Callable[[Any], Any]:
    made = session(model, optimised=optimised)
    names = [output.name for output in made.get_outputs()]
    # Strings are numbers in the graph that is analysed, and numbers of float8 are bytes in NumPy.
    hidden = {output.name for output in made.get_outputs() if "string" in output.type or "float8" in output.type}

    def run(feeds: Any) -> dict[str, Array]:
        values = dict(zip(names, made.run(None, feeds), strict=True))
        if any(value is None for value in values.values()):
            raise RuntimeError("ONNX Runtime gives no result")  # of operands without elements, mostly
        return {name: value for name, value in values.items() if name not in hidden}

    return run


def _evaluated(graph: Graph, feeds: Feeds, device: str) -> dict[str, Array]:
    with torch.no_grad():
        outputs = graph.evaluate([to_torch(feeds[name]).to(device) for name in graph.input_names])
    return {name: to_numpy(y) for name, y in zip(graph.output_names, outputs, strict=True)}


def _with_all_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    present = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in present]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return shown


def tensor_of(op: Operation) -> str:
    """Return the name of the first tensor that an operation writes."""
    names = op.operation.output_names if isinstance(op, OutputSelect) else op.output_names
    name: str = names[op.index if isinstance(op, OutputSelect) else 0]
    return name


def conditions(analysis: IntervalAnalysis, visited: Visited) -> Held:
    found: list[tuple[Any, bool]] = [(c, True) for c in conditions_of(visited.op)]
    found += [(c, False) for c in spec_of(visited.op).gradient_valid]
    return tuple((c, not find_open(analysis, visited, (c,)), of_validity) for c, of_validity in found)
