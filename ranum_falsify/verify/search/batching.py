"""Many samples through a network at once, and the margins of targets that are observed on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.errors import MemoryShortageError, is_interruption, is_out_of_memory
from ranum_falsify.network import Graph, OperatorSpec, spec_of
from ranum_falsify.network.evaluate import Value
from ranum_falsify.properties.problem.targets import Target
from ranum_falsify.validity import Constraint
from ranum_falsify.verify.search.converter import Probe, TorchModel

_Row = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
"""Outputs of a sample, and what is observed."""

_Sample = Callable[..., _Row]

_TOO_LARGE = "one point of the box needs more memory than there is; bound the inputs that decide sizes more tightly"


class BatchedModel:
    """Runs a module that takes one sample on a batch.

    Along dimension 0 if every operator keeps samples apart there, else by `torch.func.vmap` if no value decides
    shapes or branches, else one sample after another.

    Attributes:
        model: The module.
        targets: What to observe: positions in the caller's list and targets, in any order.
        mode: How samples are batched: `along`, `vmap` or `loop`.
    """

    def __init__(self, model: TorchModel, targets: Sequence[tuple[int, Target]] = ()) -> None:
        self.model = model
        groups: dict[int, list[tuple[int, Target]]] = {}
        for position, target in targets:
            groups.setdefault(id(target.op), []).append((position, target))
        observed = [op for op in model.graph.order if id(op) in groups]
        self._probes = {id(op): probe_of([target for _, target in groups[id(op)]]) for op in observed}
        shown = [(position, target) for op in observed for position, target in groups[id(op)]]
        self.positions = [position for position, _ in shown]
        refused = [-1.0 if target.constraint.refuses else torch.inf for _, target in shown]
        self._unevaluated = torch.tensor(refused, dtype=torch.float64)
        self.mode = "along" if model.batches else "vmap" if model.separable else "loop"

    def select(self, graph: Graph, arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return those arguments of a graph that the module reads; in the module the others may be constants."""
        read = self.model.graph.input_names
        return [x for name, x in zip(graph.input_names, arguments, strict=True) if name in read]

    def run(self, inputs: Sequence[Tensor], *, outputs: bool = True) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Evaluate a batch, `(batch, *input_shape)` or of 1 to be repeated, per input.

        Returned are outputs `(batch, *output_shape)`, if wanted, and margins `(batch, targets)` in the order of
        `positions`, None where nothing is observed.
        """
        with self._draws_on(inputs[0].device):
            return self._run(inputs, self._probes, outputs=outputs)

    def observe(self, inputs: Sequence[Tensor], probes: Mapping[int, Probe]) -> Tensor | None:
        """Return what probes see, `(batch, values)`; None where inputs decide shapes, and so the number of values."""
        with self._draws_on(inputs[0].device):
            return self._run(inputs, probes, outputs=False)[1]

    def _draws_on(self, device: torch.device) -> AbstractContextManager[Any]:
        """Operators that read no tensor (`RandomNormal`) create theirs on the default device."""
        random = device.type != "cpu" and any(spec_of(op).is_random(op) for op in self.model.graph.nodes)
        return device if random else nullcontext()

    def _run(
        self, inputs: Sequence[Tensor], probes: Mapping[int, Probe], *, outputs: bool
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        count = max(len(x) for x in inputs)
        inputs = [x if len(x) == count else x.expand(count, *x.shape[1:]) for x in inputs]

        if self.mode == "along":
            return self._run_along(inputs, probes, outputs=outputs)

        def sample(*values: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
            results, seen = self.model.observe(values, probes, outputs=outputs)
            return results, (torch.cat(seen),) if seen else ()

        if self.mode == "vmap":
            results, seen = torch.func.vmap(sample, randomness="different")(*inputs)
        else:
            rows = [self._evaluate(sample, values, outputs=outputs) for values in zip(*inputs, strict=True)]
            results = tuple(torch.stack(column) for column in zip(*(row[0] for row in rows), strict=True))
            columns = list(zip(*(row[1] for row in rows), strict=True))
            even = all(len({len(x) for x in column}) == 1 for column in columns)
            seen = tuple(torch.stack(column) for column in columns) if even else ()
        return results, seen[0] if seen else None

    def _evaluate(self, sample: _Sample, values: Sequence[Tensor], *, outputs: bool) -> _Row:
        """Evaluate a sample; one that PyTorch cannot evaluate is worth a replay if ONNX Runtime may refuse it.

        Nothing is found at one that needs more memory than there is, which ONNX Runtime cannot evaluate either.
        """
        try:
            return sample(*values)
        except (MemoryError, RuntimeError, ValueError, IndexError) as error:
            if is_interruption(error):
                raise
            is_full = is_out_of_memory(error)
            if outputs and is_full:
                raise MemoryShortageError(_TOO_LARGE) from error
            if outputs:
                raise
            return (), (torch.full_like(self._unevaluated, torch.inf) if is_full else self._unevaluated,)

    def _run_along(
        self, inputs: Sequence[Tensor], probes: Mapping[int, Probe], *, outputs: bool
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        count = len(inputs[0])
        lifted = {key: _lift(probe) for key, probe in probes.items()}
        flat = [x.reshape(count, *x.shape[2:]) for x in inputs]
        results, seen = self.model.observe(flat, lifted, outputs=outputs, batch=True)
        # An output that depends on no input has no batch yet.
        whole = tuple((y if len(y) == count else y.expand(count, *y.shape[1:])).unsqueeze(1) for y in results)
        return whole, torch.cat(seen, dim=1) if seen else None


def _lift(probe: Probe) -> Probe:
    """Turn a probe of single samples into one of operands with a batch along dimension 0."""

    def observe(op: Operation, operands: Sequence[Any], outputs: Sequence[Tensor]) -> Tensor:
        width = len(operands)
        values = [*operands, *outputs]
        batched = [isinstance(value, Operation) for value in spec_of(op).operands_of(op)] + [True] * len(outputs)
        moved = [value.unsqueeze(1) for value, along in zip(values, batched, strict=True) if along]

        def sample(*tensors: Tensor) -> Tensor:
            given = iter(tensors)
            every = [next(given) if along else value for value, along in zip(values, batched, strict=True)]
            return probe(op, every[:width], every[width:])

        return torch.func.vmap(sample, randomness="different")(*moved)

    return observe


# margins --------------------------------------------------------------------------------------------------------------


def probe_of(targets: Sequence[Target]) -> Probe:
    """Return a probe of the least margin of each target of one operator, shape `(targets,)`."""
    return partial(least_margins, [target.constraint for target in targets])


def least_margins(
    constraints: Sequence[Constraint], op: Operation, operands: Sequence[Value], outputs: Sequence[Tensor]
) -> Tensor:
    """Return the least margin of each condition on an operator, shape `(conditions,)`.

    A NaN margin means that an operand became invalid upstream; it counts as not violated here.
    """
    named = _name_operands(spec_of(op), operands, outputs)
    return torch.stack([_least(constraint.margin(op, named)) for constraint in constraints])


def margin_and_crossing_of(target: Target) -> Probe:
    """Return a probe of the target's least margin, followed by the elements of its crossing where it has one."""

    def probe(op: Operation, operands: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensor:
        margin = least_margins([target.constraint], op, operands, outputs)
        crossing = target.constraint.crossing(op, _name_operands(target.spec, operands, outputs))
        return margin if crossing is None else torch.cat([margin, crossing.reshape(-1).double()])

    return probe


def margins_of(targets: Sequence[Target]) -> Probe:
    """Return a probe of all margins of the targets of one operator, flattened to `(elements,)`."""

    def probe(op: Operation, operands: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensor:
        named = _name_operands(spec_of(op), operands, outputs)
        return torch.cat([target.constraint.margin(op, named).reshape(-1).double() for target in targets])

    return probe


def _name_operands(spec: OperatorSpec, operands: Sequence[Value], outputs: Sequence[Tensor]) -> dict[str, Tensor]:
    named = {name: value for name, value in spec.name_values(operands).items() if value is not None}
    device = outputs[0].device
    for name, value in named.items():
        if isinstance(value, np.ndarray):
            named[name] = torch.from_numpy(np.array(value)).to(device)
    return named | {"output" if i == 0 else f"output_{i}": y for i, y in enumerate(outputs)}


def _least(margin: Tensor) -> Tensor:
    if margin.numel() == 0:
        return torch.full((), torch.inf, dtype=torch.float64, device=margin.device)
    return torch.nan_to_num(margin, nan=torch.inf, posinf=torch.inf, neginf=-torch.inf).amin().double()
