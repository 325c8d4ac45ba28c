"""Soundness of rules and of analyses by sampling: what runtimes compute from inputs in a box lies within the bounds.

A :class:`Subject` is a model with the runtimes that run it.  `faults_in` draws points of a box, then moves towards
the bounds: to the vertices that gradients point to, to mixtures of the samples that came furthest, and to their
neighbours in the last place.  Of every node it checks that

- values lie within the bounds if no node before it got invalid input, and have the shape that the bounds stand for;
- a proved node gives neither NaN nor infinity;
- a condition that is said to hold, of validity or of the gradient, has no negative margin on any sample.

`check_case` does so for a case of the operator tables (`tests/operators/cases`).
"""

from __future__ import annotations

import copy
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from dnnv.nn import Operation
from dnnv.nn.operations import Input, OutputSelect

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import Interval, IntervalAnalysis, Visited
from ranum_falsify.network import Graph, read, spec_of
from ranum_falsify.network.order import operands_in
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.validity import Constraint, Finite
from tests.domain.boxes import Array, Box, Feeds, Recipe, box, is_float, points, recipes
from tests.operators.harness import OperatorCase, _model

__all__ = ["Subject", "Tally", "Verdict", "check_case", "faults_in", "retyped", "sweep_case"]

Held = tuple[tuple[Constraint, bool, bool], ...]
"""Conditions of a node: the condition, whether it is said to hold, whether it is one of validity."""


@dataclass
class Tally:
    """What was run, and what was wrong.

    Attributes:
        boxes: Boxes that were analysed.
        samples: Points at which at least one runtime gave results.
        runs: Number of results by runtime.
        faults: What is unsound.
    """

    boxes: int = 0
    samples: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.boxes += other.boxes
        self.samples += other.samples
        self.runs += other.runs
        self.faults += other.faults


@dataclass(frozen=True)
class Verdict:
    """What the analysis says of a box.

    Attributes:
        bounds: Bounds by tensor name; None where the shape depends on the input.
        held: Conditions by node name.
    """

    bounds: Mapping[str, Interval | None]
    held: Mapping[str, Held]

    def proves(self, node: str) -> bool:
        """Tell whether all conditions of validity of a node hold."""
        return all(holds for _, holds, of_validity in self.held.get(node, ((Finite(), False, True),)) if of_validity)


class _Place:
    """A node with the names of the tensors about it.

    Attributes:
        op: The node.
        where: What messages call it.
        read: Tensors that it reads.
        outputs: Tensors that it writes and the graph has, by position.
        written: The same as a tuple.
        operands: By operand name a tensor's name, or a constant.
        finite_constants: Whether no constant operand is infinite.
        has_fixed_shape: Whether its shape does not depend on values.
    """

    def __init__(self, op: Operation, names: Mapping[int, str], present: Collection[str]) -> None:
        spec = spec_of(op)
        self.op = op
        self.where = f"{type(op).__name__} {op.name!r}"
        self.read = tuple(names[id(operand)] for operand in operands_in(op))
        self.outputs = {i: name for i, name in enumerate(op.output_names) if name in present}
        self.written = tuple(self.outputs.values())
        fields = spec.named(spec.operands_of(op))
        self.operands: dict[str, str | torch.Tensor] = {
            name: to_torch(x) if isinstance(x, np.ndarray) else names[id(x)]
            for name, x in fields.items()
            if x is not None
        }
        constants = [x for x in self.operands.values() if isinstance(x, torch.Tensor) and x.is_floating_point()]
        self.finite_constants = all(bool(x.isfinite().all()) for x in constants)
        computed = any(isinstance(fields.get(name), Operation) for name in spec.static)
        self.has_fixed_shape = not spec.dynamic_shape and not computed


class Subject:
    """A model, its graph and the runtimes that run it.

    Attributes:
        graph: The graph that is analysed.
        exposed: The same with every tensor as an output.
        places: Its nodes.
        runtimes: `fn(feeds) -> values by tensor name` by name of the runtime.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = read(model)
        shown = _with_all_outputs(model)
        self.exposed = self.graph if len(self.graph.nodes) == 1 else read(shown)
        levels = onnxruntime.GraphOptimizationLevel
        self.runtimes: dict[str, Any] = {
            "onnxruntime": _session(shown, levels.ORT_DISABLE_ALL),
            "onnxruntime-optimised": _session(model, levels.ORT_ENABLE_ALL),
            "torch": lambda feeds: _evaluated(self.exposed, feeds, "cpu"),
        }
        if torch.cuda.is_available():
            self.runtimes["cuda"] = lambda feeds: _evaluated(self.exposed, feeds, "cuda")
        names = {id(op): op.name if isinstance(op, Input) else _tensor(op) for op in self.graph.order}
        present = {_tensor(op) for op in self.graph.order if not isinstance(op, Input)}
        self.places = [_Place(op, names, present) for op in self.graph.nodes]
        self.is_random = any(spec_of(op).is_random(op) for op in self.graph.nodes)

    def analyse(self, lower: Feeds, upper: Feeds, *, keep: bool = True) -> Verdict:
        """Analyse the graph over a box."""
        held: dict[str, Held] = {}
        bounds: dict[str, Interval | None] = {}

        def observe(visited: Visited) -> None:
            held[visited.op.name] = _conditions(visited)

        inputs = [Interval.box(lower[name], upper[name]) for name in self.graph.input_names]
        analysis = IntervalAnalysis(self.graph, keep=keep)
        outputs = analysis.run(inputs, observe)
        if keep:
            for op in self.graph.order:
                if not isinstance(op, Input):
                    bounds[_tensor(op)] = analysis.bounds_of(op)
        bounds |= dict(zip(self.graph.output_names, outputs, strict=True))
        return Verdict(bounds, held)


def _session(model: onnx.ModelProto, level: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has no kernel for this type
        refusal = error

        def refuse(feeds: Feeds) -> dict[str, Array]:
            raise refusal

        return refuse
    names = [output.name for output in made.get_outputs()]
    return lambda feeds: dict(zip(names, made.run(None, dict(feeds)), strict=True))


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


def _tensor(op: Operation) -> str:
    """Return the name of the tensor that an operation gives, its first one."""
    names = op.operation.output_names if isinstance(op, OutputSelect) else op.output_names
    name: str = names[op.index if isinstance(op, OutputSelect) else 0]
    return name


def _conditions(visited: Visited) -> Held:
    spec = spec_of(visited.op)
    outputs = {"output" if i == 0 else f"output_{i}": y for i, y in enumerate(visited.outputs)}
    operands = {k: v for k, v in spec.named(visited.operands).items() if isinstance(v, Interval)}
    generic = [Finite()] if spec.overflow and visited.outputs[0].is_floating else []
    known = operands | outputs
    valid = [(c, c.holds(visited.op, known), True) for c in (*spec.valid, *generic)]  # type: ignore[attr-defined]
    gradient = [(c, c.holds(visited.op, known), False) for c in spec.gradient_valid]  # type: ignore[attr-defined]
    return (*valid, *gradient)


# one sample -------------------------------------------------------------------------------------------------------


class _Trial:
    """What one runtime computed at one point, against a verdict."""

    def __init__(self, subject: Subject, verdict: Verdict, feeds: Feeds, values: Mapping[str, Array]) -> None:
        self.subject, self.verdict = subject, verdict
        self.tensors = {name: to_torch(np.asarray(x)) for name, x in (feeds | dict(values)).items()}
        self.finite = {
            name: bool(x.isfinite().all()) if x.is_floating_point() else True for name, x in self.tensors.items()
        }
        self.clean: dict[str, bool] = dict.fromkeys(feeds, True)

    def faults(self) -> Iterator[str]:
        """Yield what is unsound, node by node in topological order."""
        for place in self.subject.places:
            clean = all(self.clean[name] for name in place.read)
            if clean:
                violated = self._violated(place)
                yield from self._false_proofs(place, violated)
                for name in place.written:
                    yield from self._outside(place, name, violated)
                clean = not any(of_validity for _, of_validity, _, _ in violated)
                clean = clean and not any(self._invalid(place, name) is not None for name in place.written)
            self.clean.update(dict.fromkeys(place.written, clean))

    def _invalid(self, place: _Place, name: str) -> torch.Tensor | None:
        """Return where the elements of an output are invalid; None where none is."""
        if self.finite[name]:
            return None
        y = self.tensors[name]
        finite = place.finite_constants and all(self.finite[operand] for operand in place.read)
        invalid = ~y.isfinite() if finite else y.isnan()
        return invalid if bool(invalid.any()) else None

    def _false_proofs(self, place: _Place, violated: list[tuple[Constraint, bool, bool, torch.Tensor]]) -> Iterator[str]:
        for condition, of_validity, held, margin in violated:
            if held:
                kind = "" if of_validity else " (gradient)"
                yield f"{place.where}: said to hold{kind}: {condition.describe()}, margin {float(margin.min()):.6g}"
        for name in place.written:
            invalid = self._invalid(place, name)
            if invalid is not None and self.verdict.proves(place.op.name):
                yield f"{place.where}: proved, but {name} holds {_few(self.tensors[name][invalid])}"

    def _outside(
        self, place: _Place, name: str, violated: list[tuple[Constraint, bool, bool, torch.Tensor]]
    ) -> Iterator[str]:
        if name not in self.verdict.bounds:
            return
        bound, value = self.verdict.bounds[name], self.tensors[name]
        if bound is None:
            if place.has_fixed_shape and all(self.verdict.bounds.get(x, self) is not None for x in place.read):
                yield f"{place.where}: no bounds of {name}, whose shape is fixed"
            return
        if tuple(value.shape) != bound.shape or value.dtype != bound.dtype:
            yield f"{place.where}: {name} is {value.dtype} {tuple(value.shape)}, not as {bound}"
            return
        outside = ~bound.encloses(value)
        if not bool(outside.any()):
            return
        invalid = self._invalid(place, name)
        if invalid is not None:
            outside &= ~invalid
        # A rule bounds the results of valid operands only.
        for margin in (margin for _, of_validity, _, margin in violated if of_validity):
            outside &= margin >= 0 if _fits(margin, value) else torch.zeros_like(outside)
        if bool(outside.any()):
            low, high = (end.expand(value.shape)[outside] for end in (bound.lower, bound.upper))
            yield f"{place.where}: {name} = {_few(value[outside])} outside [{_few(low)}; {_few(high)}]"

    def _violated(self, place: _Place) -> list[tuple[Constraint, bool, bool, torch.Tensor]]:
        """Return the conditions with a negative margin: whether of validity, whether said to hold, the margin."""
        held = self.verdict.held.get(place.op.name, ())
        # Finite results have no negative distance to overflow.
        if all(self.finite[name] for name in place.written):
            held = tuple(h for h in held if not isinstance(h[0], Finite))
        if not held:
            return []
        operands = {name: x if isinstance(x, torch.Tensor) else self.tensors[x] for name, x in place.operands.items()}
        operands |= {f"output_{i}" if i else "output": self.tensors[name] for i, name in place.outputs.items()}
        found = []
        for condition, holds, of_validity in held:
            margin = condition.margin(place.op, operands)
            if bool((margin < 0).any()):
                found.append((condition, of_validity, holds, margin))
        return found


def _fits(margin: torch.Tensor, value: torch.Tensor) -> bool:
    """Tell whether a margin has an element for each one of a value."""
    pairs = zip(reversed(margin.shape), reversed(value.shape), strict=False)
    return 0 < margin.ndim <= value.ndim and all(m in (1, n) for m, n in pairs)


def _few(x: torch.Tensor) -> str:
    return ", ".join(f"{number:.9g}" for number in x.reshape(-1)[:3].double().tolist())


# samples of a box -------------------------------------------------------------------------------------------------


@dataclass
class _Run:
    """The search for a value outside the bounds of one box."""

    subject: Subject
    verdict: Verdict
    lower: Feeds
    upper: Feeds
    rng: np.random.Generator
    tally: Tally = field(default_factory=Tally)
    tried: list[tuple[dict[str, Array], dict[str, Array]]] = field(default_factory=list)

    def run(self, feeds: dict[str, Array]) -> None:
        """Run all runtimes on a point, and note the faults; the first of each runtime is enough."""
        some = False
        clean = True
        for name, runtime in self.subject.runtimes.items():
            try:
                values = runtime(feeds)
            except Exception:  # integer division by zero, an index out of range, a type without kernel
                continue
            some = True
            self.tally.runs[name] += 1
            if len(values) < len(self.subject.exposed.output_names):
                if not clean:
                    continue
                faults = self._final_faults(feeds, values)
            else:
                trial = _Trial(self.subject, self.verdict, feeds, values)
                faults = list(trial.faults())
                clean &= all(trial.clean.values())
                if not self.tried or self.tried[-1][0] is not feeds:
                    self.tried.append((feeds, values))
            self.tally.faults += [f"{name}: {fault}" for fault in faults[:1]]
        self.tally.samples += some

    def _final_faults(self, feeds: Feeds, values: Mapping[str, Array]) -> list[str]:
        """Return what is unsound in outputs alone, where no node got invalid input on ONNX Runtime as it is."""
        found = []
        for name, y in values.items():
            bound, value = self.verdict.bounds.get(name), to_torch(np.asarray(y))
            if bound is None:
                continue
            if tuple(value.shape) != bound.shape:
                found.append(f"{name} has shape {tuple(value.shape)}, not as {bound}")
            elif not bool((inside := bound.encloses(value)).all()):
                low, high = (end.expand(value.shape)[~inside] for end in (bound.lower, bound.upper))
                found.append(f"output {name} = {_few(value[~inside])} outside [{_few(low)}, {_few(high)}]")
        return found

    def approach(self, rounds: int) -> None:
        """Move towards the bounds from the samples that came furthest."""
        names = [
            name
            for name, y in (self.tried[0][1] if self.tried else {}).items()
            if is_float(y) and y.size and self.verdict.bounds.get(name) is not None
        ]
        for number in range(rounds if names else 0):
            name = names[int(self.rng.integers(len(names)))]
            sign = 1.0 if number % 2 else -1.0
            worst = self._furthest(name, sign)
            if worst is None:
                continue
            feeds, place = worst
            for candidate in (self._mixed(name, sign), self._vertex(feeds, name, place, sign), self._shaken(feeds)):
                if candidate is not None:
                    self.run(candidate)

    def _furthest(self, name: str, sign: float) -> tuple[dict[str, Array], int] | None:
        """Return the sample, and the element of a tensor, that came nearest to a bound; one of the nearest few."""
        bound = self.verdict.bounds[name]
        assert bound is not None
        values = np.stack([_signed(v[name], sign) for _, v in self.tried])
        if values.shape[1:] != bound.shape or not np.isfinite(values).any():
            return None
        limit = _signed(to_numpy((bound.upper if sign > 0 else bound.lower).expand(bound.shape)), sign)
        best = values.max(axis=0)
        with np.errstate(all="ignore"):
            gaps = np.nan_to_num((limit - best) / (np.abs(best) + 1e-30), nan=np.inf).reshape(-1)
        nearest = np.argsort(gaps)[: max(1, min(3, gaps.size))]
        place = int(self.rng.choice(nearest) if self.rng.random() < 0.6 else self.rng.integers(gaps.size))
        which = int(values.reshape(len(values), -1)[:, place].argmax())
        return self.tried[which][0], place

    def _mixed(self, name: str, sign: float) -> dict[str, Array] | None:
        """Return, for operands of the output's shape, each element from the sample whose result came furthest."""
        shape = self.tried[0][1][name].shape
        if not any(x.shape == shape for x in self.lower.values()):
            return None
        values = np.stack([_signed(v[name], sign) for _, v in self.tried])
        which = values.argmax(axis=0)[None]
        base = self.tried[int(self.rng.integers(len(self.tried)))][0]
        return {
            k: np.take_along_axis(np.stack([f[k] for f, _ in self.tried]), which, 0)[0] if x.shape == shape else x
            for k, x in base.items()
        }

    def _vertex(self, feeds: Feeds, name: str, place: int, sign: float) -> dict[str, Array] | None:
        """Return the vertex of the box that the gradient of one element points to, or a point on the way there."""
        graph = self.subject.exposed
        leaves = [to_torch(feeds[n]).clone() for n in graph.input_names]
        wanted = [x.requires_grad_(True) for x in leaves if x.is_floating_point()]
        try:
            y = graph.evaluate(leaves)[graph.output_names.index(name)]
            gradients = torch.autograd.grad(y.reshape(-1)[place] * sign, wanted, allow_unused=True)
        except (RuntimeError, ValueError, NotImplementedError):
            return None
        moves, moved = iter(gradients), {}
        few = self.rng.random() < 0.3
        for n, leaf in zip(graph.input_names, leaves, strict=True):
            moved[n] = feeds[n]
            slope = next(moves) if leaf.requires_grad else None
            if slope is not None:
                slopes = to_numpy(slope.float())
                stay = (slopes == 0) | np.isnan(slopes) | (few & (self.rng.random(slopes.shape) < 0.5))
                end = np.where(slopes > 0, self.upper[n], self.lower[n])
                moved[n] = np.asarray(np.where(stay, feeds[n], end)).astype(feeds[n].dtype)
        return moved

    def _shaken(self, feeds: Feeds) -> dict[str, Array]:
        """Return a point whose elements are at most a few units in the last place away."""
        shaken = {}
        for name, x in feeds.items():
            if is_float(x):
                with np.errstate(all="ignore"):
                    target = np.where(self.rng.random(x.shape) < 0.5, self.lower[name], self.upper[name])
                    near = np.where(self.rng.random(x.shape) < 0.3, np.nextafter(x, target), x).astype(x.dtype)
                x = np.asarray(np.clip(near, self.lower[name], self.upper[name])).astype(x.dtype)
            shaken[name] = x
        return shaken


def _signed(y: Array, sign: float) -> Array:
    return np.nan_to_num(y.astype(np.float64) * sign, nan=-np.inf, posinf=np.inf, neginf=-np.inf)


def faults_in(
    subject: Subject, bounds: Box, *, samples: int, rounds: int, rng: np.random.Generator, keep: bool = True
) -> Tally:
    """Look for values outside the bounds, and for false proofs, in one box.

    Args:
        subject: The model.
        bounds: The box.
        samples: How many points are drawn.
        rounds: How many times the search moves towards a bound afterwards.
        rng: Source of chance.
        keep: Whether the analysis keeps all bounds, so that those of inner tensors are checked.
    """
    try:
        verdict = subject.analyse(*bounds, keep=keep)
    except Exception as error:  # whatever a rule raises is its fault
        return Tally(boxes=1, faults=[f"analysis: {type(error).__name__}: {error}"])
    search = _Run(subject, verdict, *bounds, rng, Tally(boxes=1))
    for feeds in points(*bounds, 2 if subject.is_random else samples, rng):
        search.run(feeds)
    if not subject.is_random:
        search.approach(rounds)
    return search.tally


# cases of the operator tables -------------------------------------------------------------------------------------


def retyped(case: OperatorCase, dtype: Any) -> OperatorCase | None:
    """Return a case with its float32 operands in another type; None if it has none or ONNX does not allow it."""
    schema = onnx.defs.get_schema(case.op_type, case.opset, case.domain)
    kind = f"tensor({np.dtype(dtype).name if np.dtype(dtype) != np.float64 else 'double'})"
    inputs: list[Any] = []
    for i, x in enumerate(case.inputs):
        if x is None or np.dtype(x.dtype) != np.float32:
            inputs.append(x)
            continue
        if kind not in schema.inputs[min(i, len(schema.inputs) - 1)].types:
            return None
        inputs.append(x.astype(dtype) if isinstance(x, np.ndarray) else replace(x, dtype=dtype))
    return replace(case, inputs=inputs) if any(a is not b for a, b in zip(inputs, case.inputs, strict=True)) else None


def sweep_case(
    case: OperatorCase,
    *,
    seed: int = 0,
    boxes: int = 1,
    samples: int = 12,
    rounds: int = 2,
    given: Sequence[Recipe] | None = None,
) -> Tally:
    """Check several boxes around the operands of one case.

    Args:
        case: The case.
        seed: Of the operands, the boxes and the points.
        boxes: How many boxes are drawn.
        samples: See :func:`faults_in`.
        rounds: See :func:`faults_in`.
        given: Recipes of the operands' bounds, used in turn; drawn if not given.
    """
    rng = np.random.default_rng([seed, zlib.crc32(case.id.encode())])
    with np.errstate(all="ignore"):
        model, arrays = _model(case, case.arrays(seed))
    feeds = {name: _without_nan(x) for name, x in arrays.items()}
    subject = Subject(model)
    wide = _widened_subject(case, seed)
    tally = Tally()
    for number in range(boxes):
        chosen = recipes(feeds, rng)
        if given:
            chosen = {name: given[i % len(given)] for i, name in enumerate(feeds)}
        bounds = box(feeds, chosen, rng)
        found = faults_in(subject, bounds, samples=samples, rounds=rounds, rng=rng)
        if wide is not None:
            found.add(_unrounded_faults(subject, wide, bounds, samples, rng))
        found.faults = [f"{case.id}, seed {seed}, box {number}: {fault}" for fault in found.faults[:2]]
        tally.add(found)
    return tally


def _widened_subject(case: OperatorCase, seed: int) -> Subject | None:
    """Return a case of half precision as ONNX Runtime runs it on the CPU inside a network: in float32.

    It runs neighbouring operators in float32 without rounding what passes between them, even with optimisations off.
    """
    arrays = case.arrays(seed)
    kinds = {x.dtype for x in arrays if x is not None and is_float(x)}
    # Operators that name the type of their output are others in float32.
    if kinds != {np.dtype(np.float16)} or {"to", "dtype"} & case.attributes.keys() or case.op_type == "CastLike":
        return None
    with np.errstate(all="ignore"):
        wider = [x.astype(np.float32) if x is not None and x.dtype == np.float16 else x for x in arrays]
        model, _ = _model(case, wider)
    try:
        subject = Subject(model)
    except Exception:  # ONNX allows the operator in half precision alone
        return None
    subject.runtimes = {"onnxruntime-unrounded": subject.runtimes["onnxruntime"]}
    return subject


def _unrounded_faults(subject: Subject, wide: Subject, bounds: Box, samples: int, rng: np.random.Generator) -> Tally:
    """Check bounds of half precision on results that were not rounded to it, of operands that were not."""
    try:
        verdict = subject.analyse(*bounds)
    except Exception:  # reported already
        return Tally()
    limit = float(np.finfo(np.float16).max)
    trial = copy.copy(wide)

    def run(feeds: Feeds) -> dict[str, Array]:
        values: dict[str, Array] = wide.runtimes["onnxruntime-unrounded"](feeds)
        with np.errstate(all="ignore"):
            return {
                name: np.where(np.abs(y) > limit, np.copysign(np.inf, y), y).astype(np.float32) if is_float(y) else y
                for name, y in values.items()
            }

    widened = {name: None if x is None else _widened(x) for name, x in verdict.bounds.items()}
    lower, upper = ({k: x.astype(np.float32) if is_float(x) else x for k, x in end.items()} for end in bounds)
    trial.runtimes = {"onnxruntime-unrounded": run}
    search = _Run(trial, Verdict(widened, verdict.held), lower, upper, rng)
    for feeds in points(lower, upper, samples, rng):
        search.run({k: _within_half(x) if is_float(x) else x for k, x in feeds.items()})
    return search.tally


def _within_half(x: Array) -> Array:
    limit = float(np.finfo(np.float16).max)
    return np.where(np.isfinite(x), np.clip(x, -limit, limit), x).astype(x.dtype)


def _widened(x: Interval) -> Interval:
    return Interval(x.lower.float(), x.upper.float(), x.shape) if x.dtype is torch.float16 else x


def _without_nan(x: Array) -> Array:
    return np.where(np.isnan(x), np.zeros_like(x), x) if is_float(x) else x


def check_case(case: OperatorCase, *, seed: int = 0, samples: int = 12) -> None:
    """Assert that bounds enclose, and proofs hold, in a box around a case's operands."""
    faults = sweep_case(case, seed=seed, samples=samples).faults
    assert not faults, "\n".join(faults)
