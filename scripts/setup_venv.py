#!/usr/bin/env python3
"""Make the virtual environment of this checkout, once.

Usage: python3 scripts/setup_venv.py [--extra NAME]

Creates .venv beside setup.cfg and installs into it the package (editable), its
pinned dependencies and the extra asked for. A second call returns at once while
the files that decide what is installed, and the path of the checkout, are
unchanged.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
DECISIVE = ("setup.cfg", "setup.py", "pyproject.toml", "third_party/requirements.txt", "scripts/constraints.txt")
OLDEST_PYTHON = (3, 11)


def venv_python() -> Path:
    """The interpreter inside .venv, on this platform."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fingerprint(extra: str) -> str:
    """A hash of everything that decides what an installation contains."""
    digest = hashlib.sha256(f"{ROOT}\n{extra}\n".encode())
    for path in (*(ROOT / name for name in DECISIVE), Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def stamp(extra: str) -> Path:
    """The file that records which installation with this extra .venv holds."""
    return VENV / f".installed-{extra or 'base'}"


def is_installed(extra: str) -> bool:
    """Whether .venv already holds the package with this extra."""
    path = stamp(extra)
    return venv_python().exists() and path.exists() and path.read_text() == fingerprint(extra)


def pip(*arguments: str) -> None:
    """Run pip of .venv; raises CalledProcessError when it fails."""
    subprocess.run([str(venv_python()), "-m", "pip", *arguments], check=True, cwd=ROOT)


def has_working_pip() -> bool:
    """Whether .venv has got as far as a pip that starts."""
    if not venv_python().exists():
        return False
    command = [str(venv_python()), "-m", "pip", "--version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def install(extra: str) -> None:
    """Install the package with the extra into .venv, and leave the stamps."""
    if not has_working_pip():
        print(f"setup_venv: creating {VENV}", flush=True)
        venv.create(VENV, with_pip=True, symlinks=os.name != "nt")
    constrained = ("install", "--quiet", "--disable-pip-version-check", "-c", str(CONSTRAINTS))
    print("setup_venv: installing (the first time takes some minutes)", flush=True)
    # torch goes first, by its exact version: left to the resolver, builds with
    # CUDA libraries of several GB may be tried before the one that fits.
    pip(*constrained, "torch")
    pip(*constrained, "-e", f".[{extra}]" if extra else ".")
    for name in {extra, ""}:
        stamp(name).write_text(fingerprint(name))


def main() -> int:
    """Parse the command line and install what is missing."""
    parser = argparse.ArgumentParser(description="Make .venv and install this checkout into it.")
    parser.add_argument("--extra", default="", choices=["", "test", "bench"], help="extra to install too")
    extra = parser.parse_args().extra
    if sys.version_info < OLDEST_PYTHON:
        wanted, found = ".".join(map(str, OLDEST_PYTHON)), sys.version.split()[0]
        print(
            f"setup_venv: Python {wanted} or newer is needed, {sys.executable} is {found};"
            " name another with PYTHON=...",
            file=sys.stderr,
        )
        return 2
    if is_installed(extra):
        return 0
    try:
        install(extra)
    except subprocess.CalledProcessError as error:
        command = " ".join(error.cmd)
        print(f"setup_venv: could not make {VENV}: '{command}' failed; see above for why", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
