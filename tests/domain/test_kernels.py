"""The records of kernels against the libraries that are installed, and what proofs make of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.domain import RUNTIMES, Interval, IntervalAnalysis, Runtime, Visited
from ranum_falsify.domain.kernels import EXACT, Envelope, Record, envelope, families, find_envelope, measured_versions
from ranum_falsify.domain.rounding import round_numbers_outward, round_outward
from ranum_falsify.domain.rules.support import real_functions as functions
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network import Graph, read, spec_of
from ranum_falsify.operators.support.deciding import is_proved
from ranum_falsify.verify.replay.replayer import Replayer
from tests.domain.kernel_subjects import (
    DTYPES,
    REFERENCES,
    RUNS,
    SAMPLES,
    assert_within,
    check_errors,
    model,
    run_onnxruntime,
)


def node(op_type: str, dtype: str = "float32", count: int = SAMPLES) -> Graph:
    graph = read(model(op_type, dtype, count))
    assert isinstance(graph, Graph)
    return graph


@pytest.mark.few(48)
@pytest.mark.parametrize("runtime", RUNS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", REFERENCES)
def test_installed_kernels_lie_within_the_records(function: str, dtype: str, runtime: str) -> None:
    if not check_errors(function, dtype, runtime, RUNS[runtime]):
        # What has no record must have no kernel.
        with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
            RUNS[runtime](model(function, dtype, SAMPLES), np.ones(SAMPLES, DTYPES[dtype]))


def test_kernels_that_replace_denormal_numbers_lie_within_the_records() -> None:
    """Numbers on the way to a result may be denormal where neither operands nor results are."""
    rng, limits = np.random.default_rng(0), np.finfo(np.float32)
    sizes = np.exp2(np.concatenate([rng.uniform(-125.9, -96, SAMPLES), rng.uniform(-96, 60, SAMPLES)]))
    g, feeds = ModelBuilder("kernels", opset=22, ir_version=10), dict[str, np.ndarray]()
    for function, (_, (low, high)) in REFERENCES.items():
        drawn = np.clip(
            sizes * rng.choice([-1, 1], sizes.size), max(low, float(limits.min)), min(high, float(limits.max))
        )
        # Exponentials of operands far below 0 are as small.
        drawn[: SAMPLES // 2] = np.clip(rng.uniform(-88, 0, SAMPLES // 2), low, high)
        feeds[f"{function}/x"] = drawn.astype(np.float32)
        y = g.node(function, g.input(f"{function}/x", [sizes.size]), out=f"{function}/y")
        g.output(y, [sizes.size])
    with Replayer(g.build(), threads=1, flush=True) as replayer:
        results = replayer.run_plain(feeds)
    for function, (reference, _) in REFERENCES.items():
        kernel, x = find_envelope(function, torch.float32, "onnxruntime"), feeds[f"{function}/x"]
        if kernel is not None:
            value = reference(torch.from_numpy(x).double()).numpy()
            assert_within(kernel, results[f"{function}/y"], x, value, function)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_keeps_to_its_side_of_1(dtype: str) -> None:
    x = np.exp2(np.linspace(-30, -2, SAMPLES)).astype(DTYPES[dtype])
    graph, of = node("Exp", dtype), model("Exp", dtype, SAMPLES)
    for operand, above in ((x, True), (-x, False)):
        for y in (graph(operand, squeeze=False)[0], *run_onnxruntime(of, operand)):
            assert (np.asarray(y) >= 1).all() if above else (np.asarray(y) <= 1).all()


def test_every_family_was_measured_with_the_versions_that_the_project_pins(repository: Path) -> None:
    lines = (repository / "scripts" / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    for runtime in ("onnxruntime", "torch"):
        assert all(pins[runtime] in versions for versions in measured_versions(runtime).values())


def test_every_family_of_x86_64_has_a_record() -> None:
    found = {(record.runtime, record.family) for record in families()}
    assert {("onnxruntime", family) for family in ("sse", "avx", "avx2", "avx512")} <= found
    for capability in ("default", "avx2", "avx512"):
        assert {("torch", capability), ("torch", f"{capability}_intel")} <= found


def test_records_of_a_runtime_are_about_the_same_functions() -> None:
    for runtime in ("onnxruntime", "torch"):
        of = [record for record in families() if record.runtime == runtime]
        kernels = {record.family: {(f, t) for f, row in record.rows.items() for t in row} for record in of}
        for family, kernel in kernels.items():
            whole = kernels[family.removesuffix("_intel")]
            # Of Intel's processors only those functions differ that MKL computes.
            assert kernel == kernels["avx2"] or (kernel < whole and ("Exp", "float32") in kernel)


def test_envelopes_cover_all_families() -> None:
    for record in (record for record in families() if record.runtime != "exact"):
        for function, rows in record.rows.items():
            for dtype, row in rows.items():
                both = envelope(function, getattr(torch, dtype), (record.runtime,))
                assert both == both.union(Envelope(*row, *_ends(record, function, dtype)))


def _ends(record: Record, function: str, dtype: str) -> tuple[float, float]:
    return record.ends(function) if dtype == "float32" else (-math.inf, math.inf)


@pytest.mark.parametrize("runtimes", [("torch",), ("onnxruntime", "exact")])
def test_gelu_overflows_where_kernels_double_its_operand(runtimes: tuple[Runtime, ...]) -> None:
    visits: list[Visited] = []
    for end in (1.6e38, 1.8e38, math.inf):
        box = Interval.of(torch.full((2,), 1e38), torch.full((2,), end), (2,))
        analysis = IntervalAnalysis(node("Gelu", count=2), runtimes=runtimes)
        analysis.run([box], visits.append)
    assert [is_proved(analysis, visited) for visited in visits] == [True, False, False]
    assert [visited.outputs[0].nan for visited in visits] == [False, False, "torch" in runtimes]


def proves_logarithm(lower: float, upper: float, runtimes: tuple[Runtime, ...]) -> bool:
    graph = read(model("Sigmoid", "Log", "float32", 1))
    assert isinstance(graph, Graph)
    found: list[bool] = []

    def observe(visited: object) -> None:
        spec = spec_of(visited.op)  # type: ignore[attr-defined]
        bounds = spec.name_values(visited.operands)  # type: ignore[attr-defined]
        found.extend(constraint.holds(visited.op, bounds) for constraint in spec.valid)  # type: ignore[attr-defined]

    box = Interval.box(np.full(1, lower, np.float32), np.full(1, upper, np.float32))
    IntervalAnalysis(graph, runtimes=runtimes).run([box], observe)
    assert found
    return all(found)


def test_logarithm_of_sigmoid_is_proved_only_where_the_kernel_stays_positive() -> None:
    assert not proves_logarithm(-20, 20, RUNTIMES)
    assert not proves_logarithm(-20, 20, ("onnxruntime",))
    assert proves_logarithm(-20, 20, ("torch",))
    assert proves_logarithm(-20, 20, ("exact",))
    assert proves_logarithm(-14, 20, RUNTIMES)
    assert not proves_logarithm(-200, 0, ("torch",))


@pytest.mark.parametrize(
    ("function", "turn"),
    [
        (functions.gelu, functions.GELU_TURN),
        (functions.gelu_tanh, functions.GELU_TANH_TURN),
        (functions.mish, functions.MISH_TURN),
        (functions.swish, functions.SWISH_TURN),
    ],
)
def test_turns_are_minima(function: Callable[[torch.Tensor], torch.Tensor], turn: float) -> None:
    at = function(torch.tensor(turn, dtype=torch.float64))
    # At every scale: a grid of steps of 0.001 alone misses a turn that is 0.0005 off, and bounds that are so by 1e-7.
    steps = torch.exp2(torch.arange(0, -27, -1, dtype=torch.float64))
    around = turn + torch.cat([steps, -steps])
    assert bool((function(around) >= at - 1e-16).all())
    rising = function(torch.linspace(turn, 50, 5000, dtype=torch.float64)).diff() >= 0
    falling = function(torch.linspace(-50, turn, 5000, dtype=torch.float64)).diff() <= 0
    assert bool(rising.all()) and bool(falling.all())


@given(st.floats(-30, 30))
@settings(deadline=None)
def test_real_functions_do_not_cancel(x: float) -> None:
    with mpmath.workprec(120):
        truths = {
            functions.softplus: mpmath.log1p(mpmath.exp(x)),
            functions.gelu: mpmath.mpf(x) * mpmath.ncdf(x),
            functions.swish: mpmath.mpf(x) / (1 + mpmath.exp(-x)),
            functions.mish: mpmath.mpf(x) * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
        }
    for function, truth in truths.items():
        value = float(function(torch.tensor(x, dtype=torch.float64)))
        # Rounding the argument of an exponential of -x^2 / 2 costs x^2 units.
        assert abs(value - float(truth)) <= 2e-16 * (8 + x * x) * abs(float(truth)) + 1e-300


def test_union_covers_both_and_unknown_functions_are_refused() -> None:
    one, other = Envelope(1e-7, 0.0, 0.0, 1.0), Envelope(1e-8, 1e-9, -1.0, 0.5, False)
    assert one.union(other) == Envelope(1e-7, 1e-9, -1.0, 1.0, False)
    everywhere = envelope("Tanh", torch.float32, RUNTIMES)
    assert everywhere.highest > 1 == envelope("Tanh", torch.float32, ("torch",)).highest
    assert envelope("Tanh", torch.float32, ("exact",)).relative == 0
    with pytest.raises(KeyError):
        envelope("Identity", torch.float32, RUNTIMES)


MAGNITUDES = [0.1, 1.0, 88.7, 3.4028235e38, 3.5e38, 1e300, math.inf, 1.2e-38, 1.1e-38, 1e-45, 1e-60, 0.0]
NUMBERS = sorted({sign * number for number in MAGNITUDES for sign in (-1.0, 1.0)})


@pytest.mark.parametrize("function", [None, "Exp", "Tanh", "Sigmoid", "Log"])
def test_one_number_is_rounded_like_many(function: str | None) -> None:
    kernel = EXACT if function is None else envelope(function, torch.float32, RUNTIMES)
    for low, high in itertools.combinations_with_replacement(NUMBERS, 2):
        low64, high64 = (torch.tensor([[end]], dtype=torch.float64) for end in (low, high))
        one = round_outward(low64, high64, torch.float32, (2, 3), kernel)
        many = round_outward(low64.repeat(2, 3), high64.repeat(2, 3), torch.float32, (2, 3), kernel)
        assert one.shape == many.shape and one.extremes == many.extremes, (low, high)


def test_numbers_that_a_dtype_lacks_are_rounded_outward() -> None:
    for low, high in ((0.1, 0.1), (-0.1, 0.7), (1e-60, 1 / 3), (-1 / 3, -1e-60)):
        least, greatest = round_numbers_outward(low, high, (2,), torch.float32).extremes
        assert least <= low and high <= greatest
