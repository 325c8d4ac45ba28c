"""Bundled files: DNNV and DNNF as they were released, and examples.

A wheel holds them in `bundled/`; in a checkout, `setup.py` puts DNNV and DNNF beside their hashes.  They stay in a
folder of their own, so that an environment's own DNNV, or none, is left as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

UPSTREAM = ("dnnv", "dnnf")
_PACKAGE = Path(__file__).resolve().parent


def bundled(name: str) -> Path:
    """Return the folder of that name that came along, whether or not it is there."""
    installed = _PACKAGE / "bundled"
    return (installed if installed.is_dir() else _PACKAGE.parent) / name


class _UpstreamFinder(MetaPathFinder):
    """Finds `dnnv` and `dnnf`, and nothing else, in a folder that is not on `sys.path`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a package that came along; None for all others."""
        return PathFinder.find_spec(fullname, [str(bundled("third_party"))]) if fullname in UPSTREAM else None


@cache
def offer_upstream() -> None:
    """Let this process import the DNNV and DNNF that came along; where there are none, those of the environment."""
    sys.meta_path.insert(0, _UpstreamFinder())


def version_of_upstream(name: str) -> str | None:
    """Return the version of the DNNV or DNNF that this process imports; None if there is none or it does not say."""
    offer_upstream()
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    found = Distribution.discover(name=name, path=[str(Path(spec.origin).parents[1])])
    return next((distribution.version for distribution in found), None)
