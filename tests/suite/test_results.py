"""Results on disk: every line whole, whatever interrupts the suite."""

import json
from pathlib import Path

import pytest

from ranum_falsify.errors import UsageError
from ranum_falsify.suite.instance import Instance
from ranum_falsify.suite.record import InstanceRecord
from ranum_falsify.suite.results import ResultsFile, read_records


def make_record(name: str) -> InstanceRecord:
    instance = Instance(
        id=f"tiny/{name}",
        category="tiny",
        model=f"{name}.onnx",
        property="spec.vnnlib",
        networks={"": f"folder/{name}.onnx"},
        property_path="folder/spec.vnnlib",
        parameters={"lb": "0"},
        options={"seed": 3, "backend": ["pgd"]},
        timeout=2.5,
    )
    return InstanceRecord(
        instance=instance,
        fingerprint="0" * 64,
        status="sat",
        preparation=0.25,
        seconds=1.5,
        files={"vnnlib": f"counterexamples/{name}.vnnlib.txt"},
        report={"verdict": "violated", "operators": []},
    )


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    records = [make_record("a"), make_record("b")]
    with ResultsFile(path, keep=False) as results:
        for record in records:
            results.append(record)
    assert list(read_records(path)) == records


@pytest.mark.parametrize("lost", range(1, 40, 7))
def test_a_line_that_was_not_finished_is_dropped(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(make_record("a").line() + make_record("b").line()[:-lost], encoding="utf-8")
    assert list(read_records(path)) == [make_record("a")]
    with ResultsFile(path, keep=True) as results:
        results.append(make_record("c"))
    assert list(read_records(path)) == [make_record("a"), make_record("c")]


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    data = make_record("b").to_json() | {"status": "maybe"}
    path.write_text(make_record("a").line() + json.dumps(data) + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"results\.jsonl: line 2 is no result of a suite"):
        list(read_records(path))


def test_two_suites_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsFile(path, keep=False), pytest.raises(UsageError, match="another suite is writing it"):
        ResultsFile(path, keep=True)


def test_without_keep_former_results_go(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(make_record("a").line(), encoding="utf-8")
    ResultsFile(path, keep=False).__exit__()
    assert path.read_bytes() == b""
