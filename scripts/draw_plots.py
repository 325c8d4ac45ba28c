"""Draw the plots of the documentation, as `plot` of a result and of a watched training run draws them.

Usage: scripts/draw_plots.py [NAME ...]

Writes docs/pictures/NAME.svg. What was drawn stands in the file, so that tests tell whether a picture is current.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
DRAWS = ROOT / "ranum_falsify" / "results" / "plots.py"
_EXAMPLE = re.compile(
    r"^```python title=\"likelihood.py\"\n(.*?)^```\n.*?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL
)

Drawn = tuple[Any, Any]
"""What a plot shows, as JSON holds it, and its axes."""


def draw_bounds() -> Drawn:
    """Return the bounds of a network, and their plot."""
    import ranum_falsify as rf

    result = rf.check(ROOT / "networks" / "log_mel.onnx", box=(-1, 1), self_check=False)
    axes = result.plot()
    return [[one.node, one.verdict, one.bounds] for one in result.operators], axes


def draw_margins() -> Drawn:
    """Return the margins of the training run of docs/training-runs.md, and their plot."""
    page = (ROOT / "docs" / "training-runs.md").read_text(encoding="utf-8")
    found = _EXAMPLE.search(page)
    assert found is not None, "the page has the module and the loop"
    values: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        module = Path(folder) / "likelihood.py"
        module.write_text(found[1], encoding="utf-8")
        sys.path.insert(0, folder)
        try:
            loop = found[2].replace("every=10)", f"every=10, folder={folder!r})").replace("print(", "str(")
            exec(compile(loop, "loop.py", "exec"), values)
        finally:
            sys.path.remove(folder)
            sys.modules.pop("likelihood", None)
    watch = values["watch"]
    axes = watch.plot(count=2)
    return {line.get_label(): list(line.get_ydata())[::20] for line in axes.lines[:2]}, axes


PLOTS: Mapping[str, Callable[[], Drawn]] = {"bounds": draw_bounds, "margins": draw_margins}


def drawn_by() -> str:
    """Return a hash of what draws."""
    return hashlib.sha256(DRAWS.read_bytes()).hexdigest()[:12]


def as_svg(shown: Any, axes: Any) -> str:
    """Return a plot as SVG, whose text is text."""
    import matplotlib

    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ranum-falsify", "font.family": "sans-serif"}):
        stream = io.StringIO()
        axes.figure.savefig(stream, format="svg", metadata=nothing)
    metadata = json.dumps({"shown": shown, "drawn_by": drawn_by()})
    start, rest = stream.getvalue().split("<defs>", 1)
    return f"{start[start.index('<svg') :].rstrip()}\n<metadata>{metadata}</metadata>\n<defs>{rest}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw plots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PLOTS, []], metavar="NAME", help=f"of {', '.join(PLOTS)}")
    names = parser.parse_args(arguments).names or PLOTS
    sys.path.insert(0, str(ROOT))
    import matplotlib

    matplotlib.use("Agg")
    for name in names:
        (FOLDER / f"{name}.svg").write_text(as_svg(*PLOTS[name]()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
