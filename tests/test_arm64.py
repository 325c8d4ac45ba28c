"""What the program makes of a processor of ARM64, told to be one; and records of what is peculiar to its kernels."""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ranum_falsify.config import ARM64, ProveConfig, library_of
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.kernels import Envelope, envelope, families, sums_in_half
from ranum_falsify.domain.kernels.records import read_record, shipped, write_record
from ranum_falsify.domain.rounding import round_outward
from ranum_falsify.network import read
from ranum_falsify.selfcheck import family as family_module
from ranum_falsify.selfcheck import family_here
from ranum_falsify.selfcheck.measuring import rounds_half_sums
from ranum_falsify.selfcheck.measuring.errors import Errors
from ranum_falsify.selfcheck.running import native, native_torch
from tests.cli.test_app import environment
from tests.network.building import parse

BASE = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
HALF = f"{BASE} atomics fphp asimdhp asimdrdm"
ON_ARM64 = """
import json, platform
platform.machine = lambda: "aarch64"
from ranum_falsify.config import RUNTIMES, ProveConfig
from ranum_falsify.selfcheck import outcome
asked = []
outcome.list_unmeasured = lambda: ()
import ranum_falsify.selfcheck.check as check_module
check_module.check = lambda runtime, version: asked.append(runtime) or check_module.Record(
    runtime=runtime, family="here", versions={version: ""}, safety={}, swept={}, rows={}, saturation={})
outcome.self_check(None)
print(json.dumps([RUNTIMES, ProveConfig(runtime="onnxruntime").runtimes, ProveConfig(runtime="torch").runtimes, asked]))
"""


@pytest.mark.parametrize(
    ("features", "name"), [(BASE, "neon"), (HALF, "neon_fp16"), (f"{HALF} sve", "sve"), ("", "neon")]
)
def test_the_features_of_a_processor_tell_its_family(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, features: str, name: str
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nFeatures\t: {features}\nCPU part\t: 0xd40\n")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(family_module, "_CPUINFO", tmp_path / "cpuinfo")
    assert family_here("onnxruntime") == name
    # PyTorch has kernels for vectors of two sizes.
    for capability, chosen in (
        ("sve128", "sve128"),
        ("sve256", "sve256"),
        ("default", name.replace("sve", "neon_fp16")),
    ):
        monkeypatch.setattr(family_module, "_capability", lambda of=capability: of)
        assert family_here("torch") == chosen


def test_on_such_a_machine_proofs_cover_its_kernels_and_these_are_checked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_ARM64], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    everything, one, other, checked = json.loads(done.stdout)
    assert set(everything) == {"onnxruntime", "onnxruntime-arm64", "torch", "torch-arm64", "exact"}
    assert one == ["onnxruntime", "onnxruntime-arm64"] and other == ["torch", "torch-arm64"]
    assert checked == ["onnxruntime-arm64", "torch-arm64"]


def test_a_runtime_on_arm64_covers_that_on_x86_64_too() -> None:
    assert ProveConfig(runtime="onnxruntime-arm64").runtimes == ("onnxruntime", "onnxruntime-arm64")
    assert [library_of(name) for name in ("onnxruntime-arm64", "torch")] == ["onnxruntime", "torch"]


def test_an_early_overflow_is_measured_kept_and_counts(tmp_path: Path) -> None:
    x = torch.linspace(80, 88.6, 4001)
    value = x.double().exp()
    found = Errors(torch.float32, 0.0, math.inf)
    found.add(x, torch.where(x > 88.4, math.inf, x.exp()), value)
    assert value[x > 88.4].min() > found.overflow > value[x < 88.3].max() and not found.invalid

    (record,) = (r for r in families() if (r.runtime, r.family) == ("onnxruntime-arm64", "sve"))
    write_record(record, tmp_path / "record.json")
    assert read_record(tmp_path / "record.json") == record and record.half_sums
    early = record.overflows["Exp"]["float32"]
    assert envelope("Exp", torch.float32, ("onnxruntime-arm64:sve",)).overflows == early < 2.0**127.5
    assert envelope("Exp", torch.float32, ("onnxruntime", "onnxruntime-arm64:neon")).overflows == math.inf


@pytest.mark.parametrize("count", [1, 3, 5000])
def test_bounds_are_infinite_from_an_early_overflow_on(count: int) -> None:
    kernel = Envelope(1e-7, overflows=2e38)
    for factor, bounded in ((0.99, True), (1.0, False), (1.2, False)):
        ends = torch.full((count,), 2e38 * factor, dtype=torch.float64)
        above = round_outward(ends / 2, ends, torch.float32, (count,), kernel)
        below = round_outward(-ends, -ends / 2, torch.float32, (count,), replace(kernel, keeps_sign=False))
        assert bool(above.upper.isfinite().all()) is bounded and bool(above.lower.isfinite().all())
        assert bool(below.lower.isfinite().all()) is bounded and bool(below.upper.isfinite().all())


def test_results_that_should_be_0_are_errors_where_they_are_denormal() -> None:
    x, value = torch.tensor([-200.0, -300.0]), torch.zeros(2, dtype=torch.float64)
    for size, counts in ((4e-40, True), (1e-45, False), (0.0, False)):
        found = Errors(torch.float32, 0.0, 1.0)
        found.add(x, torch.full((2,), np.float32(size).item()), value)
        assert (found.envelope(1.0).absolute > 0) is counts


@pytest.mark.parametrize("low", [-math.inf, -1e4])
def test_a_share_that_is_0_elsewhere_may_be_denormal_with_sve(low: float) -> None:
    graph = read(parse("g (float[1, 2] x) => (float[1, 2] y) { y = Softmax(x) }", 17))
    box = Interval.box(np.array([[0, low]], np.float32), np.array([[0, low]], np.float32))
    for runtimes, zero in ((("onnxruntime",), True), (("onnxruntime", "onnxruntime-arm64"), False)):
        (y,) = IntervalAnalysis(graph, runtimes=runtimes).run([box])
        assert y is not None and bool(y.upper[0, 1] == 0) is zero and y.lower[0, 1] == 0


def test_where_sums_of_float16_are_rounded_at_every_step() -> None:
    assert not rounds_half_sums(native) and not rounds_half_sums(native_torch)
    assert not sums_in_half(("onnxruntime", "torch", "exact"))
    found = {r.family: r.half_sums for r in shipped() if r.runtime in ARM64.values()}
    assert found == {"neon": False, "neon_fp16": True, "sve": True, "sve128": True, "sve256": True}
    assert all(sums_in_half((runtime,)) for runtime in ARM64.values())


def test_what_was_measured_on_x86_64_was_measured_on_each_family_of_arm64() -> None:
    there = [record for record in shipped() if record.runtime == "onnxruntime-arm64"]
    assert len(there) == 3
    for record in there:
        for other in shipped():
            if other.runtime == "onnxruntime":
                # A kernel without a record would count as one that does not stray.
                lacking = {f: dtypes.keys() - record.rows.get(f, {}).keys() for f, dtypes in other.rows.items()}
                assert not any(lacking.values()), (record.family, other.family)
