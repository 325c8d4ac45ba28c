"""Fixtures that every test may use."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Processes that share the cores take one each; torch counts them when it is loaded.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"

# A shell without job control starts background jobs deaf to Ctrl-C, and their children with them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from hypothesis import HealthCheck, settings

import ranum_falsify.upstream  # noqa: F401 - DNNV is importable from here on, whichever test file runs alone

# A machine may be slow, and busy.
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _patient, max_examples=25)
settings.register_profile("all", _patient, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

ROOT = Path(__file__).resolve().parent.parent

collect_ignore = ["example_project"]  # its tests are meant to fail

_MOST_WORKERS = 8
"""Most processes: more would take more memory, a gigabyte each, than the time they save is worth."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto` starts a process for each core that this one may use; none if there is only one core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_WORKERS) if cores > 1 else 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test that is marked `few(n)`, all but n are slow; these lie evenly among them."""
    tests: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        for mark in item.iter_markers("few"):
            tests.setdefault((item.nodeid.partition("[")[0], mark.args[0]), []).append(item)
    for (_, most), cases in tests.items():
        kept = {number * len(cases) // most for number in range(most)} if len(cases) > most else range(len(cases))
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands keep what they find out about this machine in a cache that no other run sees."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def fetched_model() -> Callable[[str, str], Path]:
    """A function from `(package, file)` to the path of a model that scripts/fetch_models fetched.

    If the cache lacks the model, calling it skips the test and says why.
    """

    def find(package: str, file: str) -> Path:
        path = ROOT / "models" / package / file
        if not path.is_file():
            pytest.skip(f"models/{package}/{file} is not in the cache; run scripts/fetch_models")
        return path

    return find


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Run torch on one thread: small searches need no more, and the machine has few."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
