"""DNNV and DNNF that came along: found by these names alone, before an environment's, which else take their place."""

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def package(folder: Path, name: str, version: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(f"WHERE = {version!r}")
    (folder / name / "part.py").write_text(f"WHERE = {version!r}")
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def python(code: str, tmp_path: Path) -> str:
    """Run code where a package `ranum_falsify` lies in tmp_path, and an environment beside it."""
    start = f"import sys; sys.path[:0] = [{str(tmp_path / 'environment')!r}, {str(ROOT)!r}]\n"
    start += f"import ranum_falsify.bundle as bundle\nbundle._PACKAGE = bundle.Path({str(tmp_path / 'package')!r})\n"
    command = [sys.executable, "-S", "-c", start + textwrap.dedent(code)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.strip()


def test_what_came_along_is_found_before_what_is_installed(tmp_path: Path) -> None:
    package(tmp_path / "package" / "bundled" / "third_party", "dnnv", "0.6.0")
    for name in ("dnnv", "dnnf"):
        package(tmp_path / "environment", name, "9.0")
    code = """
        bundle.offer_upstream(), bundle.offer_upstream()
        import dnnv.part, dnnf.part
        print(dnnv.WHERE, dnnv.part.WHERE, dnnf.part.WHERE, *map(bundle.version_of_upstream, bundle.UPSTREAM))
    """
    assert python(code, tmp_path) == "0.6.0 0.6.0 9.0 0.6.0 9.0"


def test_a_checkout_has_them_beside_the_package(tmp_path: Path) -> None:
    package(tmp_path / "third_party", "dnnv", "0.6.0")
    assert python("print(*map(bundle.version_of_upstream, bundle.UPSTREAM))", tmp_path) == "0.6.0 None"


def test_nothing_else_is_found_there(tmp_path: Path) -> None:
    folder = tmp_path / "package" / "bundled" / "third_party"
    for name in ("dnnv", "numpy"):
        package(folder, name, "0.6.0")
    code = """
        from importlib.util import find_spec
        before = list(sys.path), len(sys.meta_path)
        bundle.offer_upstream()
        print(find_spec("numpy"), find_spec("dnnv") is None, sys.path == before[0], len(sys.meta_path) - before[1])
    """
    assert python(code, tmp_path) == "None False True 1"


def test_what_was_imported_before_stays(tmp_path: Path) -> None:
    package(tmp_path / "package" / "bundled" / "third_party", "dnnv", "0.6.0")
    package(tmp_path / "environment", "dnnv", "9.0")
    code = """
        import dnnv
        print(bundle.version_of_upstream("dnnv"))
        import dnnv.part
        print(dnnv.part.WHERE)
    """
    assert python(code, tmp_path) == "9.0\n9.0"
