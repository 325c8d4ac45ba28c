"""A runner for tests: each instance says what it does to its process."""

import ctypes
import os
import signal
import time
from pathlib import Path

import psutil

from ranum_falsify.errors import UsageError
from ranum_falsify.suite.worker import Answered, Task

__all__ = ["answer", "prepare", "warm_up"]


def warm_up() -> None:
    """Nothing to do."""


def prepare(*, clean: bool) -> None:
    """Nothing to do."""


def answer(task: Task) -> Answered:
    """Do what the instance says."""
    given = task.instance.question
    time.sleep(given.get("sleep", 0.0))
    match given["do"]:
        case "crash":
            ctypes.string_at(0)
        case "exit":
            os._exit(7)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die once":
            if not (marker := Path(given["marker"])).exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        case "kill its worker once":
            if not (marker := Path(given["marker"])).exists():
                marker.touch()
                os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(60)
        case "kill its Dask worker":
            os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)
            time.sleep(60)
        case "hang":
            time.sleep(600)
        case "eat":
            held = bytearray(given["bytes"])
            time.sleep(600 if held else 0)
        case "refuse":
            raise UsageError("no such\nthing; try another")
        case "fail":
            raise ZeroDivisionError("by zero")
    contents = {f"{task.stem}.json": b"{}"}
    for path in task.instance.networks.values():
        place = Path(task.places.get(path, path))
        contents[f"{task.stem}.{place.name}"] = b" ".join(file.read_bytes() for file in sorted(place.parent.iterdir()))
    return Answered(
        status="sat", seconds=0.5, preparation=0.25, files={"description": f"{task.stem}.json"}, contents=contents
    )
