"""The family of kernels that runs on this machine."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import torch

from ranum_falsify.config import CUDA, library_of

HERE = "here"
"""Name of the family of what was found on this machine beyond the records of its own family."""

_CPUINFO = Path("/proc/cpuinfo")


def family_here(runtime: str) -> str:
    """Return the family of kernels that a runtime chooses on this machine."""
    if runtime == CUDA:
        return re.sub(r"\W+", "_", torch.cuda.get_device_name().lower())
    machine, system = platform.machine().lower(), platform.system().lower()
    if system != "linux":  # other compilers and mathematical libraries make other kernels
        return f"{system}_{machine}_{_capability()}"
    if machine in ("aarch64", "arm64"):
        return _of_arm64(_cpuinfo("Features").split(), library_of(runtime))
    if machine not in ("x86_64", "amd64"):
        return f"{machine}_{_capability()}"
    if runtime == "onnxruntime":
        return _of_onnxruntime(_cpuinfo("flags").split())
    # MKL, which computes some functions, has kernels of its own for Intel's processors.
    return _capability() + ("_intel" if "intel" in _cpuinfo("vendor_id").lower() else "")


def processor() -> str:
    """Return the processor's name."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def processor_flags() -> str:
    """Return all that is known about the processor's capabilities."""
    flags = _cpuinfo("flags") or _cpuinfo("Features")
    return f"{processor()}: {flags or _capability()}"


def _of_onnxruntime(flags: list[str]) -> str:
    if not flags:
        return {"default": "sse"}.get(_capability(), _capability())
    if {"avx2", "fma"} <= set(flags):
        return "avx512" if "avx512f" in flags else "avx2"
    return "avx" if "avx" in flags else "sse"


def _of_arm64(features: list[str], library: str) -> str:
    # PyTorch's kernels are for one size of vectors; with others, or forbidden, it runs those without SVE.
    chosen = "sve" if "sve" in features else ""
    if library == "torch":
        chosen = name if (name := _capability()).startswith("sve") else ""
    if chosen:
        return chosen
    return "neon_fp16" if {"fphp", "asimdhp"} <= set(features) else "neon"


def _capability() -> str:
    return str(torch.backends.cpu.get_cpu_capability()).lower()


def _cpuinfo(field: str) -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # other systems have none, and some containers hide it
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == field), "")
