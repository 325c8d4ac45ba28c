"""Results on disk: every line whole, whatever interrupts the suite."""

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ranum_falsify.errors import UsageError
from ranum_falsify.suite.record import Instance, InstanceRecord
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


@pytest.mark.slow
def test_two_suites_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsFile(path, keep=False), pytest.raises(UsageError, match="another suite is writing it"):
        ResultsFile(path, keep=True)


def test_a_process_that_is_about_to_let_go_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with path.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        # It holds what it inherits, as the worker does that a killed suite was starting.
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"], pass_fds=[stream.fileno()])
    try:
        with ResultsFile(path, keep=True) as results:
            results.append(make_record("a"))
    finally:
        process.wait()
    assert [record.instance.id for record in read_records(path)] == ["tiny/a"]


@pytest.mark.slow
def test_results_that_are_out_of_date_go_and_the_file_stays_taken(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("".join(make_record(name).line() for name in "abca"), encoding="utf-8")
    with ResultsFile(path, keep=True) as results:
        assert results.keep({"tiny/a": "0" * 64, "tiny/b": "1" * 64}) == ({"tiny/a": "sat"}, 2)
        with pytest.raises(UsageError, match="another suite is writing it"):
            ResultsFile(path, keep=True)
        results.append(make_record("b"))
    assert [record.instance.id for record in read_records(path)] == ["tiny/a", "tiny/c", "tiny/b"]


def test_what_is_no_file_of_results_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"mine": 1}\n{"mine": 2}')
    with pytest.raises(UsageError, match="line 1 is no result of a suite"), ResultsFile(path, keep=True) as results:
        results.keep({})
    assert path.read_bytes() == b'{"mine": 1}\n{"mine": 2}'


def test_a_full_disk_costs_the_last_record_alone(tmp_path: Path) -> None:
    code = (
        "import pathlib, resource, signal; from ranum_falsify.suite.results import ResultsFile\n"
        "from tests.suite.test_results import make_record\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        f"with ResultsFile(pathlib.Path({str(tmp_path / 'r.jsonl')!r}), keep=True) as results:\n"
        "    for name in 'abcdefgh': results.append(make_record(name))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "SaveError" in done.stderr and "r.jsonl: cannot be written (file too large)" in done.stderr
    assert [record.instance.id for record in read_records(tmp_path / "r.jsonl")] == ["tiny/a", "tiny/b", "tiny/c"]
    assert (tmp_path / "r.jsonl").read_bytes().endswith(b"\n")


def test_without_keep_former_results_go(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(make_record("a").line(), encoding="utf-8")
    ResultsFile(path, keep=False).__exit__()
    assert path.read_bytes() == b""
