"""`--dtype`: what must stay in float32 when the networks are converted to half precision."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ranum_falsify.verify.prove.precision import KeepList


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


@dataclass(frozen=True)
class NodeName:
    """A node of a network."""

    network: str
    node: str


@dataclass(frozen=True, kw_only=True)
class Float32:
    """What must stay in float32, as JSON reports hold it; see `KeepList`."""

    node_block_list: tuple[NodeName, ...]
    minimal: bool
    open_regardless: tuple[NodeName, ...]


def float32_of(found: KeepList | None) -> Float32 | None:
    """Return what reports hold of a list."""
    if found is None:
        return None
    keep, left = (tuple(NodeName(*name) for name in names) for names in (found.nodes, found.left))
    return Float32(node_block_list=keep, minimal=found.minimal, open_regardless=left)
