"""`examples` writes the models and properties of the repository, or nothing."""

from pathlib import Path

import pytest

from ranum_falsify import bundle
from tests.cli.workshop import Workshop

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_files_are_those_of_the_repository(workshop: Workshop, tmp_path: Path) -> None:
    run = workshop.run("examples", tmp_path / "here")
    assert (run.status, run.err) == (0, "")
    for folder in ("networks", "properties"):
        written = {path.name: path.read_bytes() for path in (tmp_path / "here" / folder).iterdir()}
        assert written == {path.name: path.read_bytes() for path in (ROOT / folder).iterdir() if path.is_file()}
        assert f"{tmp_path / 'here' / folder} ({len(written)} files)" in run.out


def test_nothing_is_written_over(workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "properties").mkdir()
    run = workshop.run("examples", tmp_path)
    taken = f"{tmp_path / 'properties'} exists already; choose another folder"
    assert (run.status, run.error) == (2, f"ranum-falsify: examples: {taken}")
    assert not (tmp_path / "networks").exists()


def test_what_cannot_be_written_leaves_nothing(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "part" / "networks").mkdir(parents=True)
    (tmp_path / "part" / "networks" / "a.onnx").touch()
    (tmp_path / "part" / "properties").mkdir()
    (tmp_path / "part" / "properties" / "a.py").mkdir()  # reads as no file
    monkeypatch.setattr(bundle, "_PACKAGE", tmp_path / "part" / "package")
    run = workshop.run("examples", tmp_path / "here")
    assert run.status == 2 and f"{tmp_path / 'here'}: cannot be written" in run.error
    assert list((tmp_path / "here").iterdir()) == []


def test_an_installation_without_them_is_named(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_PACKAGE", tmp_path / "package")
    run = workshop.run("examples", tmp_path / "here")
    assert run.status == 2 and f"{tmp_path / 'networks'} holds none; install ranum-falsify again" in run.error
    assert not (tmp_path / "here").exists()
