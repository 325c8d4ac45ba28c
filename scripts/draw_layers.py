"""Draw the layers of the package, as `tests/test_layers.py` has them, to docs/pictures/layers.svg.

Usage: scripts/draw_layers.py
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "layers.svg"
sys.path.insert(0, str(ROOT))

WIDTH, LEFT, LINE, GAP, PADDING = 640, 150, 18, 8, 8
STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.said { fill: #59636e; }
rect { fill: #eef4fb; stroke: #8fb3d9; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.said { fill: #9198a1; }
rect { fill: #182533; stroke: #3f6c9c; }
}"""
# The subject of a layer; one without a word of its own belongs to the layer above it.
PARTS = {
    "cli": "asking, telling",
    "zoo": "real defects",
    "witness": "testing, mending",
    "verify": "proof and search",
    "properties": "the question",
    "selfcheck": "this machine",
    "operators": "operators, bounds",
    "network": "the model",
    "errors": "the ground floor",
    "checker": "stands apart",
}


def draw(layers: Sequence[frozenset[str]]) -> str:
    """Return the picture: what a layer may import lies below it."""
    parts, top = list[str](), PADDING
    for names in reversed(layers):
        lines = textwrap.wrap("   ".join(sorted(names)), 62)
        height = LINE * len(lines) + PADDING
        said = next((PARTS[name] for name in sorted(names) if name in PARTS), "")
        parts.append(f'<text class="said" x="{PADDING}" y="{top + LINE}">{said}</text>')
        parts.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - PADDING}" height="{height}" rx="4"/>')
        for number, line in enumerate(lines):
            place = top + LINE * (number + 1) - 1
            parts.append(f'<text x="{LEFT + PADDING}" y="{place}" xml:space="preserve">{line}</text>')
        top += height + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def main() -> int:
    """Draw the picture."""
    from tests.test_layers import LAYERS

    PICTURE.write_text(draw(LAYERS), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
