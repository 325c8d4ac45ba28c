"""The difference of two models over a box, and the operators that one has and the other has not: proof and search.

Both models are one network.  An input at which the difference is positive, or a new operator receives invalid input,
shows a broken promise; a proof that there is none proves the promise for the whole box, on ONNX Runtime.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir
import torch
from dnnv.properties import Expression
from dnnv.properties.expressions import (
    And,
    Call,
    Constant,
    Context,
    Forall,
    Implies,
    LessThanOrEqual,
    Network,
    Symbol,
)
from torch import Tensor

from ranum_falsify.config import SearchConfig
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.lazy import cached_property
from ranum_falsify.network import Graph, read
from ranum_falsify.network.optimised import find_known_details, optimise_model
from ranum_falsify.network.tensors import is_floating, to_numpy, to_torch
from ranum_falsify.process.deadline import Deadline, OutOfTime
from ranum_falsify.properties.language import vocabulary
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.rewrite.checks.comparing import Tolerance
from ranum_falsify.rewrite.checks.inputs import Box as Ranges
from ranum_falsify.rewrite.checks.joining import Allowance, Joined, Numbering, join
from ranum_falsify.rewrite.checks.samples import SampleFault
from ranum_falsify.rewrite.model import has_external_data, to_proto
from ranum_falsify.rewrite.verify import Guarantee
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.search.batching import BatchedModel
from ranum_falsify.verify.search.converter import convert
from ranum_falsify.verify.search.descent import Descent, StepSizes
from ranum_falsify.verify.search.result import Answer
from ranum_falsify.verify.search.starts import Box, sample_starts

_EXTREME_STARTS = 64
_STEPS = 150
_SIZES = StepSizes(largest=1.0, smallest=0.05, decay=0.9)
"""The last steps are 1e-7 of the first, so that narrow peaks are met."""
_FRACTIONS = 9


def drive(
    graph: Graph, boxes: Sequence[Box], *, rounds: int = 2, seed: int, deadline: Deadline
) -> Iterator[list[np.ndarray]]:
    """Yield inputs at which the first output of a network has a positive element, as PyTorch computes it.

    Elements of the other outputs are driven to their extremes, and the lines between these are walked along.  After the
    first input, only such are yielded at which the element is twice what it was before.

    Args:
        graph: The network.
        boxes: Where its inputs lie.
        rounds: How many rounds there are, each of `_EXTREME_STARTS` starts.
        seed: Seed of the choices.
        deadline: When to stop.
    """
    model = BatchedModel(convert(graph))
    generator = torch.Generator().manual_seed(seed)
    greatest = 0.0
    for inputs in _visit(model, boxes, rounds, generator):
        if deadline.has_passed:
            return
        outputs, _ = model.run(inputs)
        excess = outputs[0].reshape(len(outputs[0]), -1).nan_to_num(nan=-torch.inf).amax(1)
        value, position = excess.max(0)
        if value > 2 * greatest:
            greatest = float(value)
            yield [to_numpy(x[position]).copy() for x in inputs]


def _visit(
    model: BatchedModel, boxes: Sequence[Box], rounds: int, generator: torch.Generator
) -> Iterator[list[Tensor]]:
    """Yield batches of inputs."""
    for number in range(rounds):
        starts = sample_starts(boxes, _EXTREME_STARTS, generator, first=number == 0)
        descent = Descent(boxes, starts, _SIZES, generator)
        choice = torch.rand(_EXTREME_STARTS, generator=generator)
        for _ in range(_STEPS):
            yield descent.inputs
            gradients = _differentiate(model, descent.inputs, choice)
            if gradients is None:
                break
            descent.step(gradients)
        for fraction in np.linspace(0, 1, _FRACTIONS + 2)[:-1]:
            yield [
                box.find_nearest(x.double() * fraction + x.double().roll(1, 0) * (1 - fraction))
                for box, x in zip(boxes, descent.inputs, strict=True)
            ]


def _differentiate(model: BatchedModel, inputs: Sequence[Tensor], choice: Tensor) -> list[Tensor | None] | None:
    """Return the slopes of an element of each sample, None where none depends on the inputs."""
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    outputs, _ = model.run(leaves)
    floats = [y.reshape(len(y), -1).double() for y in outputs[1:] if y.requires_grad and y.numel()]
    if not floats:
        return None
    heights = torch.cat(floats, 1)
    chosen = heights.gather(1, (choice * heights.shape[1]).long()[:, None])[:, 0]
    signed = torch.where(torch.arange(len(chosen)) // 2 % 2 == 0, chosen, -chosen)
    wanted = [x for x in leaves if x.requires_grad]
    found = iter(torch.autograd.grad(signed.nan_to_num().sum(), wanted, allow_unused=True))
    return [next(found) if x.requires_grad else None for x in leaves]


_MOST_ROUNDS = 12
_STARTS = 100


@dataclass(frozen=True)
class Judgement:
    """What runs of both models on an input that the search found showed.

    Attributes:
        fault: What the guarantee does not allow, None where it allows what it saw.
        distance: How far outputs are apart beyond their relative tolerance.
    """

    fault: SampleFault | None
    distance: float = 0.0


_Judge = Callable[[Mapping[str, np.ndarray]], Judgement]


@dataclass(frozen=True, kw_only=True)
class DifferenceQuestion:
    """What is asked about two models.

    Attributes:
        old: The model before.
        new: The model after.
        guarantee: What must hold of their outputs.
        tolerance: How far outputs may be apart.
        box: Where inputs lie.
        shapes: The shapes of the inputs, which have sizes for symbolic dimensions.
        timeout: Seconds.
        seed: Seed of the search.
        threads: Threads of torch and ONNX Runtime.
        numbering: What has numbered tensors of the models.
    """

    old: ir.Model
    new: ir.Model
    guarantee: Guarantee
    tolerance: Tolerance
    box: Ranges
    shapes: Mapping[str, tuple[int, ...]]
    timeout: float
    seed: int = 0
    threads: int = 1
    numbering: Numbering = field(default_factory=Numbering)

    @cached_property
    def joined(self) -> Joined:
        """Both models as one."""
        return join(self.old, self.new, self.numbering)

    @cached_property
    def graph(self) -> Graph:
        """The network of the difference beyond the tolerance."""
        return self.read(0.0)

    def read(self, least: float, *, exposed: bool = False) -> Graph:
        """Return the network of the difference.

        Args:
            least: The least absolute tolerance.
            exposed: Whether what the new model computes in between is an output, too.
        """
        known = vars(self).get("graph")
        model = self.joined.subtract(self.allowances(least), exposed=exposed)
        return read(model, dims=self.dims, known={} if known is None else find_known_details(known))

    @property
    def obstacle(self) -> str:
        """Why the models cannot be looked at as one network, empty where they can."""
        without = [name for name in self.shapes if name not in self.box]
        if without:
            return f"input {without[0]!r} has no range; give --box"
        if any(self.new.opset_imports.get(domain, v) != v for domain, v in self.old.opset_imports.items()):
            return "the opsets differ"
        if has_external_data(self.old) or has_external_data(self.new):
            return "weights lie in files of their own"
        if {value.name for value in self.old.graph.inputs} & {value.name for value in self.old.graph.outputs}:
            return "an output is an input"
        return ""

    @property
    def dims(self) -> dict[str, int]:
        """The sizes of symbolic dimensions, by input and axis."""
        return {
            f"{value.name}:{axis}": self.shapes[value.name or ""][axis]
            for value in self.old.graph.inputs
            for axis, dim in enumerate(value.shape or ())
            if value.name in self.shapes and (not isinstance(dim, int) or dim < 0)
        }

    def allowances(self, least: float) -> dict[str, Allowance]:
        """Return the tolerance of each output, absolute tolerances no less than asked for."""
        return {value.name or "": self._allowance(value, least) for value in self.old.graph.outputs}

    def _allowance(self, value: ir.Value, least: float) -> Allowance:
        """Return the tolerance of an output; integers and flags must be equal."""
        dtype = None if value.dtype is None else np.dtype(value.dtype.numpy())
        is_float = dtype is not None and is_floating(dtype)
        if dtype is None or not is_float or self.guarantee.kind != "tolerance":
            return 0.0, 0.0
        return self.tolerance.relative(dtype), max(least, self.tolerance.atol)


@dataclass(frozen=True)
class Decision:
    """What came of proof and search.

    Attributes:
        how: `proved`, `searched N s`, or `not searched (why)`.
        fault: What was found, None where nothing was.
    """

    how: str
    fault: SampleFault | None = None


def decide(question: DifferenceQuestion, judge: _Judge) -> Decision:
    """Prove that two models differ by no more than they may in a box, and that no new operator receives invalid input.

    What is not proved is searched for an input at which it is not so.
    """
    if question.obstacle:
        return Decision(f"not searched ({question.obstacle})")
    try:
        with Context():
            return _decide_levels(question, judge)
    except RanumFalsifyError as error:
        return Decision(f"not searched ({error})")


def _decide_levels(question: DifferenceQuestion, judge: _Judge) -> Decision:
    """Decide about the models as written, and as ONNX Runtime's optimiser writes them; each has its share of time.

    A proof for both models as one network is none for what the optimiser makes of each: it fuses otherwise.
    """
    began, deadline = time.monotonic(), Deadline.after(question.timeout)
    optimised = _optimise(question, deadline)
    questions = [question] if optimised in (None, question) else [question, optimised]
    proofs: list[tuple[bool, bool]] = []
    for asked, ends in deadline.share_among(questions):
        try:
            fault, is_valid, is_equal = _decide(asked, judge, ends)
        except OutOfTime:
            continue
        except RanumFalsifyError:
            if asked is question:
                raise
            optimised, questions = None, [question]
            continue
        if fault is not None:
            return Decision("", fault)
        proofs.append((is_valid, is_equal))
    if not proofs:
        short = f"{question.timeout:g} s are too short for models of this size; --verify-timeout gives more"
        return Decision(f"not searched ({short})")
    are_valid, are_equal = (all(column) and len(proofs) == len(questions) for column in zip(*proofs, strict=True))
    if are_valid and are_equal:
        return Decision("proved" if optimised is not None else "proved (without graph optimisations)")
    part = " (validity proved)" if are_valid else " (difference proved)" if are_equal else ""
    return Decision(f"searched {time.monotonic() - began:.0f} s{part}")


def _optimise(question: DifferenceQuestion, deadline: Deadline) -> DifferenceQuestion | None:
    """Return what is asked about the models at ONNX Runtime's default level; None where these are not known in time.

    It is the same question where the optimiser changes nothing that is computed.
    """
    models = []
    for model in (question.old, question.new):
        if deadline.has_passed:
            return None
        found, _ = optimise_model(to_proto(model))
        if found is None:
            return None
        models.append(ir.from_proto(found))
    old, new = models
    is_same = question.numbering.is_same
    if is_same(question.old, old) and is_same(question.new, new):
        return question
    return replace(question, old=old, new=new)


def _decide(question: DifferenceQuestion, judge: _Judge, deadline: Deadline) -> tuple[SampleFault | None, bool, bool]:
    """Decide what is left of validity first, then of the difference; return a fault, and which of them is proved."""
    deadline.check()
    fault, is_valid = _decide_validity(question, judge, deadline.share(1 / 2))
    is_equal = question.joined.is_same
    if fault is None and not is_equal and question.guarantee.kind != "metric":
        fault, is_equal = _decide_difference(question, judge, deadline)
    return fault, is_valid, is_equal


def _decide_validity(
    question: DifferenceQuestion, judge: _Judge, deadline: Deadline
) -> tuple[SampleFault | None, bool]:
    """Return a new operator's invalid input, and whether it is proved that there is none.

    Operators that the old model has too receive there what they receive here.
    """
    whole = not question.joined.is_partial
    if not question.joined.added or question.joined.is_same:
        return None, whole and not question.joined.added
    graph = question.graph
    there = {op.name for op in graph.nodes}  # constants are computed when it is read
    nodes = [name for name in question.joined.added if name in there]
    if not nodes:
        return None, whole
    deadline.check()
    goal = Call(Constant(vocabulary.no_invalid_input), (_applied(question),), {"nodes": Constant(nodes)})
    answer = _ask(question, graph, goal, deadline, starts=_STARTS)
    for operator in answer.operators:
        found = operator.counterexample
        fault = None if found is None else judge(_named(question, found.inputs)).fault
        if fault is not None:
            return fault, False
    return None, answer.verdict == "holds" and whole


def _decide_difference(
    question: DifferenceQuestion, judge: _Judge, deadline: Deadline
) -> tuple[SampleFault | None, bool]:
    """Return an input at which the outputs differ by more than they may, and whether it is proved that there is none.

    What the guarantee allows, because the old model is not exact itself, is allowed from then on.
    """
    fault = _drive(question, judge, deadline.share(1 / 4))
    if fault is not None:
        return fault, False
    least = 0.0
    for number in range(_MOST_ROUNDS):
        if deadline.has_passed:
            break
        answer = _ask(question, question.read(least) if least else question.graph, _goal(question), deadline, starts=-1)
        if answer.verdict == "holds":
            return None, number == 0
        if answer.counterexample is None:
            return None, False
        judgement = judge(_named(question, answer.counterexample.inputs))
        if judgement.fault is not None or not 0 < judgement.distance < math.inf or deadline.has_passed:
            return judgement.fault, False
        if question.guarantee.kind != "tolerance":
            return None, False
        least = 2 * max(least, judgement.distance)
    return None, False


def _drive(question: DifferenceQuestion, judge: _Judge, deadline: Deadline) -> SampleFault | None:
    """Return an input at which the outputs differ by more than they may, among those at which something is extreme."""
    graph = question.read(0.0, exposed=True)
    variables = reduce(_state(question, _goal(question)), {_NETWORK: question.graph}).inputs
    boxes = [Box(to_torch(variable.lower), to_torch(variable.upper)) for variable in variables]
    for inputs in drive(graph, boxes, seed=question.seed, deadline=deadline):
        fault = judge(dict(zip(question.shapes, inputs, strict=True))).fault
        if fault is not None:
            return fault
    return None


def _goal(question: DifferenceQuestion) -> Expression:
    """Return that no element of the difference is positive."""
    return LessThanOrEqual(_applied(question), Constant(0.0))


def _ask(question: DifferenceQuestion, graph: Graph, goal: Expression, deadline: Deadline, *, starts: int) -> Answer:
    """Decide whether a goal holds on the box, with a number of starts, or -1 for as many as there is time for."""
    left = max(deadline.left, 0.1)
    config = SearchConfig(
        n_starts=starts,
        timeout=left,
        seed=question.seed,
        processors=question.threads,
        prove_timeout=left / 2,
        runtime="onnxruntime",
    )
    return falsify(reduce(_state(question, goal), {_NETWORK: graph}), config)


_NETWORK = "N"


def _variables(question: DifferenceQuestion) -> list[Expression]:
    symbol, count = Symbol("x"), len(question.shapes)
    return [symbol] if count == 1 else [symbol[Constant(position)] for position in range(count)]


def _applied(question: DifferenceQuestion) -> Expression:
    """Return the network, applied to its inputs."""
    return Call(Network(_NETWORK), (Symbol("x"),), {})


def _state(question: DifferenceQuestion, goal: Expression) -> Expression:
    """Return the property that a goal holds on the box."""
    parts = []
    for variable, (name, shape) in zip(_variables(question), question.shapes.items(), strict=True):
        low, high = (_bound(bound, shape) for bound in question.box[name])
        parts += [LessThanOrEqual(Constant(low), variable), LessThanOrEqual(variable, Constant(high))]
    return Forall(Symbol("x"), Implies(And(*parts), goal))


def _bound(bound: np.ndarray | np.floating, shape: tuple[int, ...]) -> float | np.ndarray:
    """Return a bound as the property holds it: a number, or an array of the input's shape."""
    return float(bound) if np.ndim(bound) == 0 else np.broadcast_to(bound, shape).copy()


def _named(question: DifferenceQuestion, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a counterexample by the names of the model's inputs."""
    return dict(zip(question.shapes, inputs.values(), strict=True))
