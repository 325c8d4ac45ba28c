"""ONNX Runtime as it runs on another processor, which QEMU emulates."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import numpy as np

from lab.kernels.arm64 import System, system_of
from ranum_falsify.config import Runtime
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
    """

    cpu: str
    program: str = "qemu-x86_64"
    features: str = ""

    @property
    def runtime(self) -> Runtime:
        """ONNX Runtime on such processors."""
        return "onnxruntime-arm64" if self.features else "onnxruntime"

    @property
    def is_available(self) -> bool:
        """Whether the emulator is installed and, for ARM64, the system that it runs is there."""
        return shutil.which(self.program) is not None and (not self.features or system_of(self.features) is not None)

    @property
    def version(self) -> str:
        """The version of ONNX Runtime there.

        Raises:
            FileNotFoundError: The system that is emulated is missing.
        """
        if not self.features:
            return version("onnxruntime")
        (found,) = distributions(name="onnxruntime", path=[str(self._system.packages)])
        return found.version

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
        return [program, "-cpu", self.cpu, "-L", str(system.root), "-E", f"PYTHONPATH={system.packages}", system.python]

    @property
    def _system(self) -> System:
        system = system_of(self.features)
        if system is None:
            raise FileNotFoundError("there is no system for ARM64; run scripts/make_arm64.py")
        return system


_ARM64 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
_FP16 = f"{_ARM64} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"

MACHINES: Mapping[str, Machine] = {
    "sse": Machine("Nehalem"),
    "avx": Machine("SandyBridge"),
    "avx2": Machine("Haswell"),
    "neon": Machine("cortex-a72", "qemu-aarch64", _ARM64),
    "neon_fp16": Machine("neoverse-n1", "qemu-aarch64", _FP16),
    "sve": Machine("max,sme=off,pauth-impdef=on", "qemu-aarch64", f"{_FP16} sve"),
}
"""Machines by the family of kernels that ONNX Runtime chooses on them; QEMU has no AVX-512."""


class Emulator:
    """ONNX Runtime in an emulated child process; inputs and results go through pipes."""

    def __init__(self, machine: Machine) -> None:
        """Start the child.

        Raises:
            FileNotFoundError: The emulator, or the system that it runs, is missing.
        """
        command, pipe = [*machine.command, "-m", "lab.kernels.session_worker"], subprocess.PIPE
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        self._child = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=_SCRIPTS, env=environment
        )

    def __call__(self, model: bytes, optimised: bool) -> Session:
        """Load a model of one input, x, and one output."""
        number = self._ask((model, optimised))
        return lambda x: np.asarray(self._ask((number, x)))

    def load(self, model: bytes, optimised: bool) -> Callable[[dict[str, Array]], dict[str, Array]]:
        """Load any model: inputs by name give outputs by name."""
        number = self._ask((model, optimised))
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
def emulator(family: str) -> Emulator:
    """Return this process's emulator of a family's machine."""
    return Emulator(MACHINES[family])
