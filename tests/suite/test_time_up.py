"""The alarm of a time limit costs nothing that was found, whenever it rings."""

from pathlib import Path
from typing import Any

import pytest

from ranum_falsify.api import instances
from ranum_falsify.api.timekeeper import TimeUp
from ranum_falsify.suite.record import Instance
from ranum_falsify.suite.worker import Task
from ranum_falsify.verify import decide
from tests.cli.workshop import LOG, Workshop


def ring_in(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """Have the alarm ring when a function is called first."""
    function = getattr(module, name)
    rung: list[str] = []

    def ring(*args: Any, **keywords: Any) -> Any:
        if not rung:
            rung.append(name)
            raise TimeUp
        return function(*args, **keywords)

    monkeypatch.setattr(module, name, ring)


def make_task(model: Path) -> Task:
    instance = Instance(
        id="log",
        category="c",
        model="m",
        property="box",
        networks={"": str(model)},
        question={"box": {"": [-1, 1]}},
        options={"n_starts": 2, "n_steps": 2},
        timeout=60,
    )
    return Task(instance=instance, stem="x/log")


def test_a_counterexample_survives_it(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    ring_in(monkeypatch, decide, "_conclude")
    assert instances.answer(make_task(workshop.model(LOG))).status == "sat"


def test_an_instance_is_out_of_time(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    ring_in(monkeypatch, decide, "falsify")
    assert instances.answer(make_task(workshop.model(LOG))).status == "timeout"


def test_the_command_says_so(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    ring_in(monkeypatch, decide, "check_backends")
    run = workshop.run("check", workshop.model(LOG), "--box", "-1", "1", "--timeout", "60")
    assert run.status == 3 and run.out.startswith("unknown (ended early: timeout)\n")
