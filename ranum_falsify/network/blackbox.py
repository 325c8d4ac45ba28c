"""Operators without a row: ONNX Runtime evaluates them, in a child process, and nothing is known of their results.

A model with such operators can be searched and replayed, and whatever does not depend on them can be proved.  In
PyTorch they are functions with a constant derivative, because their true one is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import torch
from dnnv.nn import Operation
from dnnv.nn.utils import TensorDetails
from torch import Tensor

from ranum_falsify.errors import ModelError, UnsupportedOperatorError
from ranum_falsify.network.messages import tidy_message
from ranum_falsify.network.order import maker_of
from ranum_falsify.network.registry import OperatorSpec, admit
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.network.trace import Traced
from ranum_falsify.process.child import Child, ChildDeathError, SharedChild
from ranum_falsify.process.deadline import NEVER, Deadline

_SECONDS = 20.0
"""How long ONNX Runtime may take to load a node, and to run it on a batch."""
_SHARE = 0.75
"""The part of it that the samples get; what is left is for the answer."""
_MEMORY, _FACTOR = 2**30, 16
"""Bytes of memory that it may take for a small node, and for a large one as a multiple of its size."""

_INTEGERS = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_KINDS = frozenset(f"tensor({kind})" for kind in ("float", "double", "float16", "bool", *_INTEGERS))
"""What it may read and write, as ONNX Runtime names types."""

_LAYOUT = "com.microsoft.nchwc"

_DEATH = "ONNX Runtime crashes on it, takes too long, or needs too much memory"
_LATE = "there is no time left for it"
_evaluator = SharedChild(Path(__file__).with_name("blackbox_worker.py"))
_keys = count()
_deadline: ContextVar[Deadline] = ContextVar("_deadline", default=NEVER)


@contextmanager
def evaluate_until(deadline: Deadline) -> Iterator[None]:
    """Let ONNX Runtime evaluate operators in the block until a deadline.

    From then on it counts as refusing each sample.
    """
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def seconds_left() -> float:
    """Return how long ONNX Runtime may take until the time that :func:`evaluate_until` sets."""
    return _deadline.get().left


class BlackBox(Operation):
    """An operator without a row.

    Attributes:
        x: What it reads: its inputs, None where absent, and then what its subgraphs capture.
        proto: The node as the model has it.
        captured: Names of the tensors that its subgraphs capture; None if it has no subgraphs.
        why: Why nothing is known of it.
        engine: Evaluates it.
        body: Graph of what it repeats, if that bounds it; None if nothing is known of it.
    """


def is_black_box(source: Operation | np.ndarray) -> bool:
    """Tell whether a tensor is what an operator without a row writes."""
    return isinstance(maker_of(source), BlackBox)


def title_of(op_type: str, domain: str) -> str:
    """Return what messages call an operator."""
    return f"{domain}::{op_type}" if domain not in ("", "ai.onnx") else op_type


def describe_domain(domain: str) -> str:
    """Return what users should know of a domain whose operators they did not choose; "" if there is nothing."""
    if domain != _LAYOUT:
        return ""
    return (
        f"operators of {domain} are what ONNX Runtime makes of a model for the processor at hand, at its highest level "
        "of optimisation: ask about the model that it was given, or save it at the level ORT_ENABLE_EXTENDED"
    )


_BOUNDS: dict[tuple[str, str], Any] = {}
_BODY_INPUTS: dict[tuple[str, str], Any] = {}


def bound_black_box(op_type: str, rule: Any, domain: str = "", *, inputs: Any) -> None:
    """Declare the rule that bounds an operator without a row where its body is known: see `ranum_falsify.domain`.

    Args:
        op_type: Its name.
        rule: The rule.
        domain: Its domain.
        inputs: What bounds the inputs of its body, called as the rule is; gives None where it cannot.
    """
    _BOUNDS[domain, op_type] = rule
    _BODY_INPUTS[domain, op_type] = inputs


def is_bounded(op_type: str, domain: str) -> bool:
    """Tell whether a rule bounds an operator without a row."""
    return ("" if domain == "ai.onnx" else domain, op_type) in _BOUNDS


def body_inputs_rule(op: BlackBox) -> Any:
    """Return what bounds the inputs of an operator's body; see :func:`bound_black_box`."""
    return _BODY_INPUTS["" if op.proto.domain == "ai.onnx" else op.proto.domain, op.proto.op_type]


@cache
def spec_of_black_box(op_type: str, domain: str, *, rigid: bool, bounded: bool = False) -> OperatorSpec:
    """Return what stands for the row of an operator that has none.

    Args:
        op_type: Its name.
        domain: Its domain.
        rigid: Whether ONNX Runtime infers the shapes of its outputs; what it gives once is no shape to rely on.
        bounded: Whether the rule applies that is declared for it.
    """
    spec = OperatorSpec(
        op_type=op_type,
        domain=domain,
        node=type("BlackBox", (BlackBox,), {"__doc__": f"{title_of(op_type, domain)}."}),
        torch=_evaluate,
        interval=_BOUNDS[domain, op_type] if bounded else cast(Any, None),
        linear=None,
        operands=("x",),
        variadic=True,
        static=frozenset(),
        renamed={},
        valid=(),
        batch="vmap",
        elementwise=False,
        kernel=(),
        random=None,
        hides_nan=False,
        dynamic_shape=not rigid,
    )
    admit(spec)
    return spec


@dataclass(eq=False)
class Engine:
    """ONNX Runtime, for one node.

    Attributes:
        model: A model of this node alone, in which those operands that are constants are initializers.
        feeds: Name and position of each operand that is computed.
        outputs: Names of the outputs, "" where absent.
        rigid: Whether ONNX Runtime infers the shapes of all outputs.
    """

    model: bytes
    feeds: Mapping[str, int]
    outputs: Sequence[str]
    rigid: bool = False
    _key: str = field(default_factory=lambda: f"{next(_keys)}")
    _home: Any = None
    _last: list[np.ndarray] = field(default_factory=list)

    def load(self) -> None:
        """Load the node.

        Raises:
            UnsupportedOperatorError: ONNX Runtime does not, or it reads or writes what is not a tensor of numbers.
        """
        try:
            with _evaluator.use() as child:
                self._load_in(child)
        except ChildDeathError as error:
            raise UnsupportedOperatorError(_DEATH) from error

    def _load_in(self, child: Child) -> None:
        kind, answer = self._ask(child, "load", {"key": self._key, "model": self.model})
        if kind != "ok":
            raise UnsupportedOperatorError(f"ONNX Runtime does not run it either ({tidy_message(answer)})")
        for given, _ in answer:
            if given not in _KINDS:
                raise UnsupportedOperatorError(f"it gives {given}, and only tensors of numbers are supported")
        self._home = child
        # A tensor of unknown rank and a number look the same.
        self.rigid = all(shape and all(isinstance(size, int) for size in shape) for _, shape in answer)

    def expect(self, known: Sequence[TensorDetails]) -> None:
        """Note shape and dtype of each output, so that none is needed from a first run.

        Args:
            known: Those of the first outputs, the others are absent.
        """
        pairs = zip(self.outputs, known, strict=False)
        self._last = [
            np.broadcast_to(np.zeros((), details.dtype), tuple(details.shape)) for name, details in pairs if name
        ]

    def run(self, samples: Sequence[Sequence[Tensor | None]]) -> list[list[Tensor]]:
        """Return the outputs for each sample; where ONNX Runtime refuses one, zeros, at which nothing is found.

        Raises:
            ModelError: It refuses the first sample of all, and what it would give is not known.
        """
        return [self._outputs_of(found) for found in self._answers([self._feeds_of(sample) for sample in samples])]

    def _ask(
        self, child: Child, command: str, argument: Mapping[str, Any], seconds: float = _SECONDS
    ) -> tuple[str, Any]:
        memory = max(_MEMORY, _FACTOR * len(self.model))
        return child.ask(command, argument, timeout=seconds, memory=memory)

    def _feeds_of(self, operands: Sequence[Tensor | None]) -> dict[str, np.ndarray]:
        return {name: to_numpy(cast(Tensor, operands[position])) for name, position in self.feeds.items()}

    def _answers(self, feeds: Sequence[Mapping[str, np.ndarray]]) -> list[list[np.ndarray] | str]:
        seconds = min(_SECONDS, seconds_left())
        if seconds <= 0:
            return [_LATE] * len(feeds)
        request = {"key": self._key, "samples": feeds, "seconds": _SHARE * seconds}
        try:
            with _evaluator.use() as child:
                if self._home is not child:
                    self._load_in(child)
                kind, answer = self._ask(child, "run", request, seconds)
        except ChildDeathError:
            kind, answer = "error", _DEATH
        return [str(answer)] * len(feeds) if kind != "ok" else answer

    def _outputs_of(self, found: list[np.ndarray] | str) -> list[Tensor]:
        if not isinstance(found, str):
            self._last = found
        elif not self._last:
            raise ModelError(f"ONNX Runtime, which alone knows this operator, cannot run it ({tidy_message(found)})")
        else:
            found = [np.zeros_like(y) for y in self._last]
        written = iter(found)
        return [to_torch(np.asarray(next(written))) if name else torch.zeros(()) for name in self.outputs]


def make_engine(
    node: onnx.NodeProto, reads: Sequence[tuple[str, Traced | None]], opsets: Mapping[str, int], ir_version: int
) -> Engine:
    """Return what evaluates a node.

    Args:
        node: The node.
        reads: Name and tensor of each of its operands, then of those that its subgraphs capture.
        opsets: Opset of each domain of its model.
        ir_version: Version of the format of its model.

    Raises:
        UnsupportedOperatorError: ONNX Runtime does not load it.
    """
    inputs, constants, feeds = dict[str, onnx.ValueInfoProto](), dict[str, onnx.TensorProto](), dict[str, int]()
    for position, (name, traced) in enumerate(reads):
        if traced is None:
            continue
        if isinstance(traced.source, np.ndarray):
            constants[name] = onnx.numpy_helper.from_array(traced.source, name)
            continue
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(traced.details.dtype))
        sizes = [size if traced.fixed_shape else None for size in traced.details.shape]
        inputs[name] = onnx.helper.make_tensor_value_info(name, kind, sizes)
        feeds[name] = position
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", list(inputs.values()), outputs, list(constants.values()))
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    # From this version of the format on, initializers need not be inputs.
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=max(ir_version, 4))
    engine = Engine(model.SerializeToString(), feeds, tuple(node.output))
    engine.load()
    return engine


# in PyTorch -----------------------------------------------------------------------------------------------------------


def _evaluate(op: Operation, *operands: Tensor | None) -> tuple[Tensor, ...]:
    results: tuple[Tensor, ...] = _Evaluation.apply(op.engine, False, *operands)  # type: ignore[no-untyped-call]
    return results


class _Evaluation(torch.autograd.Function):
    """One sample, or a batch along dimension 0.

    A result is taken to move with those operands that have its shape, place by place, and with the mean of the others.
    """

    @staticmethod
    def forward(engine: Engine, batched: bool, *operands: Tensor | None) -> tuple[Tensor, ...]:
        """Return what ONNX Runtime gives, on the device of the operands."""
        given = [x for x in operands if x is not None]
        device = given[0].device if given else torch.get_default_device()
        rows: list[Any] = [operands]
        if batched:
            along = [[None] * len(given[0]) if x is None else x for x in operands]
            rows = list(zip(*along, strict=True))
        results = engine.run(rows)
        columns = zip(*results, strict=True)
        return tuple((torch.stack(column) if batched else column[0]).to(device) for column in columns)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep the operands' shapes, and mark what has no derivative."""
        _, ctx.batched, *operands = inputs
        ctx.operands = [None if x is None else (x.shape, x.dtype) for x in operands]
        ctx.mark_non_differentiable(*(y for y in output if not y.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of each operand."""
        floating = [g for g in gradients if g is not None and g.is_floating_point()]
        return None, None, *(_pull_back(known, floating, batched=ctx.batched) for known in ctx.operands)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], engine: Engine, batched: bool, *operands: Tensor | None
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Evaluate a batch of samples in one request."""
        moved = [
            x if x is None else x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(operands, in_dims[2:], strict=True)
        ]
        results = _Evaluation.apply(engine, True, *moved)  # type: ignore[no-untyped-call]
        return results, (0,) * len(results)


def _pull_back(
    operand: tuple[torch.Size, torch.dtype] | None, gradients: Sequence[Tensor], *, batched: bool
) -> Tensor | None:
    if operand is None or not operand[1].is_floating_point or not gradients:
        return None
    shape, dtype = operand
    along = [g.to(dtype) for g in gradients if g.shape == shape]
    if along:
        return torch.stack(along).sum(0)
    count = shape[0] if batched else 1
    means = torch.stack([g.to(dtype).reshape(count, -1).sum(1) / max(g.numel() // count, 1) for g in gradients]).sum(0)
    return means.reshape(-1, *[1] * (len(shape) - 1)).expand(shape) if shape else means[0]
