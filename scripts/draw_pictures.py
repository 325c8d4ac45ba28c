"""Draw the pictures of the documentation: graphs with bounds, as reports show them.

Usage: scripts/draw_pictures.py [NAME ...]

Asks about networks of this repository, opens the page of the report in Chromium, and writes the graph around the
violated operator to docs/pictures/NAME.svg, in the report's own colours for light and dark. What was drawn stands in
the file, so that tests tell without a browser whether a picture is current.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
PARTS = ROOT / "ranum_falsify" / "report" / "page_parts"
# network -> what it is asked
PICTURES = {
    "l2_normalise": ("--box", "-1", "1"),
    "layer_norm_no_epsilon": ("--box", "-5", "5"),
    "log_mel": ("--box", "-1", "1"),
    "masked_attention": ("--box", "-1", "1", "--box", "mask=0,1"),
    "softmax_regression": ("--box", "0", "1"),
}

# The graph, with those rules of the page's style that are about it.
_EXTRACT = """(svg) => {
    const concerns = (rule) =>
        rule.selectorText === ":root" || svg.matches(rule.selectorText) || svg.querySelector(rule.selectorText);
    const about = (rules) => [...rules].filter((rule) => rule.selectorText && concerns(rule));
    const kept = (rules) => about(rules).map((rule) => rule.cssText).join("\\n");
    const dark = (rule) => rule.conditionText && rule.conditionText.includes("prefers-color-scheme");
    const rules = document.styleSheets[0].cssRules;
    const media = [...rules].filter(dark).map((rule) => `@media ${rule.conditionText} { ${kept(rule.cssRules)} }`);
    svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
    style.textContent = [kept(rules), ...media].join("\\n");
    svg.prepend(style);
    return new XMLSerializer().serializeToString(svg);
}"""
_GRAPH = "svg[aria-label^=Graph]"
_DRAWN = re.compile(r"<metadata>(.*?)</metadata>", re.DOTALL)


def ask(name: str, folder: Path) -> tuple[dict[str, Any], Path]:
    """Return the graph around the first violated operator of a network, and the page that draws it."""
    from ranum_falsify.cli import main as command

    report, page = folder / f"{name}.json", folder / f"{name}.html"
    asked = ["check", str(ROOT / "networks" / f"{name}.onnx"), *PICTURES[name], "--json", str(report)]
    if command([*asked, "--report", str(page), "-q"]) != 1:
        raise SystemExit(f"{name}: nothing is violated")
    graph: dict[str, Any] = json.loads(report.read_text())["illustration"]["operators"][0]["graph"]
    return graph, page


def drawn_by() -> str:
    """Return a hash of what draws."""
    parts = (PARTS / name for name in ("base.js", "graph.js", "page.css"))
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:12]


def recorded(name: str) -> dict[str, Any]:
    """Return what the picture of a network shows, and what drew it."""
    found = _DRAWN.search((FOLDER / f"{name}.svg").read_text(encoding="utf-8"))
    shown: dict[str, Any] = json.loads(found[1]) if found else {}
    return shown


def draw(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the picture of each network."""
    sys.path.insert(0, str(ROOT))
    from tests.results.browser import Browser

    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder)) as browser:
        for name in names:
            graph, path = ask(name, Path(folder))
            svg: str = browser.open(path.as_uri()).run(f"({_EXTRACT})(document.querySelector({_GRAPH!r}))")
            metadata = json.dumps({"graph": graph, "drawn_by": drawn_by()})
            start, rest = svg.split("<style", 1)
            yield name, f"{start}<metadata>{metadata}</metadata>\n<style{rest}".replace("><", ">\n<") + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], metavar="NAME", help=f"of {', '.join(PICTURES)}")
    names = parser.parse_args(arguments).names or PICTURES
    FOLDER.mkdir(exist_ok=True)
    for name, svg in draw(names):
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
