"""Files that options name: looked at before anything slow is imported; and written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ranum_falsify.cli.options.shared import AskOptions, PropertyOptions
from ranum_falsify.cli.output import say, say_json, verdict_stands
from ranum_falsify.cli.parser import list_options
from ranum_falsify.errors import SaveError, UsageError, reason_of
from ranum_falsify.escaping import json_text
from ranum_falsify.option_marks import MODEL, MODELS
from ranum_falsify.results.places import Base, base_of, is_assignment
from ranum_falsify.saving import check_place, save_together

if TYPE_CHECKING:
    from ranum_falsify.api.loading import BoundProblem


def check_writable(option: str, path: Path) -> None:
    """Check that a file can be written before doing the work whose result goes into it.

    Raises:
        UsageError: The folder is missing or not writable, or the path is something else than a file.
    """
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise UsageError(f"{option} {path}: is {what}; give the path of a file")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {str(path.parent)!r}; create it first")
    try:
        check_place(path)
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be written ({reason_of(error)}); choose another path") from error


def output_folder(option: str, path: Path) -> Path:
    """Return a folder that the user named, made where its parent exists.

    Raises:
        UsageError: It cannot be made.
    """
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {str(path.parent)!r}; create it first")
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be created ({reason_of(error)}); choose another folder") from error
    return path


def is_stream(path: Path) -> bool:
    """Tell whether a path is a pipe or a terminal, such as /dev/stdout, which renaming would replace."""
    return path.is_fifo() or path.is_char_device()


def check_json(target: str | None) -> None:
    """Check that a report can be written; `-` and streams can."""
    if target not in (None, "-") and not is_stream(Path(str(target))):
        check_writable("--json", Path(str(target)))


def show(target: str | None, report: dict[str, Any], lines: Iterable[str]) -> None:
    """Write a report where that is asked for, and show its lines unless standard output has the report."""
    if target is not None:
        with verdict_stands():
            write_json(target, report)
    if target != "-":
        with verdict_stands():
            say(lines)


def write_json(target: str, report: dict[str, Any]) -> None:
    """Write a report; `-` is standard output.

    Raises:
        SaveError: The file cannot be written.
    """
    if target == "-":
        say_json(report)
    else:
        write_text(target, json_text(report))


def write_text(target: str, text: str) -> None:
    """Write a text; `-` is standard output.

    Raises:
        SaveError: The file cannot be written.
    """
    if target == "-":
        say(text.splitlines())
    elif is_stream(Path(target)):
        try:
            Path(target).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SaveError(f"{target}: cannot be written ({reason_of(error)}); choose another path") from error
    else:
        save_together({Path(target): text.encode()})


def check_paths(options: object) -> None:
    """Check the files that the options of a command name, as far as that needs no model.

    Raises:
        RanumFalsifyError: A file is missing, or cannot be written.
    """
    for option in list_options(type(options)):
        if option.mark.reads:
            given = getattr(options, option.field)
            for path in (
                given.values() if isinstance(given, Mapping) else given if isinstance(given, tuple) else [given]
            ):
                if path is not None:
                    _check_file(path, option.mark.reads)
    if isinstance(options, AskOptions):
        base_for(options)


def _check_file(path: Path, wanted: str) -> None:
    """Check that a file exists, and is no model of another format."""
    may_be_folder = wanted.startswith("a folder")
    if path.is_dir() and may_be_folder:
        return
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not a file" if path.exists() else "no such file"
        what += " or folder" if may_be_folder else ""
        raise UsageError(f"{path}: {what}; give the path of {wanted}")
    if wanted not in (MODEL, MODELS):
        return
    from ranum_falsify.file_content import name_foreign  # not needed for a wrong name

    try:
        foreign = name_foreign(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({reason_of(error)}); check the path") from error
    if foreign:
        raise UsageError(f"{path}: {foreign}")


def base_for(options: AskOptions) -> Base | None:
    """Check that the outputs can be written; return where counterexamples go, None for nowhere."""
    report = None if options.json in (None, "-") or is_stream(Path(options.json)) else Path(options.json)
    base = None
    if options.save_violation is not None and is_assignment(options.save_violation):
        check_writable("--save-violation", options.save_violation)
    elif options.save_violation is not None:
        base = base_of(options.save_violation)
        check_writable("--save-violation", base.array)
        check_writable("--save-violation", base.description)
    elif report is not None:
        # `<name>.json` is the report, so its counterexample is described in `<name>.cex.json`.
        base = Base(report.parent, f"{report.name.removesuffix('.json')}.cex")
    if report is not None:
        check_writable("--json", report)
        if base is not None and report.resolve() in (base.array.resolve(), base.description.resolve()):
            raise UsageError(f"--json {report}: --save-violation writes this file too; choose another name")
    own = {} if base is None else dict.fromkeys((base.array, base.description), "--save-violation")
    _check_reports(options, own if report is None else {**own, report: "--json"})
    return base


def _check_reports(options: AskOptions, others: Mapping[Path, str]) -> None:
    """Check that the reports of a run can be written, each to a file of its own."""
    proof = {} if options.proof is None else {"--proof": options.proof}
    check_outputs({**list_reports(options), **proof}, others)


def check_outputs(outputs: Mapping[str, Path], others: Mapping[Path, str]) -> None:
    """Check that files can be written, each a file of its own.

    Raises:
        UsageError: One cannot be written.
    """
    taken = {path.resolve(): option for path, option in others.items()}
    for option, path in outputs.items():
        check_writable(option, path)
        if (other := taken.setdefault(path.resolve(), option)) != option:
            raise UsageError(f"{option} {path}: is the file of {other}, too; choose another name")


def list_reports(options: AskOptions) -> dict[str, Path]:
    """Return the reports that other programs read, by the options that name them."""
    named = {"--report": options.report, "--junit": options.junit, "--sarif": options.sarif}
    return {option: path for option, path in named.items() if path is not None}


# reading ------------------------------------------------------------------------------------------------------------


def load_files(options: PropertyOptions, dims: Mapping[str, int]) -> BoundProblem:
    """Read the networks and reduce the property that options name.

    Args:
        options: The options; what a command has no option of is as it is by default.
        dims: Sizes of symbolic dimensions.

    Raises:
        PropertyError: The property cannot be read, or does not fit the networks.
        ModelError: A model cannot be read.
    """
    from ranum_falsify.api.loading import load, load_networks  # imports torch
    from ranum_falsify.api.models import Runnable, share_dims
    from ranum_falsify.api.properties import load_property
    from ranum_falsify.network.resource_limits import memory_limit

    known = vars(options)
    with memory_limit(known["memory"]):
        prop = load_property(
            known["property_path"], parameters=options.parameters, vnnlib=known.get("vnnlib", False) or None
        )
        sizes = share_dims({name: Runnable(path) for name, path in options.networks.items()}, dims)
        networks = load_networks(prop, options.networks, sizes, strict=known.get("strict", False))
        return load(prop, networks, dtype=known.get("dtype"))
