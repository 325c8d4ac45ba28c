"""Workers of a Dask cluster: a real one on this machine, whose workers die, and join, during a run."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ranum_falsify.errors import SuiteError
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.suite.planning import plan
from ranum_falsify.suite.record import Instance, InstanceRecord
from ranum_falsify.suite.results import ResultsFile, read_records
from ranum_falsify.suite.running import InstanceLimits, SuiteRun, SuiteStanding

pytest.importorskip("distributed")

from ranum_falsify.suite.dask_crew import DaskCrew, connect, local_cluster

RUNNER = "tests.suite.runner"


def run(crew: DaskCrew, instances: list[Instance], folder: Path) -> dict[str, InstanceRecord]:
    standing = SuiteStanding(total=len(instances))
    with ResultsFile(folder / "results.jsonl", keep=True) as results:
        SuiteRun(
            planned=plan(instances),
            crew=crew,
            results=results,
            folder=folder / "results.counterexamples",
            limits=InstanceLimits(),
            standing=standing,
            show=lambda standing, record: None,
        ).run()
    records = list(read_records(folder / "results.jsonl"))
    assert sorted(record.instance.id for record in records) == sorted(one.id for one in instances)
    return {record.instance.id: record for record in records}


def make(name: str, *networks: Path, **question: Any) -> Instance:
    paths = {str(number): str(path) for number, path in enumerate(networks)}
    return Instance(id=name, category="test", model=name, property="", networks=paths, question=question)


@pytest.mark.slow
def test_workers_die_and_join(tmp_path: Path) -> None:
    models = [tmp_path / f"{name}.onnx" for name in "ab"]
    for path in models:
        path.write_bytes(path.name.encode() * 3)
    instances = [make(f"i{n}", models[n % 2], do="answer", sleep=0.1) for n in range(12)]
    instances.append(make("deadly", do="kill its Dask worker"))
    with DaskCrew(RUNNER, lambda: local_cluster(2)) as crew:
        attack = threading.Thread(target=disturb, args=(crew,))
        attack.start()
        found = run(crew, instances, tmp_path)
        attack.join()
    deadly = found.pop("deadly")
    assert (deadly.status, deadly.error, deadly.runs) == ("error", "its worker was killed", 3)
    assert {record.status for record in found.values()} == {"sat"}
    for number in range(12):
        folder = tmp_path / "results.counterexamples"
        (copy,) = folder.glob(f"i{number}-*.onnx")
        assert copy.read_bytes() == models[number % 2].read_bytes()


def disturb(crew: DaskCrew) -> None:
    """Kill a worker in the middle of a run, and add one."""
    while sum(crew.client.nthreads().values()) < 2:
        time.sleep(0.1)
    pid = next(iter(crew.client.run(os.getpid).values()))
    os.kill(pid, signal.SIGKILL)
    crew.client.cluster.scale(3)


@pytest.mark.slow
def test_the_files_of_weights_travel_with_their_model(tmp_path: Path) -> None:
    m = ModelBuilder("external")
    x = m.input("x", [1, 300])
    m.output(m.MatMul(x, m.constant(np.ones((300, 2), np.float32), "w")), [1, 2])
    path = tmp_path / "model.onnx"
    onnx.save(m.build(), str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    with DaskCrew(RUNNER, lambda: local_cluster(1)) as crew:
        run(crew, [make("one", path, do="answer")], tmp_path)
    (copy,) = (tmp_path / "results.counterexamples").glob("one-*.onnx")
    assert copy.read_bytes() == path.read_bytes() + b" " + (tmp_path / "w.bin").read_bytes()


@pytest.mark.slow
def test_a_scheduler_that_is_there_is_left_there(tmp_path: Path) -> None:
    with local_cluster(1) as client:
        address = client.scheduler.address
        for number in range(2):
            with DaskCrew(RUNNER, lambda: connect(address)) as crew:
                (tmp_path / str(number)).mkdir()
                run(crew, [make("one", do="answer")], tmp_path / str(number))
        with DaskCrew("tests.no_such_runner", lambda: connect(address)) as crew:
            with pytest.raises(SuiteError, match=r"workers do not start: internal error \(ModuleNotFoundError"):
                run(crew, [make("one", do="answer")], tmp_path)


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranum_falsify.suite.dask_crew._PATIENCE", 0.5)
    with pytest.raises(SuiteError, match=r"--scheduler tcp://127\.0\.0\.1:9: cannot be reached"):
        with DaskCrew(RUNNER, lambda: connect("tcp://127.0.0.1:9")):
            pass


@pytest.mark.parametrize("address", ["here", "tcp://here", "tcp://[here]:1"])
def test_what_is_no_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranum_falsify.suite.dask_crew._PATIENCE", 0.5)
    with pytest.raises(SuiteError, match="cannot be reached"):
        with DaskCrew(RUNNER, lambda: connect(address)):
            pass
