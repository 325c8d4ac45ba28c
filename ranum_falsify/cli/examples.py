"""The command `examples`: the models and properties of this project's pages, as files to try."""

from __future__ import annotations

import shutil
from pathlib import Path

from ranum_falsify.bundle import bundled
from ranum_falsify.cli.files import output_folder
from ranum_falsify.cli.options.tools import ExamplesOptions
from ranum_falsify.cli.output import say
from ranum_falsify.errors import SaveError, UsageError, reason_of
from ranum_falsify.saving import save_together

_SUFFIXES = {"networks": (".onnx", ".npy", ".md"), "properties": (".py",)}


def run(options: ExamplesOptions) -> int:
    """Run the command."""
    files = {name: _list(name) for name in _SUFFIXES}
    place = output_folder("examples", options.folder)
    taken = [str(place / name) for name in files if (place / name).exists()]
    if taken:
        verb = "exists" if len(taken) == 1 else "exist"
        raise UsageError(f"examples: {' and '.join(taken)} {verb} already; choose another folder")
    _write(place, files)
    folders = " and ".join(f"{place / name} ({len(paths)} files)" for name, paths in files.items())
    say([f"written: {folders}"])
    return 0


def _list(name: str) -> list[Path]:
    found = sorted(path for path in bundled(name).glob("*") if path.suffix in _SUFFIXES[name])
    if not found:
        raise UsageError(f"examples: {bundled(name)} holds none; install ranum-falsify again")
    return found


def _write(place: Path, files: dict[str, list[Path]]) -> None:
    folders = [place / name for name in files]
    try:
        for folder in folders:
            folder.mkdir()
        save_together({place / name / path.name: path.read_bytes() for name in files for path in files[name]})
    except (OSError, SaveError) as error:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, SaveError):
            raise
        raise SaveError(f"{place}: cannot be written ({reason_of(error)}); choose another folder") from error
