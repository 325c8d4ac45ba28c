"""ONNX Runtime tells nobody that it runs: not in this process, and in none that it starts."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import ranum_falsify  # noqa: F401 - sets the variable
from ranum_falsify.process.child import Child

ROOT = Path(__file__).resolve().parent.parent
VARIABLE = "ORT_DISABLE_TELEMETRY"
COMMAND = ("-m", "ranum_falsify", "properties/no_invalid_input_box.py", "-N", "N", "networks/vae.onnx")
LOAD = "import onnxruntime; onnxruntime.InferenceSession('networks/vae.onnx', providers=['CPUExecutionProvider'])"


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """What a process finds that no user has told anything about telemetry, with a home of its own."""
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    return {**kept, **home, "PYTHONPATH": str(ROOT)}


def left_behind(arguments: tuple[str, ...], environment: Mapping[str, str]) -> set[str]:
    """Run Python and return the names of the files that this leaves in the user's folder, except our own cache."""
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    home = Path(environment["HOME"])
    return {p.name for p in home.rglob("*") if p.is_file() and "ranum-falsify" not in p.parts}


@pytest.mark.slow
def test_a_run_with_its_children_leaves_no_database(environment: Mapping[str, str]) -> None:
    assert left_behind((*COMMAND, "-p", "4", "--n_starts", "20", "--prove-timeout", "1"), environment) == set()


def test_a_library_s_user_is_safe_too(environment: Mapping[str, str]) -> None:
    assert left_behind(("-c", f"import ranum_falsify; {LOAD}"), environment) == set()


def test_a_database_would_be_seen(environment: Mapping[str, str]) -> None:
    if not left_behind(("-c", LOAD), environment):
        pytest.skip("this ONNX Runtime keeps no database")


@pytest.mark.slow
def test_what_the_user_has_set_makes_no_difference(environment: Mapping[str, str]) -> None:
    assert left_behind(("-c", f"import ranum_falsify; {LOAD}"), {**environment, VARIABLE: "0"}) == set()


def test_scripts_load_it_after_the_package() -> None:
    first = [
        path.name
        for path in (ROOT / "scripts").rglob("*.py")
        if re.search("^(?:import|from) onnxruntime", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not first


def test_a_child_has_the_variable(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import os\n\ndef service():\n    return lambda command, name: os.environ.get(name)\n")
    child = Child(worker)
    try:
        assert child.ask("get", VARIABLE, timeout=60) == ("ok", "1")
    finally:
        child.close()
