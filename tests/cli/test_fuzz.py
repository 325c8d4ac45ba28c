"""A sample of the fuzz script's cases, and whether the script would notice a fault."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = range(20_000, 20_060)  # beyond those that the script runs by default

# Cases run in forks, which a process with threads must not make; so each test has an interpreter of its own.
FAULTS = """
import json, sys, tempfile
from pathlib import Path
import fuzz_inputs as fuzz
from lab.fuzz.cases import mutate_case

fuzz.import_all()
fuzz._HANG = 2.5
model = Path(sys.argv[1]).read_bytes()
found = []
for value in ("max(itertools.repeat(1))", "1"):
    text = f"import itertools\\nN = Network('N')\\nb = {value}\\nForall(x, Implies(0 <= x <= b, N(x)[0, 0] >= 0))\\n"
    with tempfile.TemporaryDirectory() as folder:
        case = mutate_case(0, "property", "prop.py", text.encode(), model)
        found.append(fuzz.run_case(case, Path(folder), search=False).result)
        fuzz._MOST_MEMORY = 10**7
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    """The script as a module."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import fuzz_inputs
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return fuzz_inputs


@pytest.mark.slow
def test_a_sample_of_mutated_files_and_bombs() -> None:
    options = ["--first", str(SAMPLE.start), "--cases", str(len(SAMPLE)), "--workers", "1", "--search-every", "10"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "fuzz_inputs.py"), *options],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"{len(SAMPLE)} cases, 0 failed" in done.stdout


def test_a_case_is_made_of_its_number_and_seed(fuzz: ModuleType) -> None:
    assert fuzz.make_case(3, 1) == fuzz.make_case(3, 1)
    assert len({fuzz.make_case(number, seed).bomb.files["model.onnx"] for number in (2, 4) for seed in (0, 1)}) == 4
    assert {fuzz.make_case(number, 0).kind for number in range(10)} == {"property", "model", "bomb"}
    assert all(fuzz.make_case(number, 0).kind == fuzz.kind_of(number) for number in range(10))


@pytest.mark.parametrize(
    ("status", "errors", "fault"),
    [
        (2, "ranum-falsify: p.py: no such file\n", None),
        (3, "", None),
        (2, "ranum-falsify: internal error (KeyError: 1); please report it\n", "internal error"),
        (2, "", "not one line"),
        (2, "ranum-falsify: a\nranum-falsify: b\n", "not one line"),
        (1, "warning\n", "noise on standard error"),
        (130, "", "exit status 130"),
    ],
)
def test_what_counts_as_a_fault(fuzz: ModuleType, status: int, errors: str, fault: str | None) -> None:
    assert fuzz.judge(status, errors) == fault


@pytest.mark.slow
def test_a_hang_and_much_memory_are_noticed() -> None:
    command = [sys.executable, "-c", FAULTS, str(ROOT / "networks" / "l2_normalise.onnx")]
    path = f"{ROOT / 'scripts'}:{ROOT}"
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, env={"PYTHONPATH": path, "PATH": ""}
    )
    assert json.loads(done.stdout) == ["hang", "memory"]
