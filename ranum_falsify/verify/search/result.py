"""What a run found, as frozen values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np

from ranum_falsify.config import Optimisations, Reach, Runtime, ViolationKind
from ranum_falsify.network.source import Source
from ranum_falsify.verify.prove.assumptions import Assumptions

Oracle = Literal["onnxruntime", "reference", "torch", "module", "autograd", "autograd-flushed", "autograd-torch"]
Verdict = Literal["holds", "violated", "unknown"]

Number: TypeAlias = Annotated[
    float, msgspec.Meta(extra_json_schema={"type": ["number", "string"], "pattern": "^(-?inf|nan)$"})
]
"""A number, which JSON holds as text where it is not finite."""

Extent: TypeAlias = tuple[Number, Number]
"""The least and the greatest of some numbers."""

Example = TypeVar("Example")


@dataclass(frozen=True, kw_only=True, eq=False)
class Counterexample(Mapping[str, np.ndarray]):
    """Inputs that violate the property, as ONNX Runtime has confirmed.

    As a mapping: the arrays that replay it, by ONNX input, or by variable without a network.

    Attributes:
        inputs: One array per quantified variable of the property, in the model's dtype and shape.
        network: Name of the network that the violating operator belongs to; "" for a classic property.
        feeds: The same as inputs of that network, by ONNX input name.
    """

    inputs: Mapping[str, np.ndarray]
    network: str = ""
    feeds: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def _arrays(self) -> Mapping[str, np.ndarray]:
        return self.feeds if self.network else self.inputs

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the array of an input."""
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the inputs."""
        return iter(self._arrays)

    def __len__(self) -> int:
        """Return the number of inputs."""
        return len(self._arrays)


KIND_NAMES: Mapping[ViolationKind, str] = {
    "nan": "NaN",
    "inf": "infinity",
    "error": "an error",
    "crash": "a crash",
    "gradient": "a derivative that is not finite",
}
"""What an invalid operator gives, in words."""


@dataclass(frozen=True, kw_only=True)
class OperatorRecord(Generic[Example]):
    """What is known of one operator.

    Attributes:
        network: Name of its network in the property; `N` without one.
        node: Its name in the graph: the ONNX name where that is unique.
        op_type: ONNX operator.
        verdict: `open` says that no counterexample was found and no proof either; `proved`, that no input of the
            property's box makes it invalid, whatever other operators do; `masked`, where only outputs count, that it is
            not proved, but no output shows what it makes: by a proof, or, with a counterexample, on that input.
        constraint: The condition on its operands, in words.
        reason: Why a violation is invalid.
        kind: What came out on violation; `error` where ONNX Runtime refuses to go on, `crash` where its process ends,
            `gradient` for a derivative that is not finite.
        reach: Whether the violation shows at an output, at ONNX Runtime's default level of graph optimisations.
        optimisations: Which of them it shows with; None where that is unknown.
        fused: If the violation shows at the default level alone: the operator that the optimiser put in place of this
            one, if any; `operands` are then those of that operator.
        runtimes: Runtimes whose kernels break the condition at the counterexample; none where they were not compared.
        oracle: Who confirmed it, PyTorch only where the answer is about nothing else; `autograd` differentiates at the
            operands that ONNX Runtime computes, `autograd-flushed` at those that it computes with denormal numbers
            flushed to 0, as many devices do, and `autograd-torch` at those that PyTorch computes; `module` is PyTorch
            too, which ran an exported module itself.
        operands: Least and greatest value of each operand at the counterexample.
        returned: Where only the reference evaluator shows NaN: least and greatest number that ONNX Runtime returns in
            its place.
        counterexample: The confirmed inputs, or the files that hold them; None where none was found, or written.
        after: If the operator is open but its own conditions are proved: the first open operators before it, which
            alone may break it. If it is violated: those before it that fail on the same inputs, where they make
            an operand of it infinite.
        inside: If it is open because of operators in its subgraphs: these, each after the path to it.
        rewritten: Whether an open operator is proved as written, and open only because ONNX Runtime's graph
            optimisations may make an invalid one of it.
        source: The line of Python that it comes from, where the model notes it, as PyTorch's exporter does.
        gradients: Of an exported module that was run on the counterexample: parameters and inputs whose gradients were
            not finite.
        expressions: Of an exported module: the text of each operand in its line of Python, where that is certain.
        mended: Of an exported module: what to write in place of a line, by which the operator fails no more.
        proved_after_rewriting: Of one that is not proved: passes of `transform`, equal in real arithmetic, that make a
            model in which it is.
    """

    network: str
    node: str
    op_type: str
    verdict: Literal["proved", "violated", "masked", "open"]
    constraint: str
    reason: str = ""
    kind: ViolationKind | None = None
    reach: Reach | None = None
    optimisations: Optimisations | None = None
    fused: str = ""
    runtimes: tuple[Runtime, ...] = ()
    oracle: Oracle | None = None
    operands: Mapping[str, Extent] = field(default_factory=dict)
    returned: Extent | None = None
    counterexample: Example | None = None
    after: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    rewritten: bool = False
    source: Source | None = None
    gradients: tuple[str, ...] = ()
    proved_after_rewriting: tuple[str, ...] = ()
    expressions: Mapping[str, str] = field(default_factory=dict)
    mended: Source | None = None

    @property
    def title(self) -> str:
        """What stands for it."""
        return f"{self.node} ({self.op_type})"

    @property
    def full_condition(self) -> str:
        """Where its operands are valid, in the words of its line of Python, and what they are otherwise."""
        words = self.expressions
        condition = re.sub(r"\b[A-Za-z_]\w*", lambda name: words.get(name[0], name[0]), self.constraint)
        return f"{condition} (else: {self.reason})" if condition and self.reason else condition


OperatorResult: TypeAlias = OperatorRecord[Counterexample]
"""What is known of one operator, with the inputs that violate it."""


@dataclass(frozen=True, kw_only=True)
class SizeOutcome:
    """The verdict for one combination of sizes of symbolic dimensions.

    Attributes:
        dims: The sizes, of dimensions for which a range was given.
        verdict: None where they were not looked at.
    """

    dims: Mapping[str, int]
    verdict: Verdict | None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to one property.

    Attributes:
        verdict: `violated` only with a counterexample that replays on ONNX Runtime, or on PyTorch where the answer is
            about that alone; `holds` only with a proof.
        operators: Every operator in question, in topological order; empty for a classic property.
        counterexample: The first one found.
        unconfirmed: What the search saw and the replay did not confirm, one line each.
        notices: What a user should know about the networks: defaulted dimensions, random operators.
        seconds: Time by stage: read, reduce, prove, search, replay.
        seed: Seed of the search.
        starts: Starting points tried.
        steps: Descent steps done, over all rounds.
        interrupted: Why proof or search ended early: `timeout`, `Ctrl-C`, or "".
        runtimes: Runtimes that proofs cover; none where no proof was tried.
        steep: If the property holds and does not ask for derivatives: the operators in question whose derivatives are
            not shown to be finite; the property then holds on the forward pass only.
        assumptions: What the verdict rests on.
        departure: Inputs of a network, by name, on which ONNX Runtime left bounds that were proved, which a notice
            tells; empty where it did not.
        sizes: Where ranges of sizes were given, the verdict of each; the verdict is then about all of them, and
            everything else about one.
    """

    verdict: Verdict
    operators: tuple[OperatorResult, ...] = ()
    counterexample: Counterexample | None = None
    unconfirmed: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    starts: int = 0
    steps: int = 0
    interrupted: str = ""
    runtimes: tuple[Runtime, ...] = ()
    steep: tuple[str, ...] = ()
    assumptions: Assumptions | None = None
    departure: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    sizes: tuple[SizeOutcome, ...] = ()
