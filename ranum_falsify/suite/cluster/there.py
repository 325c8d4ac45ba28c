"""The code in Dask's workers: each of their threads has a worker of ours, which stays warm."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ranum_falsify.errors import SuiteError
from ranum_falsify.saving import save_together
from ranum_falsify.suite.bundles import Bundle
from ranum_falsify.suite.local import LOST
from ranum_falsify.suite.task import Answered, Task
from ranum_falsify.suite.worker import Worker, WorkerDeathError
from ranum_falsify.version import __version__

_workers: dict[tuple[str, int], Worker] = {}
"""By suite and thread."""


def hold(data: bytes) -> bytes:
    """Return the content of a file: as a task, of which Dask keeps the result where it is needed."""
    return data


def answer_there(suite: str, runner: str, version: str, task: Task, contents: Mapping[str, bytes]) -> Answered:
    """Answer a task on the machine of a Dask worker.

    Args:
        suite: What identifies the suite.
        runner: Name of the module that answers tasks.
        version: Version of this package where the suite was started.
        task: The task.
        contents: What its files hold, by hash.

    Raises:
        SuiteError: The package is not the same here, or does not start.
    """
    if version != __version__:
        raise SuiteError(f"workers have ranum-falsify {__version__}, not {version}; install the same version there")
    places = {path: str(_place(bundle, contents)) for path, bundle in task.bundles.items()}
    key = (suite, threading.get_ident())
    try:
        if key not in _workers:
            worker = _workers[key] = Worker(runner)
            if (failed := worker.receive()) is not None:
                raise SuiteError(f"workers do not start: {failed.error}")
        _workers[key].send(replace(task, places=places))
        answered = _workers[key].receive()
    except WorkerDeathError:
        _workers.pop(key).close()
        return LOST
    assert answered is not None, "it says only once that it has started"
    return answered


def end_there(suite: str) -> None:
    """End the workers of a suite, and what they work on."""
    for key in [key for key in _workers if key[0] == suite]:
        _workers.pop(key).close()


def _place(bundle: Bundle, contents: Mapping[str, bytes]) -> Path:
    """Write files where they are not yet; return the path of the first."""
    from distributed import get_worker

    digest = hashlib.sha256(json.dumps(list(bundle.items())).encode()).hexdigest()
    folder = Path(get_worker().local_directory) / "ranum-falsify" / digest
    paths = {name: folder / name for name in bundle}
    missing = {name: path for name, path in paths.items() if not path.exists()}
    for path in missing.values():
        if not path.resolve().is_relative_to(folder.resolve()):
            raise SuiteError(f"{path.name}: lies outside the folder of its model; move it there")
        path.parent.mkdir(parents=True, exist_ok=True)
    save_together({path: contents[bundle[name]] for name, path in missing.items()})
    return next(iter(paths.values()))
