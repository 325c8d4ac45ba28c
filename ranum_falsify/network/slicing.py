"""Positions of operations, by which networks are sliced, and the slices that users write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dnnv.nn import Operation
from dnnv.nn.operations import OutputSelect

from ranum_falsify.errors import ModelError
from ranum_falsify.network.order import operands_in


def find_positions(order: Sequence[Operation], outputs: Sequence[Operation]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the position of each operation, by `id`, from the front (0, 1, ...) and from the back (-1, -2, ...).

    From the front, an output selection has the position of its operation; what no output depends on has none.

    Args:
        order: Operations in topological order.
        outputs: Those of them that are outputs of the network.
    """
    longest = {id(op): 1 for op in outputs}
    shortest = dict(longest)
    for op in reversed(order):
        if id(op) not in longest:
            continue
        step = 0 if isinstance(op, OutputSelect) else 1
        far, near = longest[id(op)] + step, shortest[id(op)] + step
        for operand in operands_in(op):
            longest[id(operand)] = max(longest.get(id(operand), far), far)
            shortest[id(operand)] = min(shortest.get(id(operand), near), near)
    for op in order:
        if isinstance(op, OutputSelect) and id(op) in longest:
            longest[id(op)] = longest[id(op.operation)]
    depth = max(longest.values())
    front = {key: depth - distance for key, distance in longest.items()}
    return front, {key: -distance for key, distance in shortest.items()}


def slice_text(index: Any) -> str:
    """Write a slice as the user did: `[2:-3, 1]`."""
    parts = [
        f"{'' if p.start is None else p.start}:{'' if p.stop is None else p.stop}" if isinstance(p, slice) else str(p)
        for p in (index if isinstance(index, tuple) else (index,))
    ]
    return f"[{', '.join(parts)}]"


def parse_slice(index: Any) -> tuple[int, int | None, int | None]:
    """Return start, stop and selected output of a slice; None for what it leaves out, except a start of 0.

    Raises:
        ModelError: The slice is not understood.
    """
    parts = index if isinstance(index, tuple) else (index,) if isinstance(index, slice) else (slice(None), index)
    if not 1 <= len(parts) <= 2 or not isinstance(parts[0], slice) or parts[0].step not in (None, 1):
        raise ModelError(f"network slice {index!r} is not understood; write N[start:stop] or N[start:stop, output]")
    selected = parts[1] if len(parts) == 2 else None
    if selected is not None and not isinstance(selected, int | np.integer):
        raise ModelError(f"network slice selects output {selected!r}; an integer is needed")
    if not all(bound is None or isinstance(bound, int | np.integer) for bound in (parts[0].start, parts[0].stop)):
        raise ModelError(f"network slice {slice_text(index)} has a bound that is not an integer")
    return parts[0].start or 0, parts[0].stop, None if selected is None else int(selected)
