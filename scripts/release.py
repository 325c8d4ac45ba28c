"""Build a release, check it, and try it in fresh environments: everything before a tag.

Usage: scripts/release [--python PATH ...] [--no-trial]

Builds a source distribution, and from it a wheel, into dist/; checks metadata, contents and licences; and in an
environment of its own for each Python, outside of the checkout, installs the wheel and then the source distribution,
and runs what README.md shows. Pythons are those named, else python3.11 to python3.14 as far as they are on the path.
PyTorch comes from where pip finds it, so that a trial takes minutes. Exit status 1: something is wrong.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
MODULE = """\
import ranum_falsify as rf, torch

class Quotient(torch.nn.Module):
    def forward(self, a, b):
        return a / b

pair = (torch.ones(2), torch.ones(2))
assert rf.check(Quotient(), pair, box=(0, 1)).verdict == "violated"
assert rf.check(Quotient(), pair, box=(1, 2)).verdict == "holds"
"""
# Arguments of the command, and the exit status that they must have.
COMMANDS = (
    (("--version",), 0),
    (("examples", "examples"), 0),
    (("check", "examples/networks/log_mel.onnx", "--box", "-1", "1", "--save-violation", "cex.npy"), 1),
    (("replay", "cex.json", "--network", "N", "examples/networks/log_mel.onnx"), 1),
    (("check", "examples/networks/log_mel_safe.onnx", "--box", "-1", "1"), 0),
    (("examples/properties/no_invalid_input_box.py", "-N", "N", "examples/networks/log_mel_safe.onnx"), 0),
    (("check", "examples/networks/none.onnx"), 2),
)


class ReleaseFault(Exception):
    """What is wrong with a release."""


def run(*command: str | Path, cwd: Path = ROOT, status: int = 0) -> str:
    """Run a command and return what it prints.

    Raises:
        ReleaseFault: It ends with another status.
    """
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != status:
        shown = " ".join(map(str, command))
        raise ReleaseFault(f"`{shown}` ends with {done.returncode}, not {status}:\n{done.stdout[-2000:]}")
    return done.stdout


def make_environment(python: str, folder: Path) -> Path:
    """Return the Python of a new environment."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def version() -> str:
    """Return the version of the checkout, which the changelog describes.

    Raises:
        ReleaseFault: The changelog or the citation has another.
    """
    found = re.findall(r'^__version__ = "(.*)"', (ROOT / "ranum_falsify" / "version.py").read_text(), re.MULTILINE)[0]
    newest = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    cited = re.findall(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)[0]
    if not found == newest == cited:
        raise ReleaseFault(f"the package is {found}, CHANGELOG.md begins with {newest}, CITATION.cff says {cited}")
    return str(found)


def build(tools: Path) -> tuple[Path, Path]:
    """Return the wheel and the source distribution that it was built from."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(tools, "-m", "build", "--outdir", DIST)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, source


def check_contents(wheel: Path, source: Path, wanted: str) -> None:
    """Check metadata and contents.

    Raises:
        ReleaseFault: They are not those of a release.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = Parser().parsestr(archive.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode())
    if metadata["Version"] != wanted:
        raise ReleaseFault(f"{wheel.name}: its metadata says {metadata['Version']}, the checkout {wanted}")
    body = str(metadata.get_payload())
    relative = [target for target in re.findall(r"\]\(([^)]+)\)", body) if not re.match(r"https?://|#", target)]
    if relative:
        raise ReleaseFault(f"{wheel.name}: links of its description lead nowhere on an index: {', '.join(relative)}")
    for part in (
        "ranum_falsify/py.typed",
        "ranum_falsify/bundled/third_party/dnnv/",
        "ranum_falsify/bundled/networks/",
    ):
        if not any(name.startswith(part) for name in names):
            raise ReleaseFault(f"{wheel.name}: has no {part}")
    if strays := [name for name in names if not name.startswith(("ranum_falsify/", "ranum_falsify-"))]:
        raise ReleaseFault(f"{wheel.name}: holds what is not the package: {', '.join(strays[:5])}")
    with tarfile.open(source) as sources:
        if strays := [name for name in sources.getnames() if "/tests/" in name or "/.git" in name]:
            raise ReleaseFault(f"{source.name}: holds {', '.join(strays[:5])}")


def try_it(python: str, wheel: Path, source: Path, wanted: str) -> None:
    """Install both files in a fresh environment, one after the other, and run the commands of README.md."""
    label = run(python, "-c", "import platform; print(platform.python_version())").strip()
    with tempfile.TemporaryDirectory(prefix="ranum-falsify-release-") as name:
        folder = Path(name).resolve()
        inner = make_environment(python, folder / "environment")
        run(inner, "-m", "pip", "install", "-c", CONSTRAINTS, wheel)
        for file, more in ((wheel, ()), (source, ("--force-reinstall", "--no-deps"))):
            if more:
                run(inner, "-m", "pip", "install", *more, file)
            run(inner, "-m", "pip", "check")
            work = folder / file.suffix.lstrip(".")
            work.mkdir()
            for arguments, status in COMMANDS:
                printed = run(inner.parent / "ranum-falsify", *arguments, cwd=work, status=status)
                if arguments == ("--version",) and printed.split()[-1] != wanted:
                    raise ReleaseFault(f"{file.name}: --version says {printed.strip()}")
            (work / "module.py").write_text(MODULE)
            run(inner, "module.py", cwd=work)
            print(f"Python {label}: {file.name}: {len(COMMANDS)} commands and a module, as they should", flush=True)


def find_pythons() -> Iterator[str]:
    """Yield the Pythons on the path that start."""
    for number in VERSIONS:
        path = shutil.which(f"python{number}")
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", nargs="+", action="extend", default=[], metavar="PATH", help="interpreters to try it with"
    )
    parser.add_argument("--no-trial", action="store_true", help="build and check only")
    options = parser.parse_args(arguments)
    try:
        wanted = version()
        print(f"{wanted}: the package, the changelog and the citation agree", flush=True)
        listed = run(sys.executable, "scripts/list_licences.py").count("\n| ") - 1  # without the head of the table
        print(f"{listed} packages, all with a licence that was agreed to", flush=True)
        with tempfile.TemporaryDirectory(prefix="ranum-falsify-tools-") as name:
            tools = make_environment(sys.executable, Path(name))
            run(tools, "-m", "pip", "install", "--quiet", "build", "twine")
            wheel, source = build(tools)
            run(tools, "-m", "twine", "check", "--strict", wheel, source)
            check_contents(wheel, source, wanted)
        print(f"built and checked: {wheel.name}, {source.name}", flush=True)
        for python in [] if options.no_trial else (options.python or find_pythons()):
            try_it(python, wheel, source, wanted)
    except ReleaseFault as fault:
        print(f"release: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
