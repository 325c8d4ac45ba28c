"""Instances in processes of their own: whatever one does, it is its own result."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from ranum_falsify.suite.crew import LocalCrew
from ranum_falsify.suite.planning import plan
from ranum_falsify.suite.record import Instance, InstanceRecord
from ranum_falsify.suite.results import ResultsFile, read_records
from ranum_falsify.suite.running import InstanceLimits, SuiteRun, SuiteStanding
from ranum_falsify.suite.worker import Worker

RUNNER = "tests.suite.runner"


def make(name: str, timeout: float | None = None, **question: Any) -> Instance:
    return Instance(id=name, category="test", model=name, property="", networks={}, question=question, timeout=timeout)


def run(
    instances: list[Instance], folder: Path, *, jobs: int = 2, memory: int | None = None, until: float | None = None
) -> dict[str, InstanceRecord]:
    standing = SuiteStanding(total=len(instances))
    with ResultsFile(folder / "results.jsonl", keep=True) as results, LocalCrew(RUNNER, jobs) as crew:
        SuiteRun(
            planned=plan(instances),
            crew=crew,
            results=results,
            folder=folder / "results.counterexamples",
            limits=InstanceLimits(memory=memory, until=until),
            standing=standing,
            show=lambda standing, record: None,
        ).run()
    records = list(read_records(folder / "results.jsonl"))
    assert len({record.instance.id for record in records}) == len(records)
    assert standing.done == len(records)
    return {record.instance.id: record for record in records}


def test_what_an_instance_does_is_its_own_result(tmp_path: Path) -> None:
    instances = [
        make("first", do="answer"),
        make("crash", do="crash"),
        make("exit", do="exit"),
        make("die", do="die"),
        make("refuse", do="refuse"),
        make("fail", do="fail"),
        make("eat", do="eat", bytes=400 * 2**20),
        make("last", do="answer"),
    ]
    found = run(instances, tmp_path, memory=300 * 2**20)
    errors = {name: record.error for name, record in found.items() if record.status == "error"}
    assert errors.pop("crash") == "crashed (SIGSEGV); please report it"
    assert errors.pop("exit") == "crashed (exit status 7); please report it"
    assert "was killed" in errors.pop("die")
    assert errors.pop("refuse") == "no such thing; try another"
    assert errors.pop("fail") == "internal error (ZeroDivisionError: by zero); please report it"
    assert errors.pop("eat").startswith("out of memory: took 0.")
    assert not errors
    assert found["first"].status == found["last"].status == "sat"
    assert found["die"].runs == 3


@pytest.mark.slow
def test_an_instance_that_does_not_end_is_ended(tmp_path: Path) -> None:
    hanging = make("hang", timeout=0.01, do="hang")
    began = time.monotonic()
    found = run([hanging, make("other", do="answer")], tmp_path)
    assert found["hang"].status == "timeout" and found["other"].status == "sat"
    assert time.monotonic() - began < 60


def test_the_files_of_a_counterexample_lie_by_the_results(tmp_path: Path) -> None:
    record = run([make("a b/c", do="answer")], tmp_path)["a b/c"]
    assert record.files["description"].startswith("results.counterexamples/a_b_c-")
    assert (tmp_path / record.files["description"]).read_bytes() == b"{}"


@pytest.mark.parametrize("how", ["die once", "kill its worker once"])
def test_what_was_killed_runs_again(tmp_path: Path, how: str) -> None:
    instances = [make(f"i{n}", do="answer") for n in range(4)] + [make("hit", do=how, marker=str(tmp_path / "marker"))]
    found = run(instances, tmp_path)
    assert [record.status for record in found.values()] == ["sat"] * 5
    assert found["hit"].runs == 2


@pytest.mark.slow
def test_the_time_of_a_suite_is_limited(tmp_path: Path) -> None:
    instances = [make(f"i{n}", do="answer", sleep=0.3) for n in range(500)]
    found = run(instances, tmp_path, until=time.monotonic() + 3)
    assert len(found) < 500


@pytest.mark.slow
def test_processes_end_with_the_worker(tmp_path: Path) -> None:
    crew = LocalCrew(RUNNER, 1)
    with crew:
        (planned,) = plan([make("hang", do="hang")])
        from ranum_falsify.suite.worker import Task

        crew.submit(Task(instance=planned.instance, stem="x/y"))
        child = wait_for_child(crew)
        os.kill(crew.pids[0], signal.SIGKILL)
        psutil.wait_procs([child], timeout=30)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_a_worker_that_is_not_ready_yet_ends_too() -> None:
    worker = Worker("tests.suite.slow_runner")
    try:
        time.sleep(1)
        worker.connection.close()  # as when the process that started it is killed
        assert psutil.wait_procs([psutil.Process(worker.pid)], timeout=60)[1] == []
    finally:
        worker.close()


def wait_for_child(crew: LocalCrew) -> psutil.Process:
    """Return the process of the instance that a crew of one works on."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        crew.collect(0.1)
        if children := psutil.Process(crew.pids[0]).children():
            return children[0]
    raise AssertionError("nothing was started")
