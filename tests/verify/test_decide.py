"""The main job: seeds, budgets, interruptions, devices, fixed inputs, and properties that are not about validity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ranum_falsify.config import SearchConfig
from ranum_falsify.errors import DeviceError, MemoryShortageError, ReplayCrashError
from ranum_falsify.network import read
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.replay.confirmer import Confirmer
from ranum_falsify.verify.replay.replayer import Finding
from ranum_falsify.verify.search import search as search_module
from ranum_falsify.verify.search.result import Answer
from ranum_falsify.verify.search.search import Progress
from tests.verify.search.search_kit import NETWORKS, check, found, natural, network, problem, search, valid_in_box

pytestmark = pytest.mark.usefixtures("one_thread")


def same(one: Answer, other: Answer) -> bool:
    def key(result: Answer) -> object:
        examples = [o.counterexample for o in result.operators]
        arrays = [{n: a.tobytes() for n, a in e.inputs.items()} if e else None for e in examples]
        return result.verdict, [(o.node, o.verdict, o.reach) for o in result.operators], arrays, result.steps

    return key(one) == key(other)


# seeds -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_same_seed_same_answer() -> None:
    one, again, other = (search(natural("softmax_regression"), n_starts=20, seed=seed) for seed in (5, 5, 6))
    assert same(one, again)
    assert not same(one, other)
    assert one.seed == 5


def test_random_operators_are_seeded_and_reported() -> None:
    graph = network("(float[3] x) => (float[3] y) { r = RandomUniformLike(x) s = Sub(x, r) y = Sqrt(s) }")
    problem = valid_in_box(graph, [(0.2, 0.4)])
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    results = [falsify(problem, SearchConfig(n_starts=10, processors=1)) for _ in range(2)]
    assert results[0].steps == results[1].steps
    assert torch.equal(before, torch.random.get_rng_state()), "the caller's generator is left alone"
    assert any("random" in notice.lower() for notice in results[0].notices)


# budgets ---------------------------------------------------------------------------------------------------------

HARD = "(float[1,64] x) => (float[1,64] y) { e = Exp(x) p = Softplus(e) a = Add(e, p) y = Log(a) }"


def hard() -> Problem:
    return valid_in_box(network(HARD), [(-1.0, 1.0)])


@pytest.mark.slow
def test_timeout_ends_an_endless_search() -> None:
    result = falsify(hard(), SearchConfig(n_starts=-1, timeout=1.5, processors=1, prove=False))
    assert (result.verdict, result.interrupted) == ("unknown", "timeout")
    assert result.starts > 100 and result.steps > 0


@pytest.mark.slow
def test_timeout_ends_a_batch_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "batch_limit", lambda size, device: 1)
    result = falsify(hard(), SearchConfig(n_starts=20_000, timeout=1.0, processors=1, prove=False))
    assert result.interrupted == "timeout"
    assert sum(result.seconds.values()) < 30, "of the minutes that all steps would take"


def test_no_time_at_all() -> None:
    result = falsify(hard(), SearchConfig(timeout=0.0, processors=1))
    assert (result.verdict, result.interrupted, result.steps) == ("unknown", "timeout", 0)


def test_endless_search_ends_when_everything_is_found() -> None:
    result = search(natural("split_forms"), n_starts=-1, timeout=60.0)
    assert result.verdict == "violated" and result.interrupted == ""


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_number_of_starts(count: int) -> None:
    graph = network("(float[3] x) => (float[3] y) { y = Log(x) }")
    result = search(valid_in_box(graph, [(-1.0, 1.0)]), n_starts=count)
    assert result.verdict == ("violated" if count else "unknown")
    assert result.starts >= count
    classic = problem("Forall(x, Implies(0 <= x <= 1, N(x)[0, 0] > -2))")
    assert search(classic, n_starts=count).verdict == "unknown"


def interrupt_when(condition: Callable[[Progress], bool]) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        assert 0 <= progress.done <= 1
        if condition(progress):
            raise KeyboardInterrupt

    return report


def test_ctrl_c_gives_the_best_answer_so_far() -> None:
    graph = network("(float[3] x) => (float[3] y, float[3] z) { y = Log(x) e = Exp(x) z = Log(e) }")
    reduced = valid_in_box(graph, [(-1.0, 1.0)])
    early = falsify(reduced, SearchConfig(processors=1), progress=interrupt_when(lambda _: True))
    assert (early.verdict, early.interrupted) == ("unknown", "Ctrl-C")
    assert all(operator.verdict == "open" for operator in early.operators)
    late = falsify(reduced, SearchConfig(processors=1), progress=interrupt_when(lambda p: "1 found" in p.text))
    assert (late.verdict, late.interrupted) == ("violated", "Ctrl-C")
    check(reduced, late)
    whole = falsify(reduced, SearchConfig(processors=1))
    assert whole.interrupted == ""


def test_ctrl_c_while_a_library_cleans_up_is_ctrl_c() -> None:
    graph = network("(float[3] x) => (float[3] y) { y = Log(x) }")
    reduced = valid_in_box(graph, [(-1.0, 1.0)])

    def stop(_: Progress) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("nothing to undo")

    result = falsify(reduced, SearchConfig(processors=1), progress=stop)
    assert (result.verdict, result.interrupted) == ("unknown", "Ctrl-C")

    def fail(_: Progress) -> None:
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError, match="a fault"):
        falsify(reduced, SearchConfig(processors=1), progress=fail)


def test_a_child_that_dies_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Confirmer.findings
    replays = 0

    def findings(self: Confirmer, *arguments: Any, **options: Any) -> tuple[Finding, ...]:
        nonlocal replays
        replays += 1
        if replays == 1:
            raise ReplayCrashError("ONNX Runtime crashed")
        return replay(self, *arguments, **options)

    monkeypatch.setattr(Confirmer, "findings", findings)
    result = search(natural("log_mel"))
    assert replays > 1 and found(result).keys() == {"log"}
    assert "ONNX Runtime crashed" in result.unconfirmed


def test_settings_of_torch_are_put_back() -> None:
    torch.set_num_threads(2)
    falsify(natural("split_forms"), SearchConfig(n_starts=2, n_steps=2, processors=1))
    assert torch.get_num_threads() == 2


# memory ----------------------------------------------------------------------------------------------------------

HUGE = network("(int64[1] n) => (float y) { c = ConstantOfShape(n) y = ReduceSum<keepdims = 0>(c) }")
"""Takes more bytes than a process can address, from 2^46 on."""


def test_nothing_is_found_at_points_that_no_memory_holds() -> None:
    answer = falsify(valid_in_box(HUGE, [(2.0**46, 2.0**47)]), SearchConfig(n_starts=4, processors=1))
    assert answer.verdict == "unknown"


def test_points_that_no_memory_holds_are_said_where_outputs_are_asked_about() -> None:
    text = f"Forall(x, Implies(And({2**46} <= x, x <= {2**47}), N(x) < 0))"
    with pytest.raises(MemoryShortageError, match="one point of the box needs more memory than there is; bound"):
        falsify(problem(text, networks={"N": HUGE}), SearchConfig(n_starts=4, processors=1))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_lack_of_memory_is_an_error_of_our_own(error: Exception) -> None:
    def run_out(progress: Progress) -> None:
        raise error

    with pytest.raises(MemoryShortageError, match="out of memory; use fewer starts"):
        falsify(natural("softmax_regression"), SearchConfig(n_starts=1, processors=1), progress=run_out)


# devices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpu", "cuda:77", "mps", "meta"])
def test_unknown_devices_are_refused(name: str) -> None:
    with pytest.raises(DeviceError, match=f"--device {name}") as error:
        falsify(hard(), SearchConfig(device=name))
    assert "\n" not in str(error.value)


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@cuda
@pytest.mark.parametrize("name", ["split_forms", "l2_normalise", "log_mel", "masked_attention", "mini_supercombo"])
def test_same_code_on_cuda(name: str) -> None:
    reduced = natural(name)
    result = search(reduced, n_starts=100, device="cuda")
    assert result.verdict == "violated"
    assert same(result, search(reduced, n_starts=100, device="cuda"))


@cuda
def test_classic_property_on_cuda() -> None:
    classic = problem("Forall(x, Implies(0 <= x <= 1, N(x)[0, 0] > -0.5))")
    assert search(classic, device="cuda").verdict == "violated"


# inputs of a single value ----------------------------------------------------------------------------------------

STEERED = """(float[4] x, int64 rate) => (float[4] y) {
  k = Constant<value = int64 {16}>() fast = Equal(rate, k)
  y = If (fast) <
    then_branch = t () => (float[4] a) { a = Log(x) },
    else_branch = e () => (float[4] b) { b = Sqrt(x) }
  >
}"""


@pytest.mark.slow
def test_an_input_of_one_value_is_a_constant_of_the_search() -> None:
    steered = network(STEERED)
    fixed = valid_in_box(steered, [(-1.0, 1.0), (16, 16)])
    result = search(fixed)
    example = result.counterexample
    assert example is not None
    assert example.inputs["v1"] == 16 and example.feeds["rate"].dtype == np.int64
    assert set(example.feeds) == {"x", "rate"}
    # ONNX Runtime shows that the If fails; what fails is in its branch.
    assert {o.op_type for o in result.operators} == {"Log"}
    (log,) = search(valid_in_box(steered, [(-1.0, 1.0), (16, 16)], options='only=["Log"]')).operators
    assert log.verdict == "violated"
    other = search(valid_in_box(steered, [(0.0, 1.0), (8, 8)]))
    assert other.verdict == "unknown", "the square root of 0 is valid"
    assert [o.op_type for o in other.operators] == ["Sqrt"]


def test_inputs_of_one_value_batch_what_reads_them_as_a_shape() -> None:
    graph = network("(float[2,3] x, int64[2] s) => (float[3,2] y) { r = Reshape(x, s) y = Log(r) }")
    template = "Forall(x, Forall(s, Implies(And(-1 <= x <= 1, {0}), no_invalid_input(N(x, s)))))"
    text = template.format("And(s[0] == 3, s[1] == 2)")
    result = search(problem(text, networks={"N": graph}))
    assert [o.op_type for o in found(result).values()] == ["Log"]


# properties over outputs -----------------------------------------------------------------------------------------


def example_of(result: Answer) -> dict[str, np.ndarray]:
    assert result.counterexample is not None and result.operators == ()
    return dict(result.counterexample.inputs)


def test_classic_robustness() -> None:
    graph = read(NETWORKS / "mlp_classifier.onnx")
    text = (
        "Forall(x, Implies(And(0 <= x <= 1, image - {0} <= x <= image + {0}), np.argmax(N(x)) == np.argmax(N(image))))"
    )
    head = f'image = Image("{NETWORKS / "digit_three.npy"}")'
    near = problem(text.format(0.01), head, {"N": graph})
    assert search(near).verdict == "unknown"
    far = problem(text.format(0.6), head, {"N": graph})
    x = example_of(search(far))["x"]
    image = np.load(NETWORKS / "digit_three.npy")
    assert np.abs(x - image).max() <= 0.6 + 1e-6
    assert graph(x).argmax() != graph(image).argmax()


@pytest.mark.slow
def test_equivalence_of_two_networks() -> None:
    networks = {name: read(NETWORKS / f"classifier_{name.lower()}.onnx") for name in ("A", "B")}
    text = "Forall(x, Implies(-1 <= x <= {0}, abs(A(x) - B(x)) < 0.5))"
    x = example_of(search(problem(text.format(1), networks=networks)))["x"]
    assert np.abs(networks["A"](x) - networks["B"](x)).max() >= 0.5
    assert search(problem(text.format(0.6), networks=networks)).verdict == "unknown"


def test_conjunction_of_validity_and_robustness() -> None:
    graph = network("(float[3] x) => (float[3] y) { e = Exp(x) y = Sqrt(e) }")
    text = "Forall(x, Implies(-1 <= x <= 1, And(no_invalid_input(N(x)), N(x)[0] < {0})))"
    assert search(problem(text.format(5), networks={"N": graph})).verdict == "unknown"
    x = example_of(search(problem(text.format(1.5), networks={"N": graph})))["x"]
    assert np.sqrt(np.exp(x[0])) >= 1.5
    log = network("(float[3] x) => (float[3] y) { y = Log(x) }")
    x = example_of(search(problem(text.format(5), networks={"N": log})))["x"]
    assert x.min() <= 0


def test_disjunction_of_validity_goals_keeps_them_apart() -> None:
    graph = network("(float[2] x, float[2] w) => (float[2] y, float[2] z) { y = Log(x) z = Sqrt(w) }")
    goals = 'Or(no_invalid_input(N(x, w), only=["Log"]), no_invalid_input(N(x, w), only=["Sqrt"]))'
    text = "Forall(x, Forall(w, Implies(And(-1 <= x <= 1, {0} <= w <= 1), {1})))"
    result = search(problem(text.format(0.5, goals), networks={"N": graph}))
    assert result.verdict == "unknown"
    assert result.unconfirmed == (), "torch is not to take one goal's violation for the other's"
    env = example_of(search(problem(text.format(-1, goals), networks={"N": graph})))
    assert env["x"].min() <= 0 and env["w"].min() < 0


def test_negated_validity_goals_ask_for_an_input_on_which_all_is_valid() -> None:
    graph = network("(float[3] x) => (float[3] y) { y = Log(x) }")
    text = "Forall(x, Implies({0} <= x <= {1}, Not(no_invalid_input(N(x)))))"
    x = example_of(search(problem(text.format(0, 1), networks={"N": graph})))["x"]
    assert x.min() > 0
    assert search(problem(text.format(-2, -1), networks={"N": graph})).verdict == "unknown"


def test_invalid_inputs_inside_a_branch_are_violations_of_the_if() -> None:
    graph = network(
        "(float[1,2] x) => (float[1,2] y) { s = ReduceSum<keepdims=0>(x) o = Constant<value = float {0}>() "
        "c = Greater(s, o) y = If(c) <then_branch = t () => (float[1,2] a) { a = Sqrt(x) }, "
        "else_branch = e () => (float[1,2] b) { b = Neg(x) }> }"
    )
    text = "Forall(x, Implies({0} <= x <= {1}, no_invalid_input(N(x))))"
    example = search(problem(text.format(-2, 2), networks={"N": graph})).counterexample
    assert example is not None
    assert example.inputs["x"].sum() > 0 > example.inputs["x"].min()
    assert search(problem(text.format(-2, -1), networks={"N": graph})).verdict == "unknown"


def test_mixed_properties_respect_what_counts() -> None:
    graph = network(
        "(float[2] x) => (float[2] y) { l = Log(x) o = Constant<value = float {0}>() b = Greater(x, o) "
        "y = Where(b, l, o) }"
    )
    text = "Forall(x, Implies(-1 <= x <= 1, And(no_invalid_input(N(x)), N(x)[0] < 5)))"
    mixed = problem(text, networks={"N": graph})
    assert search(mixed, fail_on="any").verdict == "violated"
    assert search(mixed, fail_on="output").verdict == "unknown"


def test_side_conditions_of_classic_properties() -> None:
    text = "Forall(x, Implies(And(-1 <= x <= 1, x[0, 0] + x[0, 1] > {0}), N(x)[0, 0] > -0.5))"
    x = example_of(search(problem(text.format(0.5))))["x"]
    assert float(x[0, 0]) + float(x[0, 1]) > 0.5 and -x[0, 0] <= -0.5
    assert search(problem(text.format(2.5))).verdict == "unknown"


def test_disjunction_of_boxes_searches_each() -> None:
    text = "Forall(x, Implies(Or(-1 <= x <= -0.9, 0.9 <= x <= 1), N(x)[0, 0] > -0.5))"
    x = example_of(search(problem(text)))["x"]
    assert x.min() >= 0.9 - 1e-6


def test_outputs_that_are_nan_violate_comparisons() -> None:
    graph = network("(float[2] x) => (float[2] y) { y = Sqrt(x) }")
    x = example_of(search(problem("Forall(x, Implies(-1 <= x <= 1, N(x)[0] <= 5))", networks={"N": graph})))["x"]
    assert x[0] < 0


def test_classic_margin_that_onnx_runtime_does_not_confirm() -> None:
    """In float16 torch rounds after every operator, ONNX Runtime only at the end of a chain."""
    graph = network("(float16[1] x) => (float16[1] y) { s = Mul(x, x) y = Sub(s, s) }")
    result = search(problem("Forall(x, Implies(500 <= x <= 1000, N(x)[0] <= 0))", networks={"N": graph}))
    assert result.verdict == "unknown"
    assert len(result.unconfirmed) == 1 and "ONNX Runtime" in result.unconfirmed[0]
