"""The records of kernels against the families of processors that this machine can play."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ranum_falsify.domain.kernels import families
from tests.domain.kernel_subjects import DTYPES, REFERENCES, check_errors
from tests.domain.test_vanishing import LIMITS, sizes_from
from tests.network.building import Array, parse

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"
# Tests that run PyTorch's kernels.
CHOSEN = "(test_installed_kernels or test_kernels_come or test_softmax_loses) and torch or test_softmax_stays"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


@pytest.mark.few(2)
@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_kernels_of_pytorch_lie_within_the_records(capability: str, repository: Path) -> None:
    from lab.kernels.families import capabilities, variables_of

    if capability not in capabilities()[:-1]:
        pytest.skip("this process runs it, and other tests hold that against the records, or this processor cannot")
    run_tests(repository, variables_of(capability))


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_kernels_of_mkl_for_intel_lie_within_the_records(capability: str, repository: Path, tmp_path: Path) -> None:
    from lab.kernels.families import capabilities, intel_variables, variables_of

    more = intel_variables(capability, tmp_path)
    if more is None:
        pytest.skip("there is no C compiler, or PyTorch has no MKL")
    if capability not in capabilities():
        pytest.skip("this processor cannot run it")
    run_tests(repository, variables_of(capability) | more)


def run_tests(repository: Path, variables: dict[str, str]) -> None:
    files = ["tests/domain/test_kernels.py", "tests/domain/test_vanishing.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files, "-k", CHOSEN]
    child = subprocess.run(
        command, cwd=repository, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0 and " passed" in child.stdout, child.stdout[-3000:] + child.stderr[-1000:]


EMULATED = [
    *(("onnxruntime", family) for family in ("sse", "avx", "avx2", "neon", "neon_fp16", "sve")),
    *(("torch", family) for family in ("neon", "neon_fp16", "sve128", "sve256")),
]


@pytest.fixture(params=EMULATED, ids=" ".join)
def emulated(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, Any]]:
    """A library as a runtime on emulated processors, their family, and how to load a model there."""
    from lab.kernels.emulator import MACHINES, Emulator

    library, family = request.param
    machine = MACHINES[family]
    if not machine.is_available(library):
        pytest.skip("there is no QEMU for it, or no system that it runs")
    emulator = Emulator(machine, library)
    yield machine.runtime_of(library), family, emulator
    emulator.close()


@pytest.mark.slow
def test_kernels_lie_within_the_records(emulated: tuple[str, str, Any]) -> None:
    runtime, family, session_of = emulated

    def run(of: onnx.ModelProto, x: Array) -> list[Array]:
        return [session_of(of.SerializeToString(), other)(x) for other in (False, True)]

    found = [check_errors(name, dtype, runtime, run) for name in REFERENCES for dtype in DTYPES]
    assert sum(found) > len(REFERENCES)
    (record,) = (r for r in families() if (r.runtime, r.family) == (runtime, family))
    for op, (floor, ceiling) in LIMITS.items():
        until, start = record.ends(op)
        of = parse(f"g (float[n] x) => (float[n] y) {{ y = {op}(x) }}", 22)
        for y in run(of, -sizes_from(-until)):
            assert (y <= floor).all(), op
        if start < np.inf:
            for y in run(of, sizes_from(start)):
                assert (y >= ceiling).all(), op
