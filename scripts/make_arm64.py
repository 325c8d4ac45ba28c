#!/usr/bin/env python3
"""Make a system for ARM64 that QEMU runs, to measure and test ONNX Runtime there.

    scripts/make_arm64.py                         # the version that is installed here
    scripts/make_arm64.py onnxruntime==1.32.0     # another one

Needs debootstrap and dpkg; what runs it needs qemu-aarch64 (package qemu-user).  The folder is that of the variable
ARM64_SYSTEM, by default one in the user's cache.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version

from lab.kernels.arm64 import FOLDER, make_system


def main(argv: Sequence[str] | None = None) -> int:
    """Make it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", nargs="?", default=f"onnxruntime=={version('onnxruntime')}")
    options = parser.parse_args(argv)
    try:
        make_system([options.release, f"numpy=={version('numpy')}", f"ml_dtypes=={version('ml_dtypes')}"])
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{FOLDER}: no system was made there: {error}", file=sys.stderr)
        return 2
    print(FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
