"""`--dtype`: what must stay in float32 when the networks are converted to half precision."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from ranum_falsify.config import ProveConfig

if TYPE_CHECKING:
    from ranum_falsify.cli.loading import Loaded
    from ranum_falsify.prove.precision import KeepList, Node

__all__ = ["as_json", "as_text", "keep_list"]


def keep_list(loaded: Loaded, config: ProveConfig) -> KeepList:
    """Return the nodes that must stay in float32 for all operators to be proved that can be.

    Args:
        loaded: The property, of converted networks.
        config: How to prove; `timeout` is the time for this list too.
    """
    from ranum_falsify.prove.precision import float32_nodes
    from ranum_falsify.prove.prover import Prover

    def find_open_nodes(keep: Collection[Node]) -> frozenset[Node]:
        by_network = {name: {node for network, node in keep if network == name} for name in loaded.graphs}
        proof = Prover(loaded.reduced(by_network), config).analyse()
        return frozenset((operator.network, operator.node) for operator in proof.operators.values() if operator.open)

    return float32_nodes(loaded.graphs, find_open_nodes, deadline=time.monotonic() + config.timeout)


def as_text(found: KeepList) -> Iterator[str]:
    """Yield the list for people, in the form that converters take."""
    if not found.nodes and not found.left:
        yield "float32: no node needs to stay in float32"
        return
    shown = "proved minimal" if found.minimal else "not shown to be minimal: --prove-timeout gives more time"
    if found.nodes:
        names = json.dumps([node for _, node in found.nodes], ensure_ascii=False)
        yield f"float32: {len(found.nodes)} nodes to keep ({shown}): node_block_list = {names}"
    if found.left:
        names = ", ".join(node for _, node in found.left)
        yield f"float32: open whatever is kept in float32: {names}"


def as_json(found: KeepList | None) -> dict[str, Any] | None:
    """Return the list as the JSON report holds it."""
    if found is None:
        return None
    return {
        "node_block_list": [{"network": network, "node": node} for network, node in found.nodes],
        "minimal": found.minimal,
        "open_regardless": [{"network": network, "node": node} for network, node in found.left],
    }
