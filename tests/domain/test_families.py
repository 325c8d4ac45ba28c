"""The records of kernels against the families of processors that this machine can play.

PyTorch chooses among its kernels by the processor, unless variables of the environment forbid some: its families up to
this processor's are run in child processes.  MKL's kernels for Intel's processors run on others if a library is
preloaded that takes all for Intel's.  ONNX Runtime knows no such variable: an emulator runs its other families.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from ranum_falsify.domain.kernels import families
from tests.domain.kernel_subjects import DTYPES, REFERENCES, check_errors
from tests.domain.test_vanishing import LIMITS, sizes_from
from tests.network.building import Array, parse

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"
CAPABILITIES = ("default", "avx2", "avx512")
ISAS = ("SSE41", "AVX2", "AVX512_CORE")
MKL = ("SSE4_2", "AVX2", "AVX512")
# Tests that run PyTorch's kernels.
CHOSEN = "(test_installed_kernels or test_kernels_come or test_softmax_loses) and torch or test_softmax_stays"


def highest() -> str:
    """Return the greatest of PyTorch's families that this machine has."""
    return str(torch.backends.cpu.get_cpu_capability()).lower()


@pytest.mark.parametrize(("capability", "isa"), [*zip(CAPABILITIES, ISAS, strict=True)])
def test_kernels_of_pytorch_lie_within_the_records(capability: str, isa: str, repository: Path) -> None:
    here = highest()
    if here not in CAPABILITIES:
        pytest.skip(f"the families of this processor ({here}) are not known")
    if CAPABILITIES.index(capability) >= CAPABILITIES.index(here):
        pytest.skip(f"this process runs {here}: other tests hold that against the records, and more it cannot run")
    run_tests(repository, {"ATEN_CPU_CAPABILITY": capability, "ONEDNN_MAX_CPU_ISA": isa})


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "isa", "mkl"), [*zip(CAPABILITIES, ISAS, MKL, strict=True)])
def test_kernels_of_mkl_for_intel_lie_within_the_records(
    capability: str, isa: str, mkl: str, repository: Path, tmp_path: Path
) -> None:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux" or not torch.backends.mkl.is_available():
        pytest.skip("there is no C compiler, or PyTorch has no MKL")
    if highest() not in CAPABILITIES or CAPABILITIES.index(capability) > CAPABILITIES.index(highest()):
        pytest.skip(f"this process runs {highest()}: more it cannot run")
    library, source = tmp_path / "intel.so", tmp_path / "intel.c"
    source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\nint mkl_serv_intel_cpu(void) { return 1; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    variables = {"ATEN_CPU_CAPABILITY": capability, "ONEDNN_MAX_CPU_ISA": isa, "MKL_ENABLE_INSTRUCTIONS": mkl}
    run_tests(repository, variables | {"LD_PRELOAD": str(library)})


def run_tests(repository: Path, variables: dict[str, str]) -> None:
    files = ["tests/domain/test_kernels.py", "tests/domain/test_vanishing.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files, "-k", CHOSEN]
    child = subprocess.run(
        command, cwd=repository, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0 and " passed" in child.stdout, child.stdout[-3000:] + child.stderr[-1000:]


@pytest.fixture(params=["sse", "avx", "avx2"])
def emulated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    """A family of ONNX Runtime's, and how to load a model in it."""
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("qemu-x86_64 is not installed")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from lab.kernels.emulator import PROCESSORS, Emulator

    emulator = Emulator(PROCESSORS[request.param])
    yield request.param, emulator
    emulator.close()


@pytest.mark.slow
def test_kernels_of_onnxruntime_lie_within_the_records(emulated: tuple[str, Any]) -> None:
    family, session_of = emulated

    def run(of: onnx.ModelProto, x: Array) -> list[Array]:
        return [session_of(of.SerializeToString(), optimised)(x) for optimised in (False, True)]

    found = [check_errors(name, dtype, "onnxruntime", run) for name in REFERENCES for dtype in DTYPES]
    assert sum(found) > len(REFERENCES)
    (record,) = (r for r in families() if (r.runtime, r.family) == ("onnxruntime", family))
    for op, (floor, ceiling) in LIMITS.items():
        until, start = record.ends(op)
        of = parse(f"g (float[n] x) => (float[n] y) {{ y = {op}(x) }}", 22)
        for y in run(of, -sizes_from(-until)):
            assert (y <= floor).all(), op
        if start < np.inf:
            for y in run(of, sizes_from(start)):
                assert (y >= ceiling).all(), op
