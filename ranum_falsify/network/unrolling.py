"""Loops whose number of iterations is known, unrolled: each iteration becomes nodes of the graph, named by their path.

`loop/body/log[3]` is the node `log` in the body of `loop`, in the fourth iteration.  What an iteration computes is
traced like everything else, so a condition that no input reaches ends a loop when it turns false.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ranum_falsify.errors import ModelError
from ranum_falsify.network.construction import Construction, NotUnrolledError
from ranum_falsify.network.fields import attribute_values, initializers_of
from ranum_falsify.network.model_file import check_structure
from ranum_falsify.network.nesting import name_of
from ranum_falsify.network.tensors import ONNX_TO_NUMPY
from ranum_falsify.network.trace import Scope, Traced, constant


def find_counting(body: onnx.GraphProto) -> frozenset[int]:
    """Return the positions, among the outputs of the body of a Loop, of those that are the number of the iteration.

    Such a state is that number in the next iteration, where another output may be the state.
    """
    renamed = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity" and node.input}
    inputs, outputs = ([info.name for info in infos] for infos in (body.input, body.output))
    counting, before = set(inputs[:1]), 0
    while before < len(counting):
        before = len(counting)
        # The body reads the number and the condition before its states, and gives the condition before them.
        counting |= {read for read, name in zip(inputs[2:], outputs[1:], strict=False) if name in counting}
        counting |= {new for new, old in renamed.items() if old in counting}
    return frozenset(position for position, name in enumerate(outputs) if name in counting)


def is_well_defined(body: onnx.GraphProto) -> bool:
    """Tell whether ONNX Runtime writes all outputs of the body of a Scan."""
    inputs = {info.name for info in body.input}
    return not _list_repeated(body) and all(info.name not in inputs for info in body.output)


def check_branch(node: onnx.NodeProto, branch: onnx.GraphProto) -> None:
    """Check that ONNX Runtime writes all outputs of a branch.

    Raises:
        ModelError: Two are the same tensor, or there are fewer than the node has.
    """
    if len(branch.output) != len(node.output):
        raise ModelError(
            f"node {name_of(node)!r} ({node.op_type}) has {len(node.output)} outputs, a branch of it "
            f"{len(branch.output)}; export the model again"
        )
    for name in _list_repeated(branch):
        raise ModelError(
            f"node {name_of(node)!r} ({node.op_type}): {name!r} is two outputs of a branch, and ONNX Runtime writes "
            "only one of them; put an Identity before the other"
        )


def _list_repeated(graph: onnx.GraphProto) -> list[str]:
    return [name for name, count in Counter(info.name for info in graph.output).items() if count > 1]


_NO_LIMIT = 2**31 - 1
"""Trip counts from here on stand for loops that only their condition ends."""

_LOOPS = ("Loop", "Scan")


def is_loop(node: onnx.NodeProto) -> bool:
    """Tell whether a node runs its subgraph several times."""
    return node.op_type in _LOOPS and node.domain in ("", "ai.onnx")


def unroll(builder: Construction, node: onnx.NodeProto, scope: Scope) -> None:
    """Add the iterations of a loop to a graph, and what the loop writes to a scope.

    Raises:
        NotUnrolledError: The number of iterations is not known, or too large.
        ModelError: An iteration cannot run.
    """
    _Loop(builder, node, scope).run() if node.op_type == "Loop" else _Scan(builder, node, scope).run()


class _Unrolled:
    """One loop while it is unrolled.

    Attributes:
        states: What one iteration hands to the next.
        rows: For each output that collects, what the iterations gave.
    """

    def __init__(self, builder: Construction, node: onnx.NodeProto, scope: Scope, states: Sequence[Traced]) -> None:
        attributes = {a.name: a for a in node.attribute}
        if "body" not in attributes:
            raise NotUnrolledError("it has no body")
        self.builder, self.node, self.scope = builder, node, scope
        self.body = attributes.pop("body").g
        self.attributes = attribute_values(attributes.values())
        self.name = name_of(node)
        self.order = check_structure(self.body, outer=frozenset(scope.names()))
        self.inputs = [info.name for info in self.body.input]
        self.outputs = [info.name for info in self.body.output]
        self.states = list(states)
        self.rows: list[list[Traced]] = []

    def iterate(self, number: int | None, tensors: Sequence[Traced]) -> list[Traced]:
        """Add one iteration; return what the body gives.

        Args:
            number: The number of the iteration; None where there is only one.
            tensors: What the body reads, in the order of its inputs.
        """
        self.builder.spend_on_loops(max(1, len(self.order)))
        given = {name: traced.borrow() for name, traced in zip(self.inputs, tensors, strict=True)}
        inner = self.scope.child({**initializers_of(self.body), **given})
        with self.builder.path.inside(self.node, "body", number):
            self.builder.build(self.order, inner, self.outputs)
        return [inner[name] for name in self.outputs]

    def stack(self, place: int, axis: int, *, reverse: bool = False) -> Traced:
        """Return what the iterations gave to an output, side by side along a new axis."""
        rows = self.rows[place][::-1] if reverse else self.rows[place]
        name = self.node.output[len(self.states) + place]
        if not rows:
            return constant(_no_rows(self.body.output[len(self.outputs) - len(self.rows) + place], axis))
        inner = self.scope.child({f"{name}[{i}]": row for i, row in enumerate(rows)})
        axis %= len(rows[0].details.shape) + 1
        parts = [f"{name}[{i}]/row" for i in range(len(rows))]
        for i, part in enumerate(parts):
            self._add("Unsqueeze", [f"{name}[{i}]"], part, inner, axes=[axis])
        self._add("Concat", parts, f"{name}/rows", inner, axis=axis)
        return inner[f"{name}/rows"]

    def take(self, place: int, number: int, axis: int) -> Traced:
        """Return a slice of an input that the loop runs along."""
        name, part = self.node.input[place], f"{self.node.input[place]}[{number}]"
        inner = self.scope.child({f"{part}/at": constant(np.array(number, np.int64))})
        self._add("Gather", [name, f"{part}/at"], part, inner, axis=axis)
        return inner[part]

    def _add(self, op_type: str, reads: list[str], writes: str, scope: Scope, **attributes: Any) -> None:
        if "axes" in attributes and self.builder.opset >= 13:
            scope[f"{writes}/axes"] = constant(np.array(attributes.pop("axes"), np.int64))
            reads = [*reads, f"{writes}/axes"]
        node = helper.make_node(op_type, reads, [writes], name=f"{self.name}/{writes}", **attributes)
        self.builder.add(node, scope)


class _Loop(_Unrolled):
    """https://onnx.ai/onnx/operators/onnx__Loop.html."""

    def __init__(self, builder: Construction, node: onnx.NodeProto, scope: Scope) -> None:
        super().__init__(builder, node, scope, [scope[name] for name in node.input[2:]])
        self.rows = [[] for _ in self.outputs[1 + len(self.states) :]]

    def run(self) -> None:
        """Add the iterations, one after another until the condition is false or the trip count is reached."""
        if find_counting(self.body):
            raise NotUnrolledError("ONNX Runtime counts on in what it hands on as the number of an iteration")
        limit = self._decided(0, "the number of its iterations depends on an input")
        going = self._decided(1, "an input decides whether it runs at all")
        count, before = 0, self.builder.spent
        while going in (None, 1) and (limit is None or count < limit):
            begin = [constant(np.array(count, np.int64)), constant(np.array(True))]
            ends, *written = self.iterate(None if limit == 1 else count, [*begin, *self.states])
            count += 1
            self.states = written[: len(self.states)]
            for rows, row in zip(self.rows, written[len(self.states) :], strict=True):
                rows.append(row)
            if limit is not None and count >= limit:
                break
            decided = self.builder.decide(ends)
            if decided is None:
                raise NotUnrolledError("an input decides when it ends")
            going = int(decided)
            # On an example, a condition may end it sooner.
            if count == 1 and going and ends.is_constant and limit is not None and limit < _NO_LIMIT:
                self.builder.check_loops(limit * (self.builder.spent - before))
        for name, traced in zip(self.node.output, self.states, strict=False):
            if name:
                self.scope[name] = traced
        for place, name in enumerate(self.node.output[len(self.states) :]):
            if name:
                self.scope[name] = self.stack(place, 0)

    def _decided(self, place: int, reason: str) -> int | None:
        """Return the value of an input that steers the loop, None where it is absent."""
        if len(self.node.input) <= place or not self.node.input[place]:
            return None
        value = self.builder.decide(self.scope[self.node.input[place]])
        if value is None:
            raise NotUnrolledError(reason)
        return int(value)


class _Scan(_Unrolled):
    """https://onnx.ai/onnx/operators/onnx__Scan.html, from opset 9 on."""

    def __init__(self, builder: Construction, node: onnx.NodeProto, scope: Scope) -> None:
        count = next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 0)
        self.first = len(node.input) - count
        if builder.opset < 9 or count < 1 or self.first < 0:
            raise NotUnrolledError("it is of opset 8, or runs along nothing")
        super().__init__(builder, node, scope, [scope[name] for name in node.input[: self.first]])
        self.count = count
        self.rows = [[] for _ in self.outputs[len(self.states) :]]

    def run(self) -> None:
        """Add the iterations, one for each slice of the inputs that it runs along."""
        if not is_well_defined(self.body):
            raise NotUnrolledError(
                "ONNX Runtime does not write outputs of its body that are inputs of it, or two at once"
            )
        axes = self._list("scan_input_axes", self.count)
        backward = self._list("scan_input_directions", self.count)
        length = self._length(axes)
        for i in range(length):
            slices = [
                self.take(self.first + k, length - 1 - i if backward[k] else i, axes[k]) for k in range(self.count)
            ]
            before = self.builder.spent
            written = self.iterate(None if length == 1 else i, [*self.states, *slices])
            if not i:
                self.builder.check_loops(length * (self.builder.spent - before + self.count))
            self.states = written[: len(self.states)]
            for rows, row in zip(self.rows, written[len(self.states) :], strict=True):
                rows.append(row)
        for name, traced in zip(self.node.output, self.states, strict=False):
            if name:
                self.scope[name] = traced
        axes, backward = (self._list(f"scan_output_{what}", len(self.rows)) for what in ("axes", "directions"))
        for place, name in enumerate(self.node.output[len(self.states) :]):
            if name:
                self.scope[name] = self.stack(place, axes[place], reverse=bool(backward[place]))

    def _list(self, name: str, count: int) -> list[int]:
        given = list(self.attributes.get(name) or [0] * count)
        if len(given) != count:
            raise NotUnrolledError(f"its attribute {name} does not have {count} numbers")
        return given

    def _length(self, axes: Sequence[int]) -> int:
        """Return how many slices there are."""
        lengths = set()
        for axis, name in zip(axes, self.node.input[self.first :], strict=True):
            traced = self.scope[name]
            if not self.builder.has_known_shape(traced):
                raise NotUnrolledError("the number of its iterations depends on an input")
            shape = traced.details.shape
            if not -len(shape) <= axis < len(shape):
                raise NotUnrolledError(f"{name!r} has no axis {axis}")
            lengths.add(int(shape[axis]))
        if len(lengths) != 1:
            raise NotUnrolledError("what it runs along has several lengths")
        return lengths.pop()


def _no_rows(info: onnx.ValueInfoProto, axis: int) -> np.ndarray:
    """Return what a loop without iterations gives to an output that collects."""
    kind = info.type.tensor_type
    sizes = [dim.dim_value for dim in kind.shape.dim]
    known = kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim)
    if not known or kind.elem_type not in ONNX_TO_NUMPY:
        raise NotUnrolledError("it does not run once, and its body does not say what it would give")
    sizes.insert(axis % (len(sizes) + 1), 0)
    return np.zeros(sizes, ONNX_TO_NUMPY[kind.elem_type])
