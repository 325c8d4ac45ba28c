"""The main command: whether a property of models holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ranum_falsify.cli.asking import ask
from ranum_falsify.cli.options.falsify import FalsifyOptions
from ranum_falsify.cli.reading import load_files
from ranum_falsify.suite.record import Instance

if TYPE_CHECKING:
    from ranum_falsify.api.loading import BoundProblem


def run(options: FalsifyOptions, *, owns_process: bool = False) -> int:
    """Run the command.

    Args:
        options: What the user asks for.
        owns_process: Whether the process may be ended where a library does not return in time.

    Raises:
        RanumFalsifyError: The user's input is invalid.
    """

    def load(sizes: Mapping[str, int]) -> BoundProblem:
        return load_files(
            options.property_path,
            options.networks,
            vnnlib=options.vnnlib,
            parameters=options.parameters,
            dims=sizes,
            strict=options.strict,
            dtype=options.dtype,
            memory=options.memory,
        )

    asked = Instance(
        id=" ".join((str(options.property_path), *map(str, options.networks.values()))),
        category="",
        model=" ".join(map(str, options.networks.values())),
        property=str(options.property_path),
        networks={name: str(path) for name, path in options.networks.items()},
        property_path=str(options.property_path),
        vnnlib=options.vnnlib,
        parameters=options.parameters,
        timeout=options.timeout,
    )
    return ask(options, asked, load, owns_process=owns_process)
