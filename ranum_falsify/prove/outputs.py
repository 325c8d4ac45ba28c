"""What valid operators leave open: outputs may be NaN or infinite although no operator makes them so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ranum_falsify.domain import Interval
from ranum_falsify.network import Graph
from ranum_falsify.prove.stored_nan import reach_of_nan

__all__ = ["describe_outputs"]


def describe_outputs(network: str, graph: Graph, bounds: Sequence[Sequence[Interval | None]]) -> Iterator[str]:
    """Yield which outputs may be NaN or infinite although all operators are valid.

    Args:
        network: The network's name.
        graph: The network.
        bounds: Of each output, the bounds on each box; None where there are none.
    """
    carriers = reach_of_nan(graph).carriers
    for name, end, several in zip(graph.output_names, graph.output_operations, bounds, strict=True):
        kind = "NaN" if id(end) in carriers else "infinite" if any(map(_may_be_infinite, several)) else ""
        if kind:
            yield (
                f"output {name!r} may be {kind} although no operator makes it so; "
                f"finite_outputs({network}(...)) in a property asks about that"
            )


def _may_be_infinite(bounds: Interval | None) -> bool:
    return bounds is not None and bounds.is_floating and bounds.may_be_infinite
