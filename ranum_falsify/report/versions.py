"""Versions of everything that an answer depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from ranum_falsify import __version__

__all__ = ["versions"]

_PACKAGES = ("numpy", "onnx", "onnxruntime", "torch", "dnnv", "dnnf")


def versions() -> dict[str, str]:
    """Return version by package, Python among them; packages without metadata are left out."""
    found = {"ranum-falsify": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
