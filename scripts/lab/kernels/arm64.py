"""Linux for ARM64 in a folder, which QEMU's user mode runs: Debian's Python, with the wheels of a release.

Nothing is installed on this machine: packages are downloaded and unpacked.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

__all__ = ["FOLDER", "System", "make_system", "system_of"]

FOLDER = Path(os.environ.get("ARM64_SYSTEM", Path.home() / ".cache" / "ranum-falsify-arm64"))
"""Where the system is."""

_PLATFORMS = ("manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(17, 36)))
_BASE = "python3-minimal,libpython3-stdlib,libstdc++6,libgomp1"
_CORE = "processor\t: {}\nBogoMIPS\t: 243.75\nFeatures\t: {}\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
_PART = "CPU variant\t: 0x0\nCPU part\t: {}\nCPU revision\t: 1\n\n"
_PARTS = {"": "0xd08", "asimdhp": "0xd0c", "sve": "0xd40"}
"""Cortex-A72, Neoverse N1 and V1, by the feature that tells them from the one before."""


@dataclass(frozen=True, kw_only=True)
class System:
    """A system for QEMU.

    Attributes:
        root: What `-L` names: the system, with the `/proc/cpuinfo` of a processor.
        python: The interpreter.
        packages: Folder of the wheels.
    """

    root: Path
    python: str
    packages: Path


def system_of(features: str, folder: Path = FOLDER) -> System | None:
    """Return the system as it is on a processor of some features; None if it was not made.

    Args:
        features: The features, as Linux names them in `/proc/cpuinfo`.
        folder: Where it is.
    """
    base, packages = folder / "root", folder / "packages"
    python = next(iter(sorted((base / "usr" / "bin").glob("python3.??"))), None)
    if python is None or not packages.exists():
        return None
    root = folder / f"processor-{sha256(features.encode()).hexdigest()[:8]}"
    information = root / "proc" / "cpuinfo"
    if not information.exists():
        information.parent.mkdir(parents=True, exist_ok=True)
        for name in ("lib", "usr", "etc"):
            if not (root / name).is_symlink():
                (root / name).symlink_to(base / name)
        part = _PARTS[next((name for name in ("sve", "asimdhp") if name in features.split()), "")]
        text = "".join(_CORE.format(number, features) + _PART.format(part) for number in range(os.cpu_count() or 1))
        information.write_text(text)
    return System(root=root, python=str(python), packages=packages)


def make_system(releases: Sequence[str], folder: Path = FOLDER, *, whole: bool = False) -> None:
    """Make the system.

    Args:
        releases: What pip is to install, such as `onnxruntime==1.31.1`.
        folder: Where.
        whole: Whether what these releases need is installed, too.

    Raises:
        subprocess.CalledProcessError: Something cannot be downloaded.
    """
    base, packages = folder / "root", folder / "packages"
    if not base.exists():
        base.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as made:
            _download_debian(Path(made))
            for package in sorted((Path(made) / "var" / "cache" / "apt" / "archives").glob("*.deb")):
                subprocess.run(["dpkg-deb", "-x", str(package), str(base)], check=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--no-compile", "--only-binary=:all:"]
    pip += [] if whole else ["--no-deps"]
    subprocess.run([*pip, *platforms, "--python-version", version, "--target", str(packages), *releases], check=True)


def _download_debian(folder: Path) -> None:
    command = ["debootstrap", "--arch=arm64", "--variant=minbase", f"--include={_BASE}", "--download-only"]
    subprocess.run([*command, "bookworm", str(folder)], check=True, stdout=subprocess.DEVNULL)
