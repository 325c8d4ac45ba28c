"""The check of the installed kernels on first use."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ranum_falsify.selfcheck.check as check_module
import ranum_falsify.selfcheck.outcome as outcome_module
from ranum_falsify.cli.doctor import describe
from ranum_falsify.config import RUNTIMES
from ranum_falsify.domain.kernels import Envelope, Record, envelope, families, find_envelope, use_here
from ranum_falsify.selfcheck import family_here, list_unmeasured, self_check
from ranum_falsify.selfcheck.check import check


@pytest.fixture(autouse=True)
def _as_shipped() -> Iterator[None]:
    yield
    use_here([])


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
    (found,) = (r for r in families() if (r.runtime, r.family) == ("torch", "avx2"))
    row = (1e-3, 0.0, 0.0, 1.0, True)
    new = replace(found, family="here", swept={"Sigmoid": "samples"}, rows={"Sigmoid": {"float32": row}}, saturation={})
    return replace(new, **changes)


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
    monkeypatch.setattr(check_module, "check", lambda runtime, version: record(runtime=runtime, version=version))
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
    monkeypatch.setattr(check_module, "check", lambda runtime, version: record(runtime=runtime, version=version))
    (tmp_path / "file").write_text("")
    assert not self_check(tmp_path / "file").known and not self_check(None).known


def test_versions_and_families_without_a_record_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_module, "release_of", lambda runtime: "0.0.1")
    monkeypatch.setattr(outcome_module, "family_here", lambda runtime: "mips")
    use_here([record(version="0.0.1")])  # a check of another version is no measurement
    notices = list_unmeasured()
    assert len(notices) == 4 and all("0.0.1" in n or "mips" in n for n in notices)


def test_the_description_names_families_and_what_the_check_found() -> None:
    text = "\n".join(describe(None))
    assert family_here("onnxruntime") in text and "avx2, version" in text and "skipped" in text
    notices = ("PyTorch strays",)
    assert "PyTorch strays" in "\n".join(describe(outcome_module.Outcome(records=(), known=True, notices=notices)))
