"""Proofs for processors of ARM64, and what verdicts say of them."""

from __future__ import annotations

import pytest

import ranum_falsify as rf
from ranum_falsify.config import ARM64, ProveConfig
from ranum_falsify.domain.kernels import Record, families
from ranum_falsify.verify.prove import elsewhere as module
from ranum_falsify.verify.prove.elsewhere import prove_elsewhere
from ranum_falsify.verify.prove.prover import Prover
from tests.network.building import parse
from tests.witness.confirm_kit import posed

COSH = "g (float[8] x) => (float[8] y) { [chain] y = Cosh(x) }"
EXP = "g (float[8] x) => (float[8] y) { [power] y = Exp(x) }"
ROOT = "g (float[8] x) => (float[8] y) { [rectified] r = Relu(x) [root] y = Sqrt(r) }"
HALF_EXP = "g (float16[8] x) => (float16[8] y) { [power] y = Exp(x) }"
# Erf(0) is up to 0.001 where float16 is computed in float16.
HALF_ERF = """g (float16[8] x) => (float16[8] y) {
    wide = Constant<value = float {0.00082}>() k = Cast<to = 10>(wide)
    [error] e = Erf(x) [difference] a = Sub(k, e) [logarithm] y = Log(a)
}"""
HALF_SUM = """g (float16[8, 4] x) => (float16[8, 1] y) <float[4, 1] wide = {200, 200, -200, -200}> {
    w = Cast<to = 10>(wide) [product] y = MatMul(x, w)
}"""
HALF_MERGED = """g (float16[8, 4] x) => (float16[8, 4] y) {
    wide = Constant<value = float {1.702}>() k = Cast<to = 10>(wide)
    [steep] a = Mul(x, k) [gate] s = Sigmoid(a) [gated] y = Mul(x, s)
}"""
HALF_UNKNOWN = "g (float16[8, 4] x) => (float16[8, 1] y) { [squares] y = ReduceSumSquare<axes = [1]>(x) }"
CLOSE = """
from dnnv.properties import *
N = Network("N")
Forall(x, Implies(And(0 <= x <= 1), N(x)[0] - N(x)[1] <= 1.75))
"""
BRANCHES = """g (float[1] x, bool c) => (float[1] y) {
    [choice] y = If(c) <
        then_branch = t () => (float[1] a) { a = Exp(x) }, else_branch = e () => (float[1] b) { b = Neg(x) }
    >
}"""


def found(text: str, *box: tuple[float, float], library: str = "onnxruntime") -> str | None:
    """Return what stands against a library's proof for ARM64 where that for x86-64 holds; None where that does not."""
    prover = Prover(posed(text, list(box)), ProveConfig(runtime=library), watches=False)
    return prove_elsewhere(prover, 1.0)[library] if prover.analyse().holds else None


@pytest.mark.parametrize("until", [0.0, 88.0, 88.25])
def test_what_all_processors_compute_is_proved_for_all(until: float) -> None:
    assert found(EXP, (-100, until)) == ""


def test_an_exponential_that_overflows_early_with_sve_is_proved_for_x86_64_alone() -> None:
    assert found(EXP, (0, 88.5)) == "Exp power, with sve"
    assert found(EXP, (0, 88.8)) is None
    assert found(EXP, (0, 88.5), library="torch") == ""


def test_a_hyperbolic_cosine_of_pytorch_overflows_early_on_arm64() -> None:
    assert found(COSH, (-88.5, 88.5), library="torch") == ""
    assert found(COSH, (-88.715, 88.715), library="torch") == "Cosh chain"
    assert found(COSH, (-88.715, 88.715)) == ""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_pytorch_in_half_precision_are_not_covered(dtype: str) -> None:
    half = HALF_EXP.replace("float16", dtype)
    assert found(half, (-1, 8), library="torch") == dtype


def test_what_one_analysis_does_not_prove_for_both_is_said_of_each() -> None:
    prover = Prover(posed(COSH, [(-88.715, 88.715)]), ProveConfig(), watches=False)
    assert prover.analyse().holds
    assert prove_elsewhere(prover, 1.0) == {"onnxruntime": "", "torch": "Cosh chain"}
    both = "onnxruntime and torch on x86-64 and arm64, exact"
    one = "onnxruntime on x86-64 and arm64, torch on x86-64, exact; not proved on arm64 (torch: Cosh chain)"
    for until, end in ((88.5, both), (88.715, one)):
        result = rf.prove(parse(COSH, 17), rf_property(until), timeout=20)
        assert str(result).splitlines()[0] == f"holds for {end}"


def test_parts_of_sums_of_float16_must_be_finite() -> None:
    assert found(HALF_SUM, (50, 60)) == ""
    assert found(HALF_SUM, (250, 255)) == "MatMul product, with neon_fp16, sve"


def test_float16_that_bounds_do_not_cover_is_named() -> None:
    assert found(HALF_UNKNOWN, (-1, 1)) == "ReduceSumSquare squares in float16"
    assert found(HALF_MERGED, (-1, 1)) == "Mul steep in float16, which the optimiser merges"


def test_nor_is_it_proved_where_that_is_asked_for() -> None:
    config = ProveConfig(runtime="onnxruntime-arm64")
    for text, holds in ((HALF_UNKNOWN, False), (HALF_EXP, True)):
        proof = Prover(posed(text, [(-1, 1)]), config, watches=False).analyse()
        assert (proof.holds, any("ARM64" in notice for notice in proof.notices)) == (holds, not holds)
        assert all(operator.proved is holds for operator in proof.operators.values())


def test_what_rests_on_no_kernel_is_not_analysed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_prove", None)
    assert found(ROOT, (-1, 1)) == ""
    with pytest.raises(TypeError):
        found(EXP, (-1, 1))


def test_subgraphs_count() -> None:
    for until, proved in ((88.0, True), (88.5, False)):
        assert (found(BRANCHES, (0, until), (0, 1)) == "") is proved


def test_other_runtimes_ask_for_nothing() -> None:
    prover = Prover(posed(EXP, [(0, 1)]), ProveConfig(runtime="exact"))
    assert prover.analyse().holds and not prove_elsewhere(prover, 1.0)


def test_the_verdict_says_where_it_holds() -> None:
    model = parse(EXP, 17)
    both, x86 = (str(rf.check(model, box=(0, until), n_starts=1)).splitlines() for until in (88, 88.5))
    assert both[0] == "holds for onnxruntime on x86-64 and arm64"
    assert x86[0] == "holds for onnxruntime on x86-64; not proved on arm64 (Exp power, with sve)"
    (line,) = (line for line in x86 if line.startswith("kernels: "))
    assert "arm64 (" not in line and line.endswith(" or arm64 or GPUs")


def test_one_analysis_does_for_all_processors_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_prove", None)
    for result in (
        rf.check(parse(EXP, 17), box=(0, 88), n_starts=1),
        rf.falsify(parse(EXP, 17), CLOSE, n_starts=1),
    ):
        assert "on x86-64 and arm64" in str(result).splitlines()[0]


def test_a_proof_may_be_asked_to_cover_arm64() -> None:
    for until, verdict in ((88, "holds"), (88.5, "unknown")):
        result = rf.prove(parse(EXP, 17), rf_property(until), runtime="onnxruntime-arm64", timeout=20)
        assert result.verdict == verdict
        assert result.runtimes == ("onnxruntime", "onnxruntime-arm64")


def rf_property(until: float) -> str:
    return f"""from dnnv.properties import *
from ranum_falsify.properties import *
N = Network("N")
Forall(x, Implies(0 <= x <= {until}, no_invalid_input(N(x))))
"""


def test_every_function_was_measured_on_every_family_of_arm64() -> None:
    known = {"onnxruntime": {"neon", "neon_fp16", "sve"}, "torch": {"neon", "neon_fp16", "sve128", "sve256"}}
    for library, names in known.items():
        of_x86 = [kernels(record) for record in families() if record.runtime == library]
        of_arm64 = {record.family: kernels(record) for record in families() if record.runtime == ARM64[library]}
        assert of_arm64.keys() == names
        # Where a processor lacks arithmetic of half precision, so may PyTorch a kernel.
        assert all(max(of_x86, key=len) - found <= {("Gelu", "float16")} for found in of_arm64.values())


def kernels(record: Record) -> set[tuple[str, str]]:
    return {(function, dtype) for function, rows in record.rows.items() for dtype in rows}
