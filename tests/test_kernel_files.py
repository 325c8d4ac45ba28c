"""Records that cover several versions, and the script that adds one."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ranum_falsify.domain.kernels.records import Record, read_record, shipped
from ranum_falsify.selfcheck.measuring import Sweep

ROOT = Path(__file__).resolve().parent.parent
SWEEP = Sweep(inner=61, every=997)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from lab.kernels import files

    return files


def measured(version: str, relative: float, *functions: str) -> Record:
    (found,) = (r for r in shipped() if (r.runtime, r.family) == ("torch", "avx2"))
    names = functions or ("Tanh", "Exp")
    return replace(
        found,
        versions={version: f"on a processor of {version}"},
        swept=dict.fromkeys(names, "all"),
        rows={name: {"float32": (relative, 0.0, -1.0, 1.0, True)} for name in names},
        saturation=dict.fromkeys(names, (-10.0, 10.0)),
    )


def test_a_later_version_widens_a_record_and_says_how_it_was_measured(files: Any, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for version, relative in (("1", 2e-7), ("2", 1e-7), ("3", 3e-7)):
        files.update(path, measured(version, relative), sweep=SWEEP)
    record = read_record(path)
    assert record.rows["Tanh"]["float32"][0] == 3e-7 and record.swept["Tanh"] == "all"
    assert list(record.versions) == ["1", "2", "3"] and record.versions["1"] == "on a processor of 1"
    assert record.versions["2"] == (
        "on a processor of 2, one in 61 of the critical magnitudes, one in 997 of the others"
    )


def test_a_later_measurement_of_one_of_several_versions_never_narrows(files: Any, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for version, relative in (("1", 2e-7), ("2", 1e-7), ("1", 1e-8)):
        files.update(path, measured(version, relative), sweep=SWEEP)
    assert read_record(path).rows["Tanh"]["float32"][0] == 2e-7


def test_a_record_of_one_version_may_be_measured_anew(files: Any, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    files.update(path, measured("1", 2e-7), sweep=SWEEP)
    files.update(path, measured("1", 1e-7, "Tanh"), sweep=SWEEP)
    record = read_record(path)
    assert (record.rows["Tanh"]["float32"][0], record.rows["Exp"]["float32"][0]) == (1e-7, 2e-7)


def test_a_version_of_which_some_functions_were_measured_does_not_count(files: Any, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    files.update(path, measured("1", 2e-7), sweep=SWEEP)
    with pytest.raises(ValueError, match=r"torch 2 .*measure all functions, not only some \(Exp are missing\)"):
        files.update(path, measured("2", 2e-7, "Tanh"), sweep=SWEEP)
    assert list(read_record(path).versions) == ["1"]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("measure_release")


def test_what_a_release_does_otherwise_is_named(release: Any) -> None:
    before = measured("1", 2e-7)
    assert list(release.compare(before, measured("2", 1e-7))) == []
    now = measured("2", 3e-7, "Exp", "Sin")
    now = replace(now, saturation={"Exp": (-11.0, 10.0)})
    assert list(release.compare(before, now)) == [
        "Tanh in float32 has no kernel",
        "Exp in float32: relative error 3e-07, not 2e-07",
        "Exp reaches its limits at -11 and 10, not -10 and 10",
        "Sin in float32 has a kernel",
    ]


def test_the_page_has_a_part_for_each_release_the_newest_first(release: Any, tmp_path: Path) -> None:
    page = tmp_path / "releases.md"
    page.write_text("# Releases\n\nText.\n")
    for text in (part("a 1", "X", "sse"), part("a 2", "X", "avx"), part("a 1", "Y", "avx"), part("a 1", "Y", "avx")):
        release.write_section(page, text)
    again = part("a 1", "Y", "avx").replace("| sse | not with this version | |", "| sse | on X | none |")
    both = again.replace("On Y", "On X, 1 minutes.\n\nOn Y")
    assert page.read_text() == f"# Releases\n\nText.\n\n{both}\n{part('a 2', 'X', 'avx')}"


def part(title: str, machine: str, family: str) -> str:
    rows = {name: "not with this version | |" for name in ("avx", "sse")} | {family: f"on {machine} | none |"}
    table = "\n".join(f"| {name} | {rows[name]}" for name in sorted(rows))
    return f"## {title}\n\nOn {machine}, 1 minutes.\n\n| family | measured | changes |\n|---|---|---|\n{table}\n"


def test_what_is_no_release_is_refused(release: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["numpy==2.0"]) == 2
    assert "numpy==2.0: no release; say onnxruntime==VERSION" in capsys.readouterr().err
