"""Run a suite of the tests' runner, or go on with it: `python -m tests.suite.drive FOLDER COUNT`."""

import sys
from pathlib import Path

from ranum_falsify.suite.crew import LocalCrew
from ranum_falsify.suite.planning import plan
from ranum_falsify.suite.record import Instance
from ranum_falsify.suite.results import ResultsFile
from ranum_falsify.suite.running import InstanceLimits, SuiteRun, SuiteStanding

__all__ = ["drive"]


def drive(folder: Path, count: int) -> None:
    """Have instances answered that are not done."""
    instances = [
        Instance(
            id=f"i{n}", category="c", model="m", property="", networks={}, question={"do": "answer", "sleep": 0.02}
        )
        for n in range(count)
    ]
    planned, path = plan(instances), folder / "results.jsonl"
    wanted = {one.instance.id: one.fingerprint for one in planned}
    with ResultsFile(path, keep=True) as results, LocalCrew("tests.suite.runner", 2) as crew:
        done = results.keep(wanted)[0]
        SuiteRun(
            planned=[one for one in planned if one.instance.id not in done],
            crew=crew,
            results=results,
            folder=folder / "results.counterexamples",
            limits=InstanceLimits(),
            standing=SuiteStanding(total=count),
            show=lambda standing, record: None,
        ).run()


if __name__ == "__main__":
    drive(Path(sys.argv[1]), int(sys.argv[2]))
