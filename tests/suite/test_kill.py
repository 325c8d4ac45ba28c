"""`kill -9` of a suite, at any moment: what is written is whole, its processes end, and it goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ranum_falsify.suite.results import read_records
from tests.suite.drive import drive

COUNT = 40


@pytest.mark.few(1)
@pytest.mark.parametrize("done", [0, 3, 17])
def test_a_killed_suite_goes_on(tmp_path: Path, repository: Path, done: int) -> None:
    results = tmp_path / "results.jsonl"
    process = subprocess.Popen([sys.executable, "-m", "tests.suite.drive", str(tmp_path), str(COUNT)], cwd=repository)
    end = time.monotonic() + 60
    while (not results.exists() or results.read_bytes().count(b"\n") < done) and time.monotonic() < end:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGSTOP)  # it starts nothing any more
    suite = psutil.Process(process.pid)
    while suite.status() != psutil.STATUS_STOPPED and time.monotonic() < end:
        time.sleep(0.001)
    family = suite.children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with results.open("ab") as stream:  # as if it had died in the middle of a write
        stream.write(b'{"format":1,"inst')
    assert psutil.wait_procs(family, timeout=30)[1] == []
    drive(tmp_path, COUNT)
    records = list(read_records(results))
    assert sorted(record.instance.id for record in records) == sorted(f"i{n}" for n in range(COUNT))
    assert {(record.status, record.runs) for record in records} == {("sat", 1)}
    for record in records:
        assert (tmp_path / record.files["description"]).read_bytes() == b"{}"
