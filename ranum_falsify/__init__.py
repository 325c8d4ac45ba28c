"""Find inputs on which an operator of an ONNX network produces NaN or infinity, or prove that there are none.

Importing this package is cheap: what it offers is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ranum_falsify.process.starting import pause_for_imports
from ranum_falsify.version import __version__

# ONNX Runtime 1.31 tells its makers how it is used, and keeps a database for it, unless this is set when it is
# loaded; child processes inherit it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# Where other programs share the processors, PyTorch's threads wait for each other as long as a slice of the scheduler,
# and keep a processor busy with it: small products then take 16 ms in place of 0.1.  Shorter loops cost nothing alone.
os.environ.setdefault("GOMP_SPINCOUNT", "500")

if TYPE_CHECKING:
    from ranum_falsify.api.boxes import BoxLike
    from ranum_falsify.api.checking import check
    from ranum_falsify.api.confirming import UnitTests, confirm
    from ranum_falsify.api.entry_points import falsify, prove
    from ranum_falsify.api.fixing import fix
    from ranum_falsify.api.models import Model, load_model
    from ranum_falsify.api.module_tests import ModuleTests
    from ranum_falsify.api.properties import Property, load_property
    from ranum_falsify.api.replaying import ReplayReport, replay
    from ranum_falsify.api.result import LineChange, Mended, OperatorReport, Result
    from ranum_falsify.api.transforming import Transformation, transform
    from ranum_falsify.errors import (
        BackendError,
        DeviceError,
        MemoryShortageError,
        ModelError,
        ModuleError,
        NonFiniteError,
        PropertyError,
        RanumFalsifyError,
        ReplayError,
        SaveError,
        UpstreamMissingError,
        UsageError,
    )
    from ranum_falsify.monitor.watching import FailedStep, Watch, WatchWarning, watch
    from ranum_falsify.network.source import Source
    from ranum_falsify.repair.repair import Repair
    from ranum_falsify.rewrite.outcome import PassReport, PostconditionError

__all__ = [
    "BackendError",
    "BoxLike",
    "DeviceError",
    "FailedStep",
    "LineChange",
    "MemoryShortageError",
    "Mended",
    "Model",
    "ModelError",
    "ModuleError",
    "ModuleTests",
    "NonFiniteError",
    "OperatorReport",
    "PassReport",
    "PostconditionError",
    "Property",
    "PropertyError",
    "RanumFalsifyError",
    "Repair",
    "ReplayError",
    "ReplayReport",
    "Result",
    "SaveError",
    "Source",
    "Transformation",
    "UnitTests",
    "UpstreamMissingError",
    "UsageError",
    "Watch",
    "WatchWarning",
    "__version__",
    "check",
    "confirm",
    "falsify",
    "fix",
    "load_model",
    "load_property",
    "prove",
    "replay",
    "transform",
    "watch",
]

_HOMES = {
    "ranum_falsify.api.entry_points": ("falsify", "prove"),
    "ranum_falsify.api.boxes": ("BoxLike",),
    "ranum_falsify.api.checking": ("check",),
    "ranum_falsify.api.confirming": ("UnitTests", "confirm"),
    "ranum_falsify.api.fixing": ("fix",),
    "ranum_falsify.api.models": ("Model", "load_model"),
    "ranum_falsify.api.module_tests": ("ModuleTests",),
    "ranum_falsify.api.properties": ("Property", "load_property"),
    "ranum_falsify.api.replaying": ("ReplayReport", "replay"),
    "ranum_falsify.api.result": ("LineChange", "Mended", "OperatorReport", "Result"),
    "ranum_falsify.api.transforming": ("Transformation", "transform"),
    "ranum_falsify.repair.repair": ("Repair",),
    "ranum_falsify.network.source": ("Source",),
    "ranum_falsify.rewrite.outcome": ("PassReport", "PostconditionError"),
    "ranum_falsify.monitor.watching": ("FailedStep", "Watch", "WatchWarning", "watch"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for.

    Raises:
        AttributeError: The package offers no such name.
        UpstreamMissingError: It needs DNNV or DNNF, which are not installed.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with pause_for_imports():
        home = importlib.import_module(_HOME_OF.get(name, "ranum_falsify.errors"))
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
