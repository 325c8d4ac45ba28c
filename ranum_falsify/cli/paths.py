"""The files that options name: looked at before anything slow is imported, so that a wrong name costs no second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ranum_falsify.cli.files import check_writable, is_stream
from ranum_falsify.cli.options import CheckOptions, PropertyOptions, SearchOptions
from ranum_falsify.errors import ModelError, PropertyError, UsageError
from ranum_falsify.report.places import Base, base_of, is_assignment

__all__ = ["base_for", "check_files", "check_outputs", "check_paths", "list_reports"]


def check_paths(options: object) -> None:
    """Check the files that the options of a command name, as far as that needs no model.

    Raises:
        RanumFalsifyError: A file is missing, or cannot be written.
    """
    if isinstance(options, CheckOptions):
        check_files(None, {"": options.model})
    elif isinstance(options, PropertyOptions):
        check_files(getattr(options, "property_path", None), options.networks)
    if isinstance(options, SearchOptions):
        base_for(options)


def check_files(property_path: Path | None, networks: Mapping[str, Path]) -> None:
    """Check that files exist.

    Raises:
        PropertyError: The property file is missing.
        ModelError: A model file is missing.
    """
    if property_path is not None and not property_path.is_file():
        raise PropertyError(f"{property_path}: {_absence(property_path)}; give the path of a property file")
    for path in networks.values():
        if not path.is_file():
            raise ModelError(f"{path}: {_absence(path)}; give the path of an ONNX model")


def _absence(path: Path) -> str:
    return "is a folder" if path.is_dir() else "is not a file" if path.exists() else "no such file"


def base_for(options: SearchOptions) -> Base | None:
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


def _check_reports(options: SearchOptions, others: Mapping[Path, str]) -> None:
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


def list_reports(options: SearchOptions) -> dict[str, Path]:
    """Return the reports that other programs read, by the options that name them."""
    named = {"--report": options.report, "--junit": options.junit, "--sarif": options.sarif}
    return {option: path for option, path in named.items() if path is not None}
