"""Replay of a suite's counterexamples: does each show its claim on ONNX Runtime?

A record may come from a stranger, and it names files. So only data are opened, and only what is byte for byte what the
record is of; properties that are programs are not run.
"""

from __future__ import annotations

from pathlib import Path

from ranum_falsify.api.replayed import ReplaySettings
from ranum_falsify.api.replaying import ReplayRequest
from ranum_falsify.api.runnable import Runnable
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.network.resource_limits import memory_limit
from ranum_falsify.suite.planning import plan
from ranum_falsify.suite.record import Instance

_NETWORK = "N"
"""What boxes and VNN-LIB call the only network."""
_DATA = ".vnnlib"
"""How the names of properties end that are no programs."""


def replay_claim(instance: Instance, fingerprint: str, counterexample: Path) -> tuple[bool | None, str]:
    """Replay the counterexample of an instance on ONNX Runtime.

    Args:
        instance: The instance.
        fingerprint: What its record says that it was of.
        counterexample: The description of the counterexample.

    Returns:
        Whether it shows a violation, and ""; or None, and why that could not be tried.
    """
    if plan([instance])[0].fingerprint != fingerprint:
        return None, "its files are not here, or not what they were; compare in the folder that the suite ran in"
    if passes := instance.question.get("passes"):
        return None, f"its model is what transform makes by {' '.join(passes)}; run replay on that"
    prop = instance.property_path
    if prop is not None and not (instance.vnnlib or prop.removesuffix(".gz").endswith(_DATA)):
        return None, f"{prop} is a program; run replay if you trust it"
    request = ReplayRequest(
        networks={name or _NETWORK: Runnable(Path(path)) for name, path in instance.networks.items()},
        property=None if prop is None else Path(prop),
        vnnlib=True,
        settings=ReplaySettings(threads=1, reading=memory_limit),
    )
    try:
        return request.replay_file(counterexample).violated, ""
    except RanumFalsifyError as error:
        return None, " ".join(str(error).split())
