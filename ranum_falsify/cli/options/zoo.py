"""Arguments of `zoo` and its four actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ranum_falsify.cli import words
from ranum_falsify.cli.options.shared import PROGRAM, add_processors, add_verbosity, make_parser
from ranum_falsify.cli.usage import Parser, UsageError

__all__ = ["ZooBuild", "ZooDetect", "ZooList", "ZooOptions", "ZooShow", "parse_zoo"]


@dataclass(frozen=True, kw_only=True)
class ZooList:
    """What `zoo list` is asked for.

    Attributes:
        json: Whether it prints JSON.
    """

    json: bool = False


@dataclass(frozen=True, kw_only=True)
class ZooShow:
    """What `zoo show` is asked for.

    Attributes:
        id: A defect or a model.
        safe: Whether the repaired twin is meant.
        batch: Samples of a batch.
        json: Whether it prints JSON.
    """

    id: str
    safe: bool = False
    batch: int = 1
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class ZooBuild:
    """What `zoo build` is asked for.

    Attributes:
        ids: Defects or models; all where empty.
        out: The folder, None for the cache.
        batch: Samples of a batch.
    """

    ids: tuple[str, ...] = ()
    out: Path | None = None
    batch: int = 1


@dataclass(frozen=True, kw_only=True)
class ZooDetect:
    """What `zoo detect` is asked for.

    Attributes:
        ids: Defects or models; all where empty.
        batch: Samples of a batch.
        inference: Whether inferences of ONNX Runtime are timed beside the analyses.
        processors: Threads of torch and ONNX Runtime.
        json: Where the JSON report goes, `-` for standard output.
        verbosity: -1 the totals alone, 0, 1 every flagged operator by name.
    """

    ids: tuple[str, ...] = ()
    batch: int = 1
    inference: bool = False
    processors: int = 1
    json: str | None = None
    verbosity: int = 0


ZooOptions = ZooList | ZooShow | ZooBuild | ZooDetect

_SUMMARY = "Real numerical defects of published programs, rebuilt as ONNX models, each with a repaired twin."
_EPILOG = """\
actions:
  ranum-falsify zoo list             the defects
  ranum-falsify zoo show ID          all facts of one
  ranum-falsify zoo build [ID ...]   write models and properties, repaired ones too
  ranum-falsify zoo detect [ID ...]  analyse all and compare with what is documented

`ranum-falsify zoo ACTION --help` lists the options of an action
"""
_DETECT_EPILOG = """\
An operator is flagged if the interval analysis does not prove it valid for all inputs and weights in their ranges.
Seconds are medians of three analyses.

exit status: 0 every documented operator is flagged and every repaired model proved, 1 otherwise,
             2 usage or input error
"""


def parse_zoo(arguments: Sequence[str]) -> ZooOptions:
    """Return what `zoo` is asked for.

    Raises:
        UsageError: There is no such action, or no such option.
        SystemExit: They asked for help, which has been printed.
    """
    action = arguments[0] if arguments else ""
    if action in _ACTIONS:
        return _ACTIONS[action](arguments[1:])
    make_parser("zoo", _SUMMARY, epilog=_EPILOG).parse_known_args(arguments)  # --help ends here
    found = f"there is no action {action!r}" if action else "no action is given"
    raise UsageError(f"zoo: {found}; write {PROGRAM} zoo {'|'.join(_ACTIONS)}")


def _list(arguments: Sequence[str]) -> ZooList:
    parser = make_parser("zoo list", "List the defects.")
    parser.add_argument("--json", action="store_true", help="as JSON")
    return ZooList(json=parser.parse_args(arguments).json)


def _show(arguments: Sequence[str]) -> ZooShow:
    parser = make_parser("zoo show", "Show inputs, weights, documented operators and property of one model.")
    parser.add_argument("id", metavar="ID", help="a defect or a model, such as 2b")
    parser.add_argument("--safe", action="store_true", help="the repaired twin")
    _add_batch(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")
    given = parser.parse_args(arguments)
    return ZooShow(id=given.id, safe=given.safe, batch=given.batch, json=given.json)


def _build(arguments: Sequence[str]) -> ZooBuild:
    parser = make_parser("zoo build", "Write models and their properties: ID.onnx, ID.py, ID.safe.onnx, ID.safe.py.")
    _add_ids(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="the folder; created if its parent exists (default: ranum-falsify/zoo in the user's cache)",
    )
    _add_batch(parser)
    given = parser.parse_args(arguments)
    return ZooBuild(ids=tuple(given.ids), out=given.out, batch=given.batch)


def _detect(arguments: Sequence[str]) -> ZooDetect:
    parser = make_parser(
        "zoo detect", "Analyse models and compare the result with the documented defects.", epilog=_DETECT_EPILOG
    )
    _add_ids(parser)
    _add_batch(parser)
    parser.add_argument("--inference", action="store_true", help="also time an ONNX Runtime inference of each model")
    add_processors(parser, 1)
    parser.add_argument("--json", metavar="PATH", help="write a report as JSON; - is standard output")
    add_verbosity(parser, quiet="only the totals")
    given = parser.parse_args(arguments)
    return ZooDetect(
        ids=tuple(given.ids),
        batch=given.batch,
        inference=given.inference,
        processors=given.processors,
        json=given.json,
        verbosity=given.verbosity,
    )


def _add_ids(parser: Parser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="defects or models (default: all)")


def _add_batch(parser: Parser) -> None:
    parser.add_argument(
        "--batch",
        type=words.make_whole_converter(1),
        default=1,
        metavar="N",
        help="batch size, where the program leaves it open (default: %(default)s)",
    )


_ACTIONS: Mapping[str, Callable[[Sequence[str]], ZooOptions]] = {
    "list": _list,
    "show": _show,
    "build": _build,
    "detect": _detect,
}
