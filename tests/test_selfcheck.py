"""The check of the installed kernels on first use."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ranum_falsify.selfcheck.check as check_module
import ranum_falsify.selfcheck.measuring as measuring_module
import ranum_falsify.selfcheck.outcome as measured_module
import ranum_falsify.selfcheck.outcome as outcome_module
from ranum_falsify.cli.doctor import describe
from ranum_falsify.config import RUNTIMES
from ranum_falsify.domain.kernels import (
    Envelope,
    Record,
    envelope,
    families,
    find_envelope,
    measured_versions,
    use_here,
    use_measured,
)
from ranum_falsify.domain.kernels.records import shipped
from ranum_falsify.errors import SaveError
from ranum_falsify.selfcheck import family_here, list_unmeasured, measure_here, self_check, unmeasured
from ranum_falsify.selfcheck.check import check
from ranum_falsify.selfcheck.measuring import Sweep
from ranum_falsify.verify.prove.assumptions import library


@pytest.fixture(autouse=True)
def _as_shipped() -> Iterator[None]:
    yield
    use_here([])
    use_measured([])


def narrowed(name: str, **changes: Any) -> Any:
    """Return a look-up of envelopes that takes one function's kernels for better than they are."""

    def look_up(function: str, dtype: torch.dtype, runtime: str) -> Envelope | None:
        kernel = find_envelope(function, dtype, runtime)
        return kernel if kernel is None or function != name else replace(kernel, **changes)

    return look_up


@pytest.mark.parametrize("runtime", ["onnxruntime", "torch"])
def test_the_installed_kernels_are_within_the_records(runtime: str) -> None:
    found = check(runtime, "1")
    assert (found.rows, found.saturation) == ({}, {})


def test_errors_that_are_too_large_are_found_and_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "find_envelope", narrowed("Tanh", relative=1e-9, absolute=0.0))
    found = check("torch", "1")
    assert set(found.rows) == {"Tanh"} and found.saturation == {}
    assert 2e-8 < found.rows["Tanh"]["float32"][0] < 1e-6


def test_results_beyond_the_range_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "find_envelope", narrowed("Sin", highest=0.5))
    found = check("onnxruntime", "1")
    assert set(found.rows) == {"Sin"} and found.rows["Sin"]["float32"][3] > 0.99


@pytest.mark.parametrize("function", ["Exp", "Softmax"])
def test_limits_that_come_later_are_found(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "find_envelope", narrowed(function, floor_until=-20.0))
    found = check("torch", "1")
    assert set(found.saturation) == {function} and found.saturation[function][0] == -math.inf


def record(**changes: Any) -> Record:
    (found,) = (r for r in shipped() if (r.runtime, r.family) == ("torch", "avx2"))
    row = (1e-3, 0.0, 0.0, 1.0, True)
    new = replace(found, family="here", swept={"Sigmoid": "samples"}, rows={"Sigmoid": {"float32": row}}, saturation={})
    return replace(new, **changes)


def nothing_found(runtime: str) -> Record:
    return record(runtime=runtime, rows={}, swept={})


def test_what_is_found_widens_bounds_of_this_process_only() -> None:
    before = envelope("Sigmoid", torch.float32, RUNTIMES)
    use_here([record()])
    now = envelope("Sigmoid", torch.float32, RUNTIMES)
    assert now.relative == 1e-3 > before.relative and now.floor_until == -math.inf
    use_here([])
    assert envelope("Sigmoid", torch.float32, RUNTIMES) == before


def test_what_an_earlier_check_found_is_not_measured_to_the_next_one() -> None:
    measured = find_envelope("Sigmoid", torch.float32, "torch")
    use_here([record()])
    assert find_envelope("Sigmoid", torch.float32, "torch") == measured


def test_a_check_is_kept_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "check", lambda runtime, version: record(runtime=runtime, versions={version: ""}))
    first, again = self_check(tmp_path, {"A": "1"}), self_check(tmp_path, {"A": "1"})
    assert (first.known, again.known) == (False, True)
    assert first.records == again.records and first.notices == again.notices
    assert any("Sigmoid" in notice for notice in again.notices)
    assert envelope("Sigmoid", torch.float32, RUNTIMES).relative == 1e-3
    assert not self_check(tmp_path, {"A": "2"}).known
    for path in tmp_path.rglob("*.json"):
        path.write_text(json.dumps({"functions": {}}))
    assert not self_check(tmp_path, {"A": "1"}).known


def test_nothing_is_kept_where_nothing_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "check", lambda runtime, version: record(runtime=runtime, versions={version: ""}))
    (tmp_path / "file").write_text("")
    assert not self_check(tmp_path / "file").known and not self_check(None).known


def install(monkeypatch: pytest.MonkeyPatch, version: str, family: str) -> None:
    """Let a version be installed, on a processor of some family."""
    monkeypatch.setattr(measured_module, "release_of", lambda runtime: version)
    monkeypatch.setattr(measured_module, "family_here", lambda runtime: family)


def test_a_version_without_a_record_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "0.0.1", "avx2")
    use_here([record(versions={"0.0.1": "by the check"})])  # a check is no measurement
    of_onnxruntime, of_torch = list_unmeasured()
    of = measured_versions("onnxruntime")["avx2"]
    start = "ONNX Runtime 0.0.1 was not measured on processors of the family avx2"
    assert of_onnxruntime.startswith(f"{start}, only {', '.join(of)}: its kernels are only sampled; ")
    assert f"install onnxruntime=={of[-1]}, or run" in of_onnxruntime
    assert "`ranum-falsify doctor --measure` (4 minutes)" in of_onnxruntime and "install torch==" in of_torch


def test_a_family_without_a_record_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "1.31.1", "mips")
    notice = list_unmeasured()[0]
    assert notice.startswith("ONNX Runtime 1.31.1 was not measured on processors of the family mips, nor was any other")
    assert "doctor --measure" in notice and "install" not in notice


def test_a_version_counts_for_the_families_that_it_was_measured_on(monkeypatch: pytest.MonkeyPatch) -> None:
    use_measured([record(runtime="onnxruntime", family="avx2", versions={"1.31.1": "fully", "99.1": "too"})])
    install(monkeypatch, "99.1", "avx2")
    assert unmeasured() == ("torch",)
    monkeypatch.setattr(sys.modules[library.__module__], "release_of", lambda runtime: "99.1")
    covered = dict(library("onnxruntime", covered=True).covered)
    newest = measured_versions("onnxruntime")["avx512"][-1]
    assert covered["avx2"] == "99.1" and covered["avx512"] == newest != "99.1"
    install(monkeypatch, "99.1", "avx512")
    assert unmeasured() == ("onnxruntime", "torch")


@pytest.fixture
def _two_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure two functions alone, on few values, and check none."""
    monkeypatch.setattr(check_module, "check", lambda runtime, version: nothing_found(runtime))
    functions = tuple(f for f in measuring_module.EVERYTHING if f.key in ("Sqrt", "Softmax"))
    monkeypatch.setattr(measuring_module, "EVERYTHING", functions)
    monkeypatch.setattr(measuring_module, "Sweep", lambda **_: Sweep(inner=99991, every=99991))


@pytest.mark.slow
@pytest.mark.usefixtures("_two_functions")
def test_what_was_measured_here_counts_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "0.0.1", family_here("onnxruntime"))
    before = self_check(tmp_path)
    steps = list(measure_here("onnxruntime", tmp_path, {}))
    assert steps == [("Sqrt", 0.0), ("Softmax", 0.5)]
    after = self_check(tmp_path)
    assert len(before.notices) == 2 and len(after.notices) == 1 and "PyTorch" in after.notices[0]
    (made,) = (r for r in families() if "0.0.1" in r.versions)
    assert "`doctor --measure`" in made.versions["0.0.1"] and "Sqrt" in made.rows and "Softmax" in made.saturation
    # It is about these settings and this version; and what is broken is none.
    assert "ONNX Runtime" in self_check(tmp_path, {"A": "1"}).notices[0]
    for path in (tmp_path / "measured").iterdir():
        path.write_text("{")
    assert self_check(tmp_path).notices == before.notices


@pytest.mark.usefixtures("_two_functions")
def test_what_was_measured_here_widens_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "0.0.1", family_here("torch"))
    list(measure_here("torch", tmp_path, {}))
    (path,) = (tmp_path / "measured").iterdir()
    content = json.loads(path.read_text())
    content["functions"]["Sqrt"]["float32"][0] = 1e-3
    path.write_text(json.dumps(content))
    self_check(tmp_path)
    assert envelope("Sqrt", torch.float32, ("torch",)).relative == 1e-3
    measured = find_envelope("Sqrt", torch.float32, "torch")
    assert measured is not None and measured.relative == 1e-3


@pytest.mark.usefixtures("_two_functions")
def test_nothing_is_measured_that_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="set XDG_CACHE_HOME"):
        next(measure_here("torch", tmp_path / "file", {}))


def test_the_description_names_families_and_what_the_check_found() -> None:
    text = "\n".join(describe(None))
    assert family_here("onnxruntime") in text and "  avx2: " in text and "    1.31.1: " in text and "skipped" in text
    notices = ("PyTorch strays",)
    assert "PyTorch strays" in "\n".join(describe(outcome_module.Outcome(records=(), known=True, notices=notices)))
