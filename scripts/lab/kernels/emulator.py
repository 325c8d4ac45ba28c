"""ONNX Runtime and PyTorch as they run on another processor, which QEMU emulates."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distributions, version
from pathlib import Path
from typing import Any

import numpy as np

from lab.kernels.arm64 import System, system_of
from ranum_falsify.config import ARM64, Runtime
from ranum_falsify.selfcheck.running import Array, Session

__all__ = ["MACHINES", "Emulator", "Machine", "emulator"]

_SCRIPTS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Machine:
    """A processor that stands for a family, as QEMU emulates it.

    Attributes:
        cpu: Its name, for `-cpu`.
        program: The emulator.
        features: On ARM64, the features that Linux names in `/proc/cpuinfo`; "" on x86-64.
        libraries: The libraries that have kernels of their own for it.
    """

    cpu: str
    program: str = "qemu-x86_64"
    features: str = ""
    libraries: tuple[Runtime, ...] = ("onnxruntime",)

    def runtime_of(self, library: Runtime) -> Runtime:
        """Return a library on such processors."""
        return ARM64[library] if self.features else library

    def is_available(self, library: Runtime = "onnxruntime") -> bool:
        """Tell whether the emulator is installed and, for ARM64, a system that has a library."""
        return shutil.which(self.program) is not None and (not self.features or self._find(library) is not None)

    def version_of(self, library: Runtime) -> str:
        """Return the version of a library there.

        Raises:
            FileNotFoundError: The system that is emulated is missing, or lacks the library.
        """
        if not self.features:
            return version(library)
        found = self._find(library)
        if found is None:
            raise FileNotFoundError(f"there is no system for ARM64 with {library}; run scripts/make_arm64.py")
        return found.version.split("+")[0]

    def _find(self, library: Runtime) -> Distribution | None:
        system = system_of(self.features)
        return None if system is None else next(iter(distributions(name=library, path=[str(system.packages)])), None)

    def __str__(self) -> str:
        """Return the command, without what depends on this computer."""
        return f"{self.program} -cpu {self.cpu}"

    @property
    def command(self) -> list[str]:
        """The command that runs Python.

        Raises:
            FileNotFoundError: The emulator, or the system that it runs, is missing.
        """
        program = shutil.which(self.program)
        if program is None:
            raise FileNotFoundError(f"{self.program} is not installed (package qemu-user)")
        if not self.features:
            return [program, "-cpu", self.cpu, sys.executable]
        system = self._system
        path = f"PYTHONPATH={system.packages}:{_SCRIPTS.parent}"
        return [program, "-cpu", self.cpu, "-L", str(system.root), "-E", path, system.python]

    @property
    def _system(self) -> System:
        system = system_of(self.features)
        if system is None:
            raise FileNotFoundError("there is no system for ARM64; run scripts/make_arm64.py")
        return system


_ARM64 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
_FP16 = f"{_ARM64} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"

_BOTH = ("onnxruntime", "torch")
_MAX = "max,sme=off,pauth-impdef=on"

MACHINES: Mapping[str, Machine] = {
    "sse": Machine("Nehalem"),
    "avx": Machine("SandyBridge"),
    "avx2": Machine("Haswell"),
    "neon": Machine("cortex-a72", "qemu-aarch64", _ARM64, _BOTH),
    "neon_fp16": Machine("neoverse-n1", "qemu-aarch64", _FP16, _BOTH),
    "sve": Machine(_MAX, "qemu-aarch64", f"{_FP16} sve"),
    "sve128": Machine(f"{_MAX},sve-default-vector-length=16", "qemu-aarch64", f"{_FP16} sve", ("torch",)),
    "sve256": Machine(f"{_MAX},sve-default-vector-length=32", "qemu-aarch64", f"{_FP16} sve", ("torch",)),
}
"""Machines by the family of kernels that libraries choose on them; QEMU has no AVX-512."""


class Emulator:
    """A library in an emulated child process; inputs and results go through pipes."""

    def __init__(self, machine: Machine, library: Runtime = "onnxruntime") -> None:
        """Start the child.

        Raises:
            FileNotFoundError: The emulator, or the system that it runs, is missing.
        """
        command, pipe = [*machine.command, "-m", "lab.kernels.session_worker", library], subprocess.PIPE
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        self._library = library
        self._child = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=_SCRIPTS, env=environment
        )

    def __call__(self, model: bytes, other: bool) -> Session:
        """Load a model of one input, x, and one output; see `ranum_falsify.selfcheck.running.SessionOf`."""
        number = self._ask((model, other))
        return lambda x: np.asarray(self._ask((number, x)))

    def load(self, model: bytes, optimised: bool) -> Callable[[dict[str, Array]], dict[str, Array]]:
        """Load any model: inputs by name give outputs by name.  PyTorch optimises none."""
        number = self._ask((model, None if self._library == "torch" else optimised))
        return lambda feeds: dict(self._ask((number, feeds)))

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.communicate()

    def _ask(self, question: object) -> Any:
        assert self._child.stdin is not None and self._child.stdout is not None
        pickle.dump(question, self._child.stdin)
        self._child.stdin.flush()
        answer = pickle.load(self._child.stdout)
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


@cache
def emulator(family: str, library: Runtime = "onnxruntime") -> Emulator:
    """Return this process's emulator of a family's machine."""
    return Emulator(MACHINES[family], library)
