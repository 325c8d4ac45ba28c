"""Batches that do not fit are split, and the parts give what the whole gives."""

from __future__ import annotations

import pytest
import torch

from ranum_falsify.network import read
from ranum_falsify.verify.search import search as search_module
from ranum_falsify.verify.search.device import batch_limit, bytes_per_sample, chunks
from tests.verify.search.search_kit import NETWORKS, context, found, natural, network, problem, search


def test_memory_of_a_sample_counts_every_activation() -> None:
    small = network("(float[10] x) => (float[10] y) { y = Relu(x) }")
    large = network("(float[10] x) => (float[10] y) { a = Relu(x) b = Neg(a) y = Abs(b) }")
    wide = network("(double[10] x) => (double[10] y) { y = Relu(x) }")
    assert 2 * 10 * 4 <= bytes_per_sample([small]) < bytes_per_sample([large])
    assert bytes_per_sample([wide]) == 2 * bytes_per_sample([small])
    assert bytes_per_sample([small, large]) == bytes_per_sample([small]) + bytes_per_sample([large])


def test_at_least_one_sample_runs_and_small_ones_run_together() -> None:
    cpu = torch.device("cpu")
    assert batch_limit(1 << 60, cpu) == 1
    assert batch_limit(1000, cpu) > 1000
    assert batch_limit(10**6, cpu) >= batch_limit(10**7, cpu)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_chunks_keep_the_order(limit: int) -> None:
    x, y = torch.arange(7), torch.arange(14).reshape(7, 2)
    parts = chunks([x, y], limit)
    assert all(len(a) == len(b) <= limit for a, b in parts)
    assert torch.equal(torch.cat([a for a, _ in parts]), x)
    assert torch.equal(torch.cat([b for _, b in parts]), y)


@pytest.mark.parametrize("name", ["split_forms", "mini_supercombo"])
def test_parts_give_what_the_whole_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reduced = natural(name)
    whole = context(reduced)
    (region,) = whole.regions()
    inputs = whole.starts(region, 10, first=True)
    targets = whole.targets()
    assigned = torch.arange(10) % len(targets)
    wanted = whole.objective(targets).differentiate(inputs, assigned)
    monkeypatch.setattr(search_module, "batch_limit", lambda size, device: 3)
    objective = whole.objective(targets)
    parts = objective.differentiate(inputs, assigned)
    torch.testing.assert_close(parts.margins, wanted.margins, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(objective.evaluate(inputs).margins, wanted.margins, rtol=1e-4, atol=1e-5)
    for part, gradient in zip(parts.gradients, wanted.gradients, strict=True):
        assert part is not None and gradient is not None
        # Summation order may flip a unit at its kink.
        assert (part - gradient).abs().gt(1e-4 * gradient.abs().amax() + 1e-6).float().mean() < 0.01


@pytest.mark.slow
def test_searches_in_parts_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "batch_limit", lambda size, device: 7)
    assert "normalise_div" in found(search(natural("l2_normalise"), n_starts=40))
    networks = {name: read(NETWORKS / f"classifier_{name.lower()}.onnx") for name in ("A", "B")}
    text = "Forall(x, Implies(-1 <= x <= 1, abs(A(x) - B(x)) < 0.5))"
    assert search(problem(text, networks=networks)).verdict == "violated"
