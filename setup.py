"""What setup.cfg cannot say: wheels bring DNNV, DNNF and the examples along, in a folder of the package.

README.md becomes the page of an index, where links to files of the repository would lead nowhere: they become words,
and pictures are left out.

`third_party/requirements.txt` pins the released wheels of DNNV and DNNF by their hashes.  A build takes them from
`third_party/` if they lie there, as in a source distribution, and else has pip download them; it unpacks them, changed
in nothing, their licences beside them.  An editable installation finds them, and the examples, in the checkout.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
THIRD_PARTY = ROOT / "third_party"
REQUIREMENTS = THIRD_PARTY / "requirements.txt"
EXAMPLES = ("networks", "properties")
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)[^)]+\)")
_PICTURE = re.compile(r"^<img [^>]*>\n+", re.MULTILINE)
_PIN = re.compile(r"^(\w+)==(\S+) --hash=sha256:(\w{64})$", re.MULTILINE)


def obtain() -> list[Path]:
    """Return the pinned wheels, downloaded unless they are there.

    Raises:
        SystemExit: They cannot be downloaded.
    """
    pins = _PIN.findall(REQUIREMENTS.read_text(encoding="utf-8"))
    wheels = {THIRD_PARTY / f"{name}-{version}-py3-none-any.whl": digest for name, version, digest in pins}
    if not all(map(_is_intact, wheels, wheels.values())):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--require-hashes", "--requirement", str(REQUIREMENTS), "--dest", str(THIRD_PARTY)]
        done = subprocess.run(command, check=False).returncode == 0
        if not (done and all(map(_is_intact, wheels, wheels.values()))):
            names = " and ".join(path.name for path in wheels)
            sys.exit(
                f"ranum-falsify: {names} could not be downloaded; build where pip reaches an index, or put "
                f"them into {THIRD_PARTY}"
            )
    return list(wheels)


def _is_intact(wheel: Path, digest: str) -> bool:
    return wheel.is_file() and hashlib.sha256(wheel.read_bytes()).hexdigest() == digest


def unpack(wheels: list[Path], folder: Path) -> None:
    """Unpack wheels into a folder."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)


class BuildWithParts(build_py):
    """Builds the package, then adds what it brings along."""

    def run(self) -> None:
        """Build it."""
        if self.editable_mode:
            super().run()
            unpack(obtain(), THIRD_PARTY)
            return
        package = Path(self.build_lib, "ranum_falsify")
        shutil.rmtree(package, ignore_errors=True)  # an earlier build left modules that are gone
        super().run()
        unpack(obtain(), package / "bundled" / "third_party")
        for name in EXAMPLES:
            ignored = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(ROOT / name, package / "bundled" / name, ignore=ignored)


class SourceWithParts(sdist):
    """Makes a source distribution from which wheels are built without a network."""

    def run(self) -> None:
        """Make it."""
        obtain()
        super().run()


def describe() -> str:
    """Return README.md without links to files beside it, and without pictures."""
    return _PICTURE.sub("", _LINK.sub(r"\1", (ROOT / "README.md").read_text(encoding="utf-8")))


if __name__ == "__main__":
    setup(long_description=describe(), cmdclass={"build_py": BuildWithParts, "sdist": SourceWithParts})
