"""The plan of a suite: the instances that run, their order, and their identities."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ranum_falsify.config import SearchConfig
from ranum_falsify.errors import ModelError, UsageError
from ranum_falsify.file_content import may_have_external_data, sha256
from ranum_falsify.suite.record import Instance


@dataclass(frozen=True)
class Planned:
    """An instance, and what identifies it.

    Attributes:
        instance: The instance.
        fingerprint: SHA-256 hash of the question, its options, and the content of its files.
        bundles: Its files, by their paths in it.
    """

    instance: Instance
    fingerprint: str
    bundles: Mapping[str, Bundle] = field(default_factory=dict)


def choose(
    instances: Sequence[Instance], patterns: Sequence[str] = (), shard: tuple[int, int] | None = None
) -> list[Instance]:
    """Return the instances to run.

    Args:
        instances: All of a suite.
        patterns: Those whose id holds one of these texts, or is matched by it if it has `*`, `?` or `[`; all if empty.
        shard: `(i, n)`: of these, every n-th, beginning with the i-th; None for all.

    Raises:
        UsageError: There is none.
    """
    found = [one for one in instances if not patterns or any(_matches(one.id, pattern) for pattern in patterns)]
    if not found:
        raise UsageError(
            f"--filter {' '.join(patterns)}: matches none of {len(instances)} instances; --list shows them"
        )
    position, count = shard or (1, 1)
    return found[position - 1 :: count]


def _matches(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern) if re.search(r"[*?\[]", pattern) else pattern in text


def override(instance: Instance, options: Mapping[str, Any], timeout: float | None) -> Instance:
    """Return an instance with options that count for all of a suite."""
    limits = [limit for limit in (instance.timeout, timeout) if limit is not None]
    return replace(
        instance, options={**instance.options, **options}, timeout=min(limits) if limits else SearchConfig.timeout
    )


def plan(instances: Sequence[Instance], former: Mapping[str, float] | None = None) -> list[Planned]:
    """Return instances in the order in which they start.

    Args:
        instances: The instances.
        former: Seconds that they took before, by id: the longest first; those without come before them, because they
            may take longer still.
    """
    times = former or {}
    bundler = Bundler()
    found = [_identify(one, bundler.bundle(one)) for one in instances]
    return sorted(found, key=lambda one: -times.get(one.instance.id, float("inf"))) if times else found


def _identify(instance: Instance, bundles: Mapping[str, Bundle]) -> Planned:
    paths = {
        **{f"network {name}": path for name, path in instance.networks.items()},
        **{f"parameter {name}": value for name, value in instance.parameters.items()},
        "property": instance.property_path or "",
    }
    question = {
        "id": instance.id,
        "files": {name: list(bundles[path].values()) for name, path in paths.items() if path in bundles},
        "vnnlib": instance.vnnlib,
        "parameters": dict(instance.parameters),
        "question": dict(instance.question),
        "options": dict(instance.options),
        "timeout": instance.timeout,
    }
    fingerprint = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
    return Planned(instance, fingerprint, bundles)


def stem_of(planned: Planned, folder: str) -> str:
    """Return how the names of the files of a counterexample begin, seen from the folder of the results."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", planned.instance.id).strip("._")[-80:]
    return f"{folder}/{name}-{planned.fingerprint[:8]}"


Bundle = Mapping[str, str]
"""SHA-256 hashes of a file and of those that belong to it, by their paths seen from its folder; its own comes first."""


class Bundler:
    """Finds the files of instances, and reads each once: many instances have the same."""

    def __init__(self) -> None:
        self._models: dict[str, Bundle] = {}
        self._others: dict[str, Bundle] = {}

    def bundle(self, instance: Instance) -> dict[str, Bundle]:
        """Return the files of an instance by their paths in it; those that cannot be read are left out.

        These are its models, with the files that hold their weights; its property; and values of the property's
        parameters that are paths of files.
        """
        models = {path: self._find(path, is_model=True) for path in instance.networks.values()}
        names = [instance.property_path or "", *instance.parameters.values()]
        others = {path: self._find(path, is_model=False) for path in names}
        return {path: bundle for path, bundle in {**others, **models}.items() if bundle}

    def _find(self, path: str, *, is_model: bool) -> Bundle:
        known = self._models if is_model else self._others
        if path not in known:
            known[path] = {}
            with suppress(OSError, ValueError, ModelError):  # as the instance will say
                known[path] = _read(Path(path), is_model)
        return known[path]


def _read(path: Path, is_model: bool) -> Bundle:
    if not path.is_file():  # a device does not end
        return {}
    if not is_model or not may_have_external_data(path):
        return {path.name: sha256(path)}
    from ranum_falsify.network.fingerprint import fingerprint  # imports torch

    found = fingerprint(path)
    return {path.name: found.sha256, **found.external_data}
