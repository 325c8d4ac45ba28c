"""How far a command has got, on standard error."""

from __future__ import annotations

import sys

from ranum_falsify.cli.streams import complain
from ranum_falsify.results.progress import ProgressDisplay


def show_progress(verbosity: int = 0) -> ProgressDisplay:
    """Return what shows the steps of a command; see `ProgressDisplay`."""
    return ProgressDisplay(verbosity, say=complain, is_terminal=sys.stderr.isatty())
