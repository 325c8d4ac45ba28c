#!/usr/bin/env python3
"""Make a system for ARM64 that QEMU runs, to measure and test ONNX Runtime and PyTorch there.

    scripts/make_arm64.py                                      # ONNX Runtime, the version that is installed here
    scripts/make_arm64.py onnxruntime==1.32.0                  # another one
    scripts/make_arm64.py onnxruntime==1.31.1 torch==2.13.0    # PyTorch, too, and all that this package needs: 5 GB

Needs debootstrap and dpkg; what runs it needs qemu-aarch64 (package qemu-user).  The folder is that of the variable
ARM64_SYSTEM, by default one in the user's cache.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import requires, version

from packaging.requirements import Requirement

from lab.kernels.arm64 import FOLDER, make_system


def main(argv: Sequence[str] | None = None) -> int:
    """Make it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", default=[f"onnxruntime=={version('onnxruntime')}"])
    releases = parser.parse_args(argv).releases
    own = [f"{name}=={version(name)}" for name in ("numpy", "ml_dtypes")]
    if any(release.startswith("torch") for release in releases):
        needed = [Requirement(text) for text in requires("ranum-falsify") or ()]
        own = [
            f"{of.name}=={version(of.name)}"
            for of in needed
            if of.marker is None and of.name not in ("onnxruntime", "torch")
        ]
    try:
        make_system([*releases, *own], whole=len(own) > 2)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{FOLDER}: no system was made there: {error}", file=sys.stderr)
        return 2
    print(FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
