"""Options of `check`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import EllipsisType
from typing import Annotated, Literal

from ranum_falsify.cli.options.shared import CommonOptions, SearchOptions
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.config import ProveConfig, SearchConfig
from ranum_falsify.option import Argument, Group, Option, Switch, to_mapping, to_names

__all__ = ["CHECK_EPILOG", "Bounds", "Box", "CheckOptions"]

CHECK_EPILOG = """\
Without --box, images range over [0, 1], other floating numbers over [-1, 1], indices over the table that they choose
from, labels of a loss over its classes; the verdict says so. Counterexamples are run again by
`ranum-falsify replay cex.json --network N MODEL`.

exit status: 0 holds, 1 violated, 2 usage or input error, 3 unknown
"""
_MISSING = f"check: no model is given; write {PROGRAM} check MODEL --box LO HI"

_INTEGER = re.compile(r"[+-]?\d{1,20}")

Bounds = tuple[float, float] | float
"""Lower and upper bound, or the only value."""


def _count_bounds(first: str) -> int:
    """Return how many words a box takes: `LO HI` two, `LO,HI` and `NAME=LO,HI` one."""
    return 1 if "," in first or "=" in first else 2


def _parse_bounds(text: str) -> Bounds:
    try:
        lower, *rest = [int(part) if _INTEGER.fullmatch(part) else float(part) for part in text.split(",")]
        (upper,) = rest or [lower]
    except ValueError as error:
        raise ValueError(f"{text!r} is not a range; write LO HI, or NAME=LO,HI") from error
    return (lower, upper) if rest else lower


def _parse_box(text: str) -> tuple[str | EllipsisType, Bounds]:
    name, equals, bounds = text.rpartition("=")
    if equals and not name:
        raise ValueError(f"{text!r} names no input; write LO HI, or NAME=LO,HI")
    return name or ..., _parse_bounds(bounds)


def _unite_boxes(pairs: Iterable[tuple[str | EllipsisType, Bounds]]) -> Mapping[str | EllipsisType, Bounds]:
    pairs = list(pairs)
    if sum(name is ... for name, _ in pairs) > 1:
        raise ValueError("is given twice for all inputs; give it once, and NAME=LO,HI for others")
    return to_mapping(pairs)


def _unite_types(parts: Iterable[str]) -> tuple[str, ...]:
    return to_names(name for part in parts for name in part.split(",") if name)


def _unite_free(names: list[str]) -> Literal["all"] | tuple[str, ...]:
    return "all" if names == ["all"] else to_names(names)


Box = Annotated[
    Mapping[str | EllipsisType, Bounds] | None,
    Option(metavar="LO HI", parse=_parse_box, count=_count_bounds, gather=_unite_boxes),
]
"""What inputs range over, by name; an ellipsis stands for those without a range of their own."""


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(CommonOptions):
    """What is asked of a model.

    Attributes:
        model: The ONNX model.
        box: What all inputs range over; --box NAME=LO,HI for one of them; may be repeated.
        only: Look only at operators of this ONNX type; repeat, or separate by commas.
        nodes: Look only at the operator of this ONNX name; may be repeated.
        gradient: Derivatives must be finite too.
        free: Let the weights of this ONNX name range too, as in training; all for all of them; may be repeated.
        weights: Share of each value by which they vary, or LO,HI for all.
    """

    model: Annotated[Path, Argument("MODEL", missing=_MISSING)]
    box: Annotated[Box, Group("question")] = None
    only: Annotated[tuple[str, ...] | None, Option(metavar="OP", gather=_unite_types), Group("question")] = None
    nodes: Annotated[tuple[str, ...] | None, Option(metavar="NAME", gather=to_names), Group("question")] = None
    gradient: Annotated[bool, Switch(), Group("question")] = False
    free: Annotated[
        Literal["all"] | tuple[str, ...], Option(metavar="NAME", gather=_unite_free), Group("question")
    ] = ()
    weights: Annotated[Bounds, Option(metavar="SHARE", parse=_parse_bounds, count=lambda _: 1), Group("question")] = 0.1


@dataclass(frozen=True, kw_only=True)
class CheckOptions(SearchOptions, QuestionOptions):
    """What `check` is asked for.

    Attributes:
        config: How to search.
        print_property: Print the property that this asks, as a file for the main command, or write it to PATH; do not
            search.
    """

    config: Annotated[SearchConfig, Group("search")] = field(
        default_factory=lambda: SearchConfig(prove=ProveConfig(runtimes=("onnxruntime",)))
    )
    print_property: Annotated[str | None, Option(metavar="PATH", bare="-", in_files=False), Group("output")] = None
