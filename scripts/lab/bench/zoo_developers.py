"""The section of `benchmarks/zoo.md` on what developers did about their defects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["developers"]

_HEAD = """
## Beside the developers' own changes

{counts}.

Below, those changes that a graph can express, and the repaired twins of the zoo.  *Change*: the greatest relative
change of an output on random inputs and weights at which the program's model is valid and the operand of the documented
operator is more than 0.001 away from what is not; in brackets nearer to that, too, where a twin is more exact than the
program.  A star: the form is not recorded, and one that RANUM's authors hold equivalent stands for it.

| id | their change | proved | change | twin proved | change |
|---|---|---|---|---|---|"""


def developers(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the section; none if nothing is measured."""
    known = [
        (defect, defect["developers"]) for model in models for defect in model["defects"] if "developers" in defect
    ]
    if not known:
        return
    counts = Counter(found["status"] for _, found in known)
    words = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    yield _HEAD.format(counts=f"Of {len(known)} defects: {words}")
    for defect, found in known:
        if found["theirs"] is not None:
            star = "" if found["exact"] else " *"
            cells = (f"{_proof(side, defect['node'])} | {_change(side)}" for side in (found["theirs"], found["ours"]))
            yield f"| {defect['id']} | {found['status']}: {found['detail']}{star} | {' | '.join(cells)} |"


def _proof(side: Mapping[str, Any], node: str) -> str:
    if not side["open"]:
        return "yes"
    first, *more = sorted(side["open"], key=lambda other: other != node)
    rest = f" and {len(more)} more" if more else ""
    return f"no: `{first}`{rest}" if first == node else f"that operator, but not `{first}`{rest}"


def _change(side: Mapping[str, Any]) -> str:
    far, near = (_number(side[key]) for key in ("far_change", "change"))
    return far if far == near else f"{far} ({near})"


def _number(change: float | None) -> str:
    return "no such sample" if change is None else f"{change:.1g}"
