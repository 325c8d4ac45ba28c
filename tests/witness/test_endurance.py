"""Training in full: what gradients cannot follow, found from rows of a few patterns, and replayed after all steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
import pytest
import torch

from ranum_falsify.process.deadline import NEVER, Deadline
from ranum_falsify.properties.formula.terms import Trainable
from ranum_falsify.properties.problem.targets import targets_of
from ranum_falsify.verify.search.converter import convert
from ranum_falsify.witness.exposed import make_repeatable
from ranum_falsify.witness.training.endurance import Endurance
from ranum_falsify.witness.training.running import Optimiser, Recipe
from ranum_falsify.witness.training.search import Found
from ranum_falsify.witness.training.task import Judge, TrainingTask
from tests.witness.confirm_kit import Array, posed, run

pytestmark = pytest.mark.usefixtures("one_thread")

# Four rows of softmax regression; no step parts logits by 104, which takes hundreds of them.
REGRESSION = """g (float[4,40] x, float[4,3] y, float[40,3] w) => (float cost) {
    m = MatMul(x, w) p = Softmax(m) [hit] l = Log(p) t = Mul(y, l) s = ReduceSum<keepdims=0>(t) cost = Neg(s) }"""
RECIPE = Recipe(optimiser=Optimiser(learning_rate=0.5), steps=300)


# Too many weights for all batches to be trained at once.
WIDE = REGRESSION.replace("40", "2000")


def task(text: str = REGRESSION, loss: Sequence[str] = ("cost",), parts: Sequence[str] = ()) -> TrainingTask:
    problem = make_repeatable(posed(text, [(0.0, 1.0), (0.0, 1.0), (-100.0, 100.0)]))
    goal = problem.goals[0]
    targets = [target for target in targets_of(0, goal) if target.op.name == "hit"]
    weights, labels = (tuple(n for n in names if n in goal.call.graph.input_names) for names in ("wv", "y"))
    trained = Trainable(weights=weights, loss=tuple(loss), one_hot=labels, parts=tuple(parts))
    return TrainingTask(problem, targets, convert(goal.call.graph), trained)


def search(given: TrainingTask, recipe: Recipe = RECIPE, seed: int = 0) -> Found | None:
    with Judge(given) as judge:
        return Endurance(
            given,
            recipe,
            [torch.zeros(40, 3)],
            judge,
            torch.Generator().manual_seed(seed),
            deadline=NEVER,
        ).run()


def gradient_descent(found: Found, rate: float) -> Array:
    """Return the weights after all steps of gradient descent, from the formula of this gradient."""
    (x, y), w = found.batches[0], found.initial[0].astype(np.float64)
    for _ in range(found.steps):
        p = np.exp(x @ w - (x @ w).max(1, keepdims=True))
        w = w - rate * x.T @ (p / p.sum(1, keepdims=True) - y)
    return w


def test_all_steps_lead_into_the_defect() -> None:
    given = task()
    found = search(given)
    assert found is not None and found.strategy == "training in full" and found.steps > 1
    np.testing.assert_allclose(found.trained[0], gradient_descent(found, 0.5), rtol=1e-2, atol=1e-2)
    x, y = found.point
    tensors = run(given.graph, {"x": x, "y": y, "w": found.trained[0]})
    assert np.isfinite(tensors["p"]).all() and not np.isfinite(tensors["l"]).all()


@pytest.mark.slow
def test_labels_stay_one_hot_and_data_in_their_range() -> None:
    found = search(task())
    assert found is not None
    x, y = found.batches[0]
    assert sorted(set(y.flatten())) == [0.0, 1.0] and (y.sum(1) == 1).all()
    assert x.min() >= 0 and x.max() <= 1


@pytest.mark.slow
def test_equal_seeds_give_equal_runs() -> None:
    first, second = search(task(), seed=5), search(task(), seed=5)
    assert first is not None and second is not None
    assert all((a == b).all() for a, b in zip(first.batches[0], second.batches[0], strict=True))
    assert (first.trained[0] == second.trained[0]).all()


@pytest.mark.slow
def test_too_few_steps_find_nothing() -> None:
    assert search(task(), Recipe(optimiser=Optimiser(learning_rate=0.001), steps=5)) is None


def test_time_is_left_to_search_an_input_of_a_model_that_is_not_trained_to_the_end() -> None:
    given, recipe, ticks = task(WIDE), Recipe(optimiser=Optimiser(learning_rate=0.5), steps=10**9), count()
    with Judge(given) as judge:
        found = Endurance(
            given,
            recipe,
            [torch.zeros(2000, 3)],
            judge,
            torch.Generator().manual_seed(0),
            deadline=Deadline(500, lambda: next(ticks)),
        ).run()
    assert found is not None and 100 < found.steps < 500


def test_each_part_of_the_weights_makes_its_own_loss_small() -> None:
    text = """g (float[1,3] x, float[3,3] w, float[3,3] v) => (float first, float second, float[1,3] l) {
        a = MatMul(x, w) b = MatMul(x, v) c = Mul(a, b) [hit] l = Log(c)
        first = ReduceSum<keepdims=0>(c) d = Neg(c) second = ReduceSum<keepdims=0>(d) }"""
    given = task(text, loss=["first", "second"], parts=["w", "v"])
    leaves = [torch.rand(3, 3).requires_grad_() for _ in range(2)]
    x = torch.rand(1, 3)
    w, v = torch.autograd.grad(given.loss(leaves, [x]), leaves)
    torch.testing.assert_close(w, (x.T * (x @ leaves[1])).detach())
    torch.testing.assert_close(v, -(x.T * (x @ leaves[0])).detach())
