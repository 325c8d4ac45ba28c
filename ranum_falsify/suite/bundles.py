"""The files that an instance reads, by their content."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ranum_falsify.errors import ModelError
from ranum_falsify.file_content import may_have_external_data, sha256
from ranum_falsify.suite.instance import Instance

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
