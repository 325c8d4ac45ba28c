"""The files that options name: looked at before anything slow is imported, so that a wrong name costs no second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ranum_falsify.cli.files import check_writable, is_stream
from ranum_falsify.cli.options.search import AskOptions
from ranum_falsify.cli.parser import list_options
from ranum_falsify.errors import UsageError, reason_of
from ranum_falsify.option_marks import MODEL, MODELS
from ranum_falsify.results.places import Base, base_of, is_assignment


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
    """Check that a file exists, and is no model of another format.

    Raises:
        UsageError: It does not, or is.
    """
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
    """Check that the reports of a run can be written, each to a file of its own.

    Args:
        options: Which.
        others: The other files of this run, by the options that name them.

    Raises:
        UsageError: One cannot be written.
    """
    proof = {} if options.proof is None else {"--proof": options.proof}
    check_outputs({**list_reports(options), **proof}, others)


def check_outputs(outputs: Mapping[str, Path], others: Mapping[Path, str]) -> None:
    """Check that files can be written, each a file of its own.

    Args:
        outputs: The files, by the options that name them.
        others: Files that are none of them, and what names those.

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
