"""Files that travel to other machines, by their content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ranum_falsify.network.fingerprint import fingerprint
from ranum_falsify.suite.cluster.there import Bundle
from ranum_falsify.suite.instance import Instance
from ranum_falsify.suite.planning import hash_file

__all__ = ["bundle_files"]


def bundle_files(instance: Instance) -> dict[str, Bundle]:
    """Return the files of an instance by their paths in it; files that cannot be read stay where they are.

    These are its models, with the files that hold their weights; its property; and values of the property's parameters
    that are paths of files.
    """
    return dict(_bundle(instance))


def _bundle(instance: Instance) -> Iterator[tuple[str, Bundle]]:
    for path in instance.networks.values():
        try:
            found = fingerprint(Path(path))
        except OSError:
            continue
        yield path, {Path(path).name: found.sha256, **found.data}
    others = [instance.property_path, *instance.parameters.values()]
    for path in (other for other in others if other is not None):
        if digest := hash_file(path):
            yield path, {Path(path).name: digest}
