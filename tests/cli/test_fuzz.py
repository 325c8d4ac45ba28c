"""A sample of the fuzz script's cases, and whether the script would notice a fault."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.cli.workshop import LOG, Workshop

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = range(20_000, 20_150)  # beyond those that the script runs by default


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    """The script as a module."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import fuzz_inputs
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return fuzz_inputs


def test_a_sample_of_mutated_files(fuzz: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcomes = []
    for number in SAMPLE:
        case = fuzz.make_case(number, 0)
        outcomes.append(fuzz.run_case(case, tmp_path, search=number // 2 % 10 == 0))
    assert [outcome for outcome in outcomes if outcome.result not in ("refused", "accepted", "searched")] == []
    assert {outcome.result for outcome in outcomes} >= {"refused", "accepted"}


def test_a_case_is_made_of_its_number_and_seed(fuzz: ModuleType) -> None:
    assert fuzz.make_case(3, 1) == fuzz.make_case(3, 1)
    assert len({fuzz.make_case(number, seed).property_bytes for number in (3, 5) for seed in (0, 1)}) == 4
    assert {fuzz.make_case(number, 0).kind for number in range(4)} == {"property", "model"}
    assert all(fuzz.make_case(number, 0).kind == fuzz.make_kind(number) for number in range(10))


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
    assert fuzz._judge(status, errors) == fault


def test_a_hang_is_noticed(fuzz: ModuleType, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "_CASE_SECONDS", 1)
    text = b"import time\nN = Network('N')\nwait = time.sleep(30)\nForall(x, Implies(0 <= x <= 1, N(x)[0, 0] >= 0))\n"
    case = type(fuzz.make_case(0, 0))(0, "property", "prop.py", text, workshop.model(LOG).read_bytes())
    outcome = fuzz.run_case(case, workshop.folder, search=False)
    assert outcome.result == "hang" and outcome.seconds < 5
