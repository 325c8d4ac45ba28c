"""What a source distribution and a wheel hold, and that the one is made of the other without a network."""

import email
import email.message
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.test_frame import load_script

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("ranum_falsify", "networks", "properties", "third_party")
BUNDLED = "ranum_falsify/bundled/"


def checkout(folder: Path) -> Path:
    """A copy of what builds read of this checkout."""
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__", "dnnv", "dnnf", "*.dist-info")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    return folder


def build(kind: str, source: Path, out: Path, *, offline: bool) -> Path:
    """Build as build front ends do, in this environment."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
    environment = {**os.environ, **({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""} if offline else {})}
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return out / run.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", checkout(tmp_path_factory.mktemp("checkout")), tmp_path_factory.mktemp("dist"), offline=False)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    return zipfile.ZipFile(build("wheel", source, folder, offline=True))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


@pytest.fixture
def script() -> ModuleType:
    return load_script("setup.py")


def bundled(wheel: zipfile.ZipFile, folder: str) -> dict[str, bytes]:
    start = f"{BUNDLED}{folder}/"
    return {name.removeprefix(start): wheel.read(name) for name in wheel.namelist() if name.startswith(start)}


@pytest.mark.slow
def test_the_source_distribution_holds_what_wheels_are_made_of(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "third_party/requirements.txt"}
    assert len([name for name in names if name.startswith("third_party/") and name.endswith(".whl")]) == 2
    assert {f"networks/{path.name}" for path in (ROOT / "networks").glob("*.*")} <= names
    assert not any(name.startswith(("tests", "third_party/dnnv/", "scripts")) for name in names)


def test_the_wheel_holds_the_package_and_what_comes_along(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name or name.startswith(BUNDLED)}
    assert {name.partition("/")[0] for name in names} == {"ranum_falsify"}
    files = {path for path in (ROOT / "ranum_falsify").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {name for name in names if not name.startswith(BUNDLED)} == {str(p.relative_to(ROOT)) for p in files}
    for folder in ("networks", "properties"):
        there = {path.name: path.read_bytes() for path in (ROOT / folder).iterdir() if path.is_file()}
        assert bundled(wheel, folder) == there


def test_dnnv_and_dnnf_are_as_released_with_their_licences(wheel: zipfile.ZipFile, sdist: Path) -> None:
    released: dict[str, bytes] = {}
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            if member.name.endswith(".whl"):
                with zipfile.ZipFile(archive.extractfile(member)) as part:  # type: ignore[arg-type]
                    released |= {name: part.read(name) for name in part.namelist()}
    assert bundled(wheel, "third_party") == released
    licences = [name for name in released if name.endswith("/LICENSE")]
    assert len(licences) == 2 and all(b"MIT License" in released[name] for name in licences)


def test_the_metadata_is_true(metadata: email.message.Message) -> None:
    required = metadata.get_all("Requires-Dist") or []
    assert not [line for line in required if line.startswith("dnn")]
    assert "torch" not in (metadata.get_all("Provides-Extra") or [])
    classifiers = metadata.get_all("Classifier") or []
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)} <= set(classifiers)
    assert "Typing :: Typed" in classifiers and "Operating System :: OS Independent" not in classifiers


def test_the_page_of_an_index_has_no_link_into_the_repository(script: ModuleType) -> None:
    page = script.describe()
    assert "NaN in training" in page and "[DNNF](https://" in page and "<img" not in page
    assert "](docs/" not in page and "](LICENSE" not in page and "](CONTRIBUTING" not in page


@pytest.mark.slow
def test_a_wheel_that_was_changed_is_not_used(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "third_party", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("dnn?"))
    script.__dict__.update(THIRD_PARTY=tmp_path)
    for wheel in script.obtain():
        assert wheel.is_file()
    wheel.write_bytes(wheel.read_bytes() + b"more")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        SystemExit, match=r"dnnf-0\.1\.7-py3-none-any\.whl could not be downloaded; .* or put them into"
    ):
        script.obtain()
    capfd.readouterr()
