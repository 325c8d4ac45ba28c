"""Versions of everything that an answer depends on."""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from ranum_falsify.bundle import UPSTREAM, version_of_upstream
from ranum_falsify.version import __version__

_PACKAGES = ("numpy", "onnx", "onnxruntime", "torch")


def versions() -> dict[str, str]:
    """Return version by package, Python among them; packages without metadata are left out."""
    return {"ranum-falsify": __version__, "python": platform.python_version(), **_installed()}


@cache
def _installed() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    upstream = {name: version_of_upstream(name) for name in UPSTREAM}
    return found | {name: number for name, number in upstream.items() if number is not None}
