"""The families of processors that this machine can play, and how.

PyTorch chooses among its kernels by the processor, unless variables of the environment forbid some.  MKL's kernels for
Intel's processors run on others if a library is preloaded that takes all for Intel's.  ONNX Runtime knows no such
variable: an emulator runs its other families.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from lab.kernels.emulator import MACHINES
from ranum_falsify.config import ARM64, Runtime, runtime_here
from ranum_falsify.domain.kernels.records import measured_versions
from ranum_falsify.selfcheck.family import family_here

__all__ = ["CAPABILITIES", "Play", "capabilities", "find_plays", "find_unplayed", "intel_variables", "variables_of"]

CAPABILITIES: Mapping[str, tuple[str, str, str]] = {
    "default": ("SSE41", "SSE4_2", "-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX,-FMA,-FMA4"),
    "avx2": ("AVX2", "AVX2", ""),
    "avx512": ("AVX512_CORE", "AVX512", ""),
}
"""PyTorch's families, the least first: their names in oneDNN and MKL, and what the C library must not use."""

_INTEL = "int mkl_serv_intel_cpu_true(void) { return 1; }\nint mkl_serv_intel_cpu(void) { return 1; }\n"


@dataclass(frozen=True, kw_only=True)
class Play:
    """How this machine runs the kernels of a family.

    Attributes:
        family: The family.
        runtime: The runtime whose kernels these are.
        emulate: Whether an emulator plays it.
        variables: What the environment must hold.
        note: What a record is to say of it.
    """

    family: str
    runtime: Runtime
    emulate: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def capabilities() -> tuple[str, ...]:
    """Return PyTorch's families up to that of this processor, which is the last; none where it has another."""
    here, known = str(torch.backends.cpu.get_cpu_capability()).lower(), tuple(CAPABILITIES)
    return known[: known.index(here) + 1] if here in known else ()


def variables_of(capability: str) -> dict[str, str]:
    """Return what makes PyTorch choose the kernels of a family."""
    isa, _, barred = CAPABILITIES[capability]
    variables = {"ATEN_CPU_CAPABILITY": capability, "ONEDNN_MAX_CPU_ISA": isa}
    return variables | ({"GLIBC_TUNABLES": f"glibc.cpu.hwcaps={barred}"} if barred else {})


def intel_variables(capability: str, folder: Path) -> dict[str, str] | None:
    """Return what makes MKL choose its kernels for Intel's processors too; None where that cannot be had.

    Args:
        capability: PyTorch's family.
        folder: Where a library may be made, which must stay.
    """
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux" or not torch.backends.mkl.is_available():
        return None
    library, source = folder / "intel.so", folder / "intel.c"
    source.write_text(_INTEL)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return {"MKL_ENABLE_INSTRUCTIONS": CAPABILITIES[capability][1], "LD_PRELOAD": str(library)}


def find_plays(runtime: Runtime, release: str, folder: Path) -> Iterator[Play]:
    """Yield the families of a library that this machine can play, its own first.

    Args:
        runtime: `onnxruntime` or `torch`.
        release: Its version; the system for ARM64 may have another one, and then plays no family.
        folder: Where a library may be made, which must stay.
    """
    here = family_here(runtime)
    yield Play(family=here, runtime=runtime_here(runtime))
    for name, machine in MACHINES.items():
        runs = runtime in machine.libraries and name != here and machine.is_available(runtime)
        if runs and (machine.runtime_of(runtime) == runtime or machine.version_of(runtime) == release):
            yield Play(family=name, runtime=machine.runtime_of(runtime), emulate=True)
    if runtime == "onnxruntime":
        return
    suffix = "_intel" if here.endswith("_intel") else ""
    for capability in capabilities():
        of = variables_of(capability)
        if capability + suffix != here:
            yield Play(family=capability + suffix, runtime=runtime, variables=of)
        if not suffix and (more := intel_variables(capability, folder)) is not None:
            note = "MKL's kernels for Intel's processors"
            yield Play(family=f"{capability}_intel", runtime=runtime, variables=of | more, note=note)


def find_unplayed(runtime: Runtime, plays: list[Play]) -> list[str]:
    """Return the families of a library that have a record, and that this machine cannot play."""
    known = {family for one in (runtime, ARM64.get(runtime, runtime)) for family in measured_versions(one)}
    return sorted(known - {play.family for play in plays})
