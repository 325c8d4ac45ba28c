"""The kinds of clusters, which need packages of their own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from ranum_falsify.errors import UsageError

Kind = Literal["local", "slurm", "kubernetes"]

_CLUSTERS = {"slurm": ("dask_jobqueue", "SLURMCluster"), "kubernetes": ("dask_kubernetes.operator", "KubeCluster")}
"""Module and class of the clusters that are not on this machine; Dask's configuration has their settings."""


def make_crew(runner: str, jobs: int, *, kind: Kind | None = None, scheduler: str | None = None) -> Any:
    """Return the workers of a cluster, not started yet.

    Args:
        runner: Name of the module that answers tasks.
        jobs: How many workers a cluster gets that is started.
        kind: The cluster to start.
        scheduler: The address of one that is there.

    Raises:
        UsageError: A package is missing.
    """
    crew = _load("ranum_falsify.suite.cluster.crew")
    return crew.DaskCrew(runner, _find_opener(crew, jobs, kind, scheduler))


def _find_opener(crew: Any, jobs: int, kind: Kind | None, scheduler: str | None) -> Callable[[], Any]:
    if scheduler is not None:
        return partial(crew.connect, scheduler)
    if kind == "local":
        return partial(crew.local_cluster, jobs)
    module, name = _CLUSTERS[str(kind)]
    return partial(crew.scaled_cluster, getattr(_load(module), name), jobs)


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is None or error.name.startswith("ranum_falsify"):
            raise
        package = error.name.partition(".")[0].replace("_", "-")
        raise UsageError(f"clusters need {package}; run: pip install {package}") from error
