"""What a release is checked for before it is tagged."""

from __future__ import annotations

import importlib
import io
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.snippets import ROOT


@pytest.fixture
def licences(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("list_licences")


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("release")


class TestLicences:
    def test_the_page_has_all_that_is_required(self, licences: Any, capsys: pytest.CaptureFixture[str]) -> None:
        assert licences.main([]) == 0
        head = capsys.readouterr().out.partition("| package")[0]
        page = licences.PAGE.read_text(encoding="utf-8")
        assert page.startswith(head), "run scripts/list_licences.py --write"
        names = {name.lower().replace("_", "-") for name in licences.required()}
        assert names | {"dnnv", "dnnf"} <= set(re.findall(r"^\| (\S+) \|", page, re.MULTILINE))

    @pytest.mark.parametrize(
        ("said", "names"),
        [
            ("MIT", ["MIT"]),
            ("GPL-3.0-only", [""]),
            ("Apache-2.0 AND GPL-2.0", ["Apache-2.0", ""]),
            ("GPL-2.0-only OR BSD-3-Clause", ["BSD-3-Clause"]),
            ("not said", [""]),
        ],
    )
    def test_one_that_nobody_agreed_to_has_no_name(self, licences: Any, said: str, names: list[str]) -> None:
        assert list(licences.agreed(said)) == names


class TestContents:
    def make(self, folder: Path, *names: str, body: str = "Text.") -> tuple[Path, Path]:
        wheel, source = folder / "w.whl", folder / "s.tar.gz"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("ranum_falsify-2.0.dist-info/METADATA", f"Name: ranum-falsify\nVersion: 2.0\n\n{body}")
            for name in ("py.typed", "bundled/third_party/dnnv/a.py", "bundled/networks/a.onnx"):
                archive.writestr(f"ranum_falsify/{name}", "")
            for name in names:
                archive.writestr(name, "")
        with tarfile.open(source, "w:gz") as sources:
            sources.addfile(tarfile.TarInfo("ranum_falsify-2.0/setup.py"), io.BytesIO())
        return wheel, source

    def test_a_whole_one_passes(self, release: Any, tmp_path: Path) -> None:
        release.check_contents(*self.make(tmp_path, body="[a](https://a.org) [b](#c)"), "2.0")

    @pytest.mark.parametrize(
        ("names", "body", "wanted", "says"),
        [
            ((), "Text.", "2.1", "says 2.0, the checkout 2.1"),
            ((), "[a](docs/a.md)", "2.0", "lead nowhere on an index: docs/a.md"),
            (("tests/a.py",), "Text.", "2.0", "holds what is not the package: tests/a.py"),
        ],
    )
    def test_a_fault_is_named(
        self, release: Any, tmp_path: Path, names: tuple[str, ...], body: str, wanted: str, says: str
    ) -> None:
        with pytest.raises(release.ReleaseFault, match=re.escape(says)):
            release.check_contents(*self.make(tmp_path, *names, body=body), wanted)


def test_the_versions_agree(release: Any) -> None:
    section = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    assert section.startswith(release.version()) and len(section.splitlines()) <= 40
