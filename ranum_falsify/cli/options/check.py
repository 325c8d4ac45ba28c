"""Options of `check`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import Annotated, ClassVar, Literal

from ranum_falsify.cli.options.search import AskOptions
from ranum_falsify.cli.options.shared import CommonOptions, ImportOptions, Values
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import MODELS, Argument, Option, to_mapping, to_names

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
    found = _parse_bounds(bounds)
    if not name and not isinstance(found, tuple):
        raise ValueError(f"{text} is one number, where a range is needed; write LO HI, or NAME={text} for one input")
    return name or ..., found


def _unite_boxes(pairs: Iterable[tuple[str | EllipsisType, Bounds]]) -> Mapping[str | EllipsisType, Bounds]:
    pairs = list(pairs)
    if sum(name is ... for name, _ in pairs) > 1:
        raise ValueError("is given twice for all inputs; give it once, and NAME=LO,HI for others")
    return to_mapping(pairs)


def _unite_types(parts: Iterable[str]) -> tuple[str, ...]:
    return to_names(name for part in parts for name in part.split(",") if name)


def _list_passes(parts: Iterable[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for part in parts for name in part.split(",") if name.strip())
    if not names:
        raise ValueError("no pass is named; `ranum-falsify transform --list` shows them")
    return names


def _unite_free(names: list[str]) -> Literal["all"] | tuple[str, ...]:
    return "all" if names == ["all"] else to_names(names)


Box = Mapping[str | EllipsisType, Bounds] | None
"""What inputs range over, by name; an ellipsis stands for those without a range of their own."""


def box_option(group: str) -> Option:
    """Return the option of a box, below a heading of the help."""
    return Option(group=group, metavar="LO HI", parse=_parse_box, count=_count_bounds, gather=_unite_boxes)


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(ImportOptions, CommonOptions):
    """What is asked of a model.

    Attributes:
        box: Range of all inputs; --box NAME=LO,HI for that of one; may be repeated.
        only: Check only operators of this ONNX type, such as Log; repeat, or separate by commas.
        nodes: Check only the operator of this ONNX name; may be repeated.
        gradient: Check that derivatives are finite, too.
        free: Let the weights of this name vary, as they do in training; all for all weights; may be repeated.
        weights: With --free: how much weights vary, as a share of each value, or LO,HI for all.
        passes: Passes of `transform` to run first, in order, separated by commas; may be repeated. The answer is about
            the model that they make.
    """

    box: Annotated[Box, box_option("question")] = None
    only: Annotated[tuple[str, ...] | None, Option(group="question", metavar="OP", gather=_unite_types)] = None
    nodes: Annotated[tuple[str, ...] | None, Option(group="question", metavar="NAME", gather=to_names)] = None
    gradient: Annotated[bool, Option(group="question")] = False
    free: Annotated[Literal["all"] | tuple[str, ...], Option(group="question", metavar="NAME", gather=_unite_free)] = ()
    weights: Annotated[Bounds, Option(group="question", metavar="SHARE", parse=_parse_bounds, count=lambda _: 1)] = 0.1
    passes: Annotated[tuple[str, ...], Option(group="question", metavar="PASS", gather=_list_passes)] = ()

    @classmethod
    def finish(cls, values: Values, typed: Collection[str]) -> Values:
        """Check that there are weights to vary.

        Raises:
            UsageError: There are none.
        """
        if "weights" in typed and not values.get("free"):
            raise UsageError("--weights: no weights range; name some with --free NAME, or all with --free all")
        return super().finish(values, typed)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(AskOptions, QuestionOptions):
    """Find inputs of a model on which one of its operators produces NaN or infinity, or prove that there are none.

    Attributes:
        models: ONNX models, and folders of models.
        print_property: Print the question as a property file, or write it to PATH, without a search.
    """

    example: ClassVar[str] = "model.onnx --box 0 1"
    epilog: ClassVar[str] = """\
Without --box, images range over [0, 1], other floating numbers over [-1, 1], indices over their table, labels of a
loss over its classes; the verdict says so. `ranum-falsify replay cex.json --network N MODEL` runs a counterexample
again.

exit status: 0 holds, 1 violated, 2 usage or input error, 3 unknown; of several models, 2 if one of them has it, else
1, else 3, else 0"""

    models: Annotated[tuple[Path, ...], Argument("MODEL", many=True, reads=MODELS)]
    print_property: Annotated[str | None, Option(metavar="PATH", bare="-", in_files=False, group="output")] = None
