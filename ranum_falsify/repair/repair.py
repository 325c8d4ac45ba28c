"""A repair of a model: what it changes, what is proved of it, what it costs, and how it ranks among others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import onnx

from ranum_falsify.config import Runtime
from ranum_falsify.network.nesting import attribute_graphs

Kind = Literal["rewrite", "guard", "clip"]
"""How a model is changed: the same function in other operators; a change of the operands that are invalid; a narrower
range of a tensor.  The gentlest first."""

Place = Literal["graph", "operand", "attribute", "input", "weight", "tensor"]
"""Where: the nodes of a pattern, what a hazard reads, an attribute of it, an input of the model, an initializer,
another inner tensor."""

_MATERIAL = 1e-3
"""Relative changes of outputs from this one on destroy more than they repair."""

Standing = Literal["proved", "not falsified"]
"""Whether the ordinary prover proves the repaired model, or only no counterexample was found in it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of a model.

    Attributes:
        kind: See :data:`Kind`.
        place: See :data:`Place`.
        node: The operator that it repairs; the last node of the pattern of a rewrite.
        tensor: The tensor whose range it limits; empty for a rewrite and an attribute.
        text: What stands in the model now, such as `Max(p, 1.1754944e-38)`, or the name of the pass.
        kept: Share of the tensor's valid range, in the repaired property, that is kept: mean over its elements, and
            that of the element that keeps the least.
        unchanged: Where the tensor is the same as before, bit for bit, as the end of a sentence; empty for a rewrite.
        keeps_gradient: Whether gradients pass through it everywhere.
        torch: The line of PyTorch that does the same.
        tensorflow: The line of TensorFlow.
    """

    kind: Kind
    place: Place
    node: str
    tensor: str = ""
    text: str
    kept: tuple[float, float] = (1.0, 1.0)
    unchanged: str = ""
    keeps_gradient: bool = True
    torch: str = ""
    tensorflow: str = ""


@dataclass(frozen=True, kw_only=True)
class OutputChange:
    """By how much the outputs differ from the original's and from what it means, its formula in real numbers.

    Differences from the original's are those on inputs on which none of its operators receives invalid input.

    Attributes:
        samples: How many such inputs were run.
        largest: The greatest absolute difference of an element.
        mean: The mean absolute difference of all elements.
        relative: The greatest absolute difference divided by the greatest magnitude in that output of the original.
        equal: On how many of these inputs all outputs are the same, bit for bit.
        away: The greatest relative error of an output where the original's is right: its distance from what is meant,
            or from the original's where that is not known, relative to that number, or to 1/1000 of the greatest of
            the output; 0 where that is no more than rounding, or than twice the original's own.
        errors: Where outputs differ by more than rounding, the greatest relative errors of the original's and of the
            repaired model's; None where none do, or what is meant is not known.
        broken: How many inputs were run on which an operator of the original receives invalid input.
        beyond: The greatest relative error of an output that is not finite in the original, and has a meaning.
    """

    samples: int
    largest: float = 0.0
    mean: float = 0.0
    relative: float = 0.0
    equal: int = 0
    away: float = 0.0
    errors: tuple[float, float] | None = None
    broken: int = 0
    beyond: float = 0.0


@dataclass(frozen=True, kw_only=True)
class GraphDiff:
    """The nodes that a repair removes and adds, one line each, in the order of the graph."""

    removed: Sequence[str] = ()
    added: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Repair:
    """A repaired model.

    Attributes:
        changes: What is changed, in the order of the graph.
        model: The repaired model; inputs, outputs, initializers, metadata and opset are those of the original.
        standing: See :data:`Standing`.
        runtimes: The runtimes that the proof covers; none where there is no proof.
        repaired: The operators of the original that were open and are proved or gone now.
        left: Operators that are not proved in the repaired model.
        outputs: By how much outputs differ; None where that was not measured.
        operations: float32 operations added per inference; negative where there are fewer.
        diff: The nodes removed and added.
        seconds: How long it took to find.
    """

    changes: Sequence[Change]
    model: onnx.ModelProto = field(repr=False)
    standing: Standing
    runtimes: tuple[Runtime, ...] = ()
    repaired: Sequence[str] = ()
    left: Sequence[str] = ()
    outputs: OutputChange | None = None
    operations: int = 0
    diff: GraphDiff = field(default_factory=GraphDiff, repr=False)
    seconds: float = 0.0

    @property
    def loss(self) -> float:
        """By how much it changes outputs that were right, relative to them; 0 where no expert would mind."""
        away = 0.0 if self.outputs is None else self.outputs.away
        return away if away > _MATERIAL else 0.0

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of its changes, the gentlest first."""
        order: tuple[Kind, ...] = ("rewrite", "guard", "clip")
        return tuple(kind for kind in order if any(change.kind == kind for change in self.changes))

    @property
    def kept(self) -> Mapping[str, float]:
        """Share of the valid range that is kept, by tensor that is limited: the mean over its elements."""
        return {change.tensor: change.kept[0] for change in self.changes if change.tensor}

    @property
    def keeps_gradient(self) -> bool:
        """Whether gradients pass through all changes everywhere."""
        return all(change.keeps_gradient for change in self.changes)


_EXACT = 1e-4
"""Errors up to this one are those of float32 and its order of operations."""


def rank(repairs: Iterable[Repair]) -> list[Repair]:
    """Return repairs, the best first.

    It destroys nothing, is proved, no clip, computes what the original means wherever that has a value, is a rewrite,
    changes nothing that was right, keeps ranges and gradients, and has few operations, in this order.
    """
    return sorted(repairs, key=_rank)


def _rank(repair: Repair) -> tuple[float, ...]:
    error = 0.0 if repair.outputs is None else max(repair.outputs.away, repair.outputs.beyond)
    return (
        float(repair.loss > 0),
        float(repair.standing != "proved"),
        float(len(repair.left)),
        float("clip" in repair.kinds),
        repair.loss,
        _digits_lost(error),
        float(repair.kinds != ("rewrite",)),
        float(repair.outputs is not None and repair.outputs.away > 0),
        -round(min(repair.kept.values(), default=1.0), 3),
        float(not repair.keeps_gradient),
        float(repair.operations),
    )


def _digits_lost(error: float) -> float:
    """Return how many decimal digits an error costs beyond rounding."""
    return max(0.0, math.log10(error / _EXACT) // 1) if 0 < error < math.inf else error


def diff_models(before: onnx.ModelProto, after: onnx.ModelProto) -> GraphDiff:
    """Return the nodes that are not in both models, subgraphs included; a node that reads another tensor is another."""
    old, new = list(_lines(before.graph)), list(_lines(after.graph))
    return GraphDiff(removed=_without(old, new), added=_without(new, old))


def _without(these: list[str], those: list[str]) -> tuple[str, ...]:
    left = Counter(those)
    found = []
    for line in these:
        if left[line]:
            left[line] -= 1
        else:
            found.append(line)
    return tuple(found)


def _lines(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        kind = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        name = f" {node.name}:" if node.name else ""
        yield f"{kind}{name} {', '.join(node.input)} -> {', '.join(filter(None, node.output))}"
        for inner in attribute_graphs(node):
            yield from _lines(inner)
