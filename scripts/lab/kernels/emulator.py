"""ONNX Runtime as it runs on an older processor, which `qemu-x86_64` emulates."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ranum_falsify.selfcheck.running import Array, Session

__all__ = ["PROCESSORS", "Emulator", "emulator"]

PROCESSORS = {"sse": "Nehalem", "avx": "SandyBridge", "avx2": "Haswell"}
"""Processors that stand for the families that `qemu-x86_64` emulates: it has no AVX-512."""

_SCRIPTS = Path(__file__).resolve().parents[2]


class Emulator:
    """ONNX Runtime in an emulated child process; inputs and results go through pipes."""

    def __init__(self, processor: str) -> None:
        """Start the child.

        Args:
            processor: Name of a processor, for `qemu-x86_64 -cpu`.
        """
        program = shutil.which("qemu-x86_64")
        if program is None:
            raise FileNotFoundError("qemu-x86_64 is not installed (package qemu-user)")
        command = [program, "-cpu", processor, sys.executable, "-m", "lab.kernels.session_worker"]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=_SCRIPTS)

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
def emulator(processor: str) -> Emulator:
    """Return this process's emulator of a processor."""
    return Emulator(processor)
