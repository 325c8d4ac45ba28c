"""Workers of a Dask cluster: each of its threads has a worker of ours, which stays warm."""

from __future__ import annotations

import hashlib
import json
import logging
import queue
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import dask
import distributed
from distributed.comm.addressing import parse_host_port

from ranum_falsify.errors import SuiteError
from ranum_falsify.saving import save_together
from ranum_falsify.suite.crew import LOST
from ranum_falsify.suite.planning import Bundle
from ranum_falsify.suite.worker import Answered, Task, Worker, WorkerDeathError
from ranum_falsify.version import __version__

_workers: dict[tuple[str, int], Worker] = {}
"""By suite and thread."""


def hold(data: bytes) -> bytes:
    """Return the content of a file: as a task, of which Dask keeps the result where it is needed."""
    return data


def _answer_there(suite: str, runner: str, version: str, task: Task, contents: Mapping[str, bytes]) -> Answered:
    """Answer a task on the machine of a Dask worker."""
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


def _end_there(suite: str) -> None:
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


_MOST_FILES = 256
"""Files that the cluster keeps for instances to come."""
_PATIENCE = 10.0
"""Seconds in which a scheduler must answer."""
_GLANCE = 1.0
"""Seconds between two looks at how many workers there are."""

_SETTINGS: Mapping[str, object] = {
    "distributed.scheduler.allowed-failures": 0,  # suites count how often an instance runs
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.profile.enabled": False,
}
"""What is measured by default takes each of the processes 2 % of a core, of two cores a twentieth."""


@contextmanager
def connect(address: str) -> Iterator[Any]:
    """Return a client of a scheduler that is there.

    Raises:
        SuiteError: It cannot be reached.
    """
    try:
        parse_host_port(address.rpartition("://")[2])  # a client of what is no address does not end
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise SuiteError(
            f"--scheduler {address}: cannot be reached ({error}); start it, or correct the address"
        ) from error
    with client:
        yield client


@contextmanager
def local_cluster(jobs: int) -> Iterator[Any]:
    """Start a cluster on this machine, and return a client of it."""
    with _own_settings():
        cluster = distributed.LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            memory_limit=None,
            silence_logs=logging.CRITICAL,  # of the workers
        )
        with cluster, distributed.Client(cluster, set_as_default=False) as client:
            yield client


@contextmanager
def scaled_cluster(make: Callable[[], Any], jobs: int) -> Iterator[Any]:
    """Start a cluster elsewhere, and return a client of it; it is kept at its size."""
    with _own_settings():
        with make() as cluster, distributed.Client(cluster, set_as_default=False) as client:
            cluster.adapt(minimum=jobs, maximum=jobs)
            yield client


@contextmanager
def _own_settings() -> Iterator[None]:
    """Have clusters that are started here report a task at once whose worker died, without a word of their own."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with dask.config.set(_SETTINGS):
            yield
    finally:
        logger.setLevel(before)


class DaskCrew:
    """Workers of a Dask cluster: as many as it has threads, which may be more or fewer from time to time.

    Args:
        runner: Name of the module that answers tasks.
        open_client: Makes the context that a client of the cluster is good for.
    """

    def __init__(self, runner: str, open_client: Callable[[], Any]) -> None:
        self._runner = runner
        self._open_client = open_client
        self._suite = uuid.uuid4().hex
        self._stack = ExitStack()
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tasks: dict[str, tuple[Task, Any]] = {}
        self._files: OrderedDict[str, Any] = OrderedDict()
        self._capacity, self._looked = 0, 0.0

    def __enter__(self) -> Self:
        """Connect to the cluster."""
        self._client = self._stack.enter_context(self._open_client())
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers of this suite; a cluster that was started for it ends, too."""
        try:
            if self._client.status == "running":
                self._client.cancel([future for _, future in self._tasks.values()])
                self._client.run(_end_there, self._suite, on_error="ignore")
        finally:
            self._stack.close()

    @property
    def client(self) -> Any:
        """The client of the cluster."""
        return self._client

    @property
    def capacity(self) -> int:
        """How many threads the cluster has."""
        now = time.monotonic()
        if now - self._looked >= _GLANCE and self._client.status == "running":
            self._capacity, self._looked = sum(self._client.nthreads().values()), now
        return self._capacity

    def submit(self, task: Task) -> None:
        """Have a task answered."""
        places = {digest: Path(path).parent / name for path, b in task.bundles.items() for name, digest in b.items()}
        contents = {digest: self._send(digest, place) for digest, place in places.items()}
        future = self._client.submit(
            _answer_there,
            self._suite,
            self._runner,
            __version__,
            task,
            contents,
            key=f"ranum-falsify-{uuid.uuid4().hex}",
            pure=False,
        )
        self._tasks[future.key] = task, future
        future.add_done_callback(self._done.put)

    def _send(self, digest: str, path: Path) -> Any:
        """Return the content of a file as a result of the cluster, which it makes again where a worker lost it."""
        held = self._files.get(digest)
        if held is None or held.status not in ("pending", "finished"):  # its worker died while it was sent
            key = f"ranum-falsify-file-{digest}-{uuid.uuid4().hex}"
            self._files[digest] = self._client.submit(hold, path.read_bytes(), key=key)
            if len(self._files) > _MOST_FILES:
                self._files.popitem(last=False)
        self._files.move_to_end(digest)
        return self._files[digest]

    def collect(self, patience: float) -> Sequence[tuple[Task, Answered]]:
        """Wait for answers."""
        found = []
        try:
            future = self._done.get(timeout=patience)
            while True:
                found.append(self._finish(future))
                future = self._done.get_nowait()
        except queue.Empty:
            pass
        if self._client.status not in ("running", "newly-created"):
            raise SuiteError("the scheduler is gone; start it, and go on by --resume")
        return found

    def _finish(self, future: Any) -> tuple[Task, Answered]:
        task, _ = self._tasks.pop(future.key)
        if future.status == "finished":
            answered: Answered = future.result()
            return task, answered
        error = future.exception() if future.status == "error" else None
        if error is None or isinstance(error, distributed.scheduler.KilledWorker):
            return task, LOST
        if isinstance(error, SuiteError):
            raise error
        text = f"workers cannot answer instances ({type(error).__name__}: {error})"
        raise SuiteError(f"{text}; install ranum-falsify {__version__} there") from error
