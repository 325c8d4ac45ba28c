"""A sample of the cases with hostile names, and whether the script would notice a fault."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = range(20_001, 20_019)  # beyond those that the script runs by default


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    """The script as a module."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import fuzz_names
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return fuzz_names


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_sample_of_hostile_names(fuzz: ModuleType, tmp_path: Path) -> None:
    outcomes = []
    for number in SAMPLE:
        folder = tmp_path / str(number)
        folder.mkdir()
        outcomes.append(fuzz.run_case(fuzz.make_named_case(number, 0), folder))
    assert [(outcome.number, outcome.faults) for outcome in outcomes if outcome.faults] == []
    assert {status for outcome in outcomes for status in outcome.statuses} >= {1, 2}
    assert {kind for outcome in outcomes for kind in outcome.reports} >= {"standard output", "JSON file", "unit test"}


def test_a_case_is_made_of_its_number_and_seed(fuzz: ModuleType) -> None:
    assert fuzz.make_named_case(3, 1) == fuzz.make_named_case(3, 1)
    assert fuzz.make_named_case(3, 1) != fuzz.make_named_case(3, 2)


@pytest.mark.parametrize(
    ("report", "count"),
    [
        (b"violated\n  log (Log) gives infinity\n", 0),
        ("größe 日本\n".encode(), 0),
        (b"a\x1b[2J\n", 1),
        (b"a\r\n", 1),
        (b"\xff\n", 1),
        ("a\u202eb\n".encode(), 1),
        (b"  ::error::x\n", 1),
        (b"x ##vso[task.complete]\n", 1),
        (b"x ##[error]\n", 2),
        (b"x ##teamcity[a]\n", 1),
        (b"--- x\n", 1),
    ],
)
def test_what_counts_as_a_fault(fuzz: ModuleType, report: bytes, count: int) -> None:
    assert len([*fuzz.faults_of(report)]) == count
