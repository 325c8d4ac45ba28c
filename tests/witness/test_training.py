"""Training data: what they lead into fails on ONNX Runtime, by every strategy, and again in the file they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ranum_falsify.errors import PropertyError, UsageError
from ranum_falsify.process.deadline import NEVER
from ranum_falsify.properties.formula.terms import Trainable
from ranum_falsify.properties.problem.targets import targets_of
from ranum_falsify.verify.search.converter import convert
from ranum_falsify.witness.exposed import make_repeatable
from ranum_falsify.witness.training.maker import TrainingMaker
from ranum_falsify.witness.training.running import OPTIMISERS, Optimiser, OptimiserName, Recipe, train
from ranum_falsify.witness.training.search import DataSearch, Found
from ranum_falsify.witness.training.strategies import (
    GradientMatching,
    MarginWeights,
    PreciseUnrolling,
    Strategy,
    Unrolling,
)
from ranum_falsify.witness.training.task import Judge, TrainingTask
from ranum_falsify.witness.training.writing import Rehearsed, draw_training, rehearse
from ranum_falsify.witness.unit_test import write_arrays
from tests.witness.confirm_kit import Array, posed, run

pytestmark = pytest.mark.usefixtures("one_thread")

# A softmax regression with the cross entropy written out, of which `hit` fails 104 below the greatest logit.
REGRESSION = """g (float[1,40] x, float[1,4] y, float[40,4] w) => (float cost) {
    m = MatMul(x, w) p = Softmax(m) [hit] l = Log(p) t = Mul(y, l) s = ReduceSum<keepdims=0>(t) cost = Neg(s) }"""
BOUNDS = [(0.0, 4.0), (0.0, 1.0), (-10.0, 10.0)]
ZEROS = np.zeros((40, 4), np.float32)


def task(
    text: str = REGRESSION,
    bounds: list[tuple[float, float]] = BOUNDS,
    loss: str = "cost",
    one_hot: tuple[str, ...] = (),
) -> TrainingTask:
    problem = make_repeatable(posed(text, bounds))
    goal = problem.goals[0]
    targets = [target for target in targets_of(0, goal) if target.op.name == "hit"]
    model = convert(goal.call.graph)
    trained = Trainable(loss=(loss,), weights=("w",), one_hot=one_hot)
    return TrainingTask(problem, targets, model, trained)


def search(
    given: TrainingTask, recipe: Recipe, strategy: Strategy, *, seed: int = 0, initial: Array = ZEROS
) -> Found | None:
    with Judge(given) as judge:
        return DataSearch(
            given,
            recipe,
            [torch.from_numpy(initial.copy())],
            strategy,
            judge,
            torch.Generator().manual_seed(seed),
            point=[None] * len(given.data),
            deadline=NEVER,
            rounds=3,
        ).run()


def is_failing(given: TrainingTask, found: Found) -> bool:
    """Whether the operator writes infinity or NaN on ONNX Runtime, with what training leaves and finite operands."""
    data = {datum.name: x for datum, x in zip(given.data, found.point, strict=True)}
    tensors = run(given.graph, data | dict(zip(given.weights, found.trained, strict=True)))
    return bool(np.isfinite(tensors["p"]).all() and not np.isfinite(tensors["l"]).all())


def one_step(found: Found) -> Array:
    """Return the weights after a step of gradient descent, from the formula of this gradient."""
    x, y = found.batches[0]
    logits = x.astype(np.float64) @ found.initial[0]
    p = np.exp(logits - logits.max())
    p /= p.sum()
    moved: Array = found.initial[0] - x.T.astype(np.float64) @ (p * y.sum() - y)
    return moved


def aimed() -> list[Tensor]:
    """Weights of which one logit lies far below the others, on inputs of ones."""
    wanted = torch.zeros(40, 4)
    wanted[:, 0] = -4.0
    return [wanted]


ONES = [torch.ones(1, 40), torch.tensor([[1.0, 0, 0, 0]])]
STRATEGIES: list[Strategy] = [
    Unrolling(),
    PreciseUnrolling(),
    GradientMatching(point=ONES, wanted=aimed()),
    MarginWeights(point=ONES, lower=aimed(), upper=[w + 0.5 for w in aimed()], matters=[(aimed()[0] != 0).float()]),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_every_strategy_leads_one_step_into_the_defect(strategy: Strategy) -> None:
    given = task()
    found = search(given, Recipe(), strategy)
    assert found is not None and found.strategy == strategy.name
    assert is_failing(given, found)
    np.testing.assert_allclose(found.trained[0], one_step(found), rtol=1e-4, atol=1e-4)
    for datum, x in zip(given.data, found.batches[0], strict=True):
        assert (x >= datum.box.lower.numpy()).all() and (x <= datum.box.upper.numpy()).all()


@pytest.mark.parametrize(
    ("recipe", "followed"),
    [(Recipe(steps=10), 10), (Recipe(steps=1000), 3), (Recipe(steps=1000, batches=5), 5), (Recipe(steps=12), 3)],
)
def test_gradients_follow_few_steps_and_the_beginning_of_many(recipe: Recipe, followed: int) -> None:
    assert recipe.followed.steps == followed and recipe.is_long == (followed < recipe.steps)


def test_equal_seeds_give_equal_data() -> None:
    first, second = (search(task(), Recipe(steps=2), Unrolling(), seed=3) for _ in range(2))
    assert first is not None and second is not None
    assert all((a == b).all() for a, b in zip(first.batches[0], second.batches[0], strict=True))
    assert (first.trained[0] == second.trained[0]).all()


def test_labels_are_one_hot() -> None:
    found = search(task(one_hot=("y",)), Recipe(steps=2, batches=2), Unrolling())
    assert found is not None and len(found.batches) == 2
    for _, y in found.batches:
        assert sorted(y.flatten()) == [0, 0, 0, 1]


def test_initial_weights_that_fail_need_no_training() -> None:
    given = task()
    with TrainingMaker(given, Recipe(), timeout=60.0) as maker:
        found = maker.run(0, [aimed()[0].numpy()]).found
    assert found is not None and found.strategy == "" and not found.batches
    assert is_failing(given, found)


def test_a_model_that_cannot_fail_is_not_found() -> None:
    given = task(bounds=[(0.0, 0.01), (0.0, 1.0), (-10.0, 10.0)])
    assert search(given, Recipe(), Unrolling()) is None


def test_clamped_weights_stay_in_their_ranges() -> None:
    given = task(bounds=[(0.0, 4.0), (0.0, 1.0), (-1.0, 1.0)])
    found = search(given, Recipe(clamps=True), Unrolling())
    assert found is not None and np.abs(found.trained[0]).max() <= 1.0
    assert np.abs(one_step(found)).max() > 1.0


def reference(name: str, w: Tensor) -> torch.optim.Optimizer:
    """PyTorch's optimiser of the same rule."""
    made: dict[str, torch.optim.Optimizer] = {
        "sgd": torch.optim.SGD([w], lr=0.1),
        "momentum": torch.optim.SGD([w], lr=0.1, momentum=0.9),
        "adam": torch.optim.Adam([w], lr=0.1, eps=1e-8),
        "adagrad": torch.optim.Adagrad([w], lr=0.1, initial_accumulator_value=0.1, eps=1e-8),
    }
    return made[name]


@pytest.mark.parametrize("name", sorted(set(OPTIMISERS) - {"rmsprop"}))
def test_optimisers_follow_pytorch(name: OptimiserName) -> None:
    rule, w = Optimiser(name=name, learning_rate=0.1), torch.tensor([1.0, -2.0])
    leaf = w.clone().requires_grad_()
    other, state = reference(name, leaf), rule.start([w])
    weights = [w]
    for number in range(5):
        slope = torch.sin(weights[0] * 3) + 0.1
        weights, state = rule.step(weights, [slope], state, number)
        leaf.grad = torch.sin(leaf.detach() * 3) + 0.1
        other.step()
    torch.testing.assert_close(weights[0], leaf.detach(), rtol=1e-5, atol=1e-6)


def test_centred_rmsprop_follows_its_definition() -> None:
    rule = Optimiser(name="rmsprop", learning_rate=0.1, epsilon=1e-6, centred=True)
    w, slopes = torch.tensor([1.0]), [0.5, -2.0, 1.0]
    weights, state = [w], rule.start([w])
    square, mean, expected = 1.0, 0.0, 1.0
    for number, g in enumerate(slopes):
        weights, state = rule.step(weights, [torch.tensor([g])], state, number)
        square, mean = 0.9 * square + 0.1 * g * g, 0.9 * mean + 0.1 * g
        expected -= 0.1 * g / (square - mean * mean + 1e-6) ** 0.5
    assert float(weights[0]) == pytest.approx(expected, rel=1e-5)


def test_learning_rates_decay() -> None:
    rule = Optimiser(learning_rate=1.0, decay=0.5, decay_steps=2)
    steps = [float(rule.step([torch.zeros(1)], [torch.ones(1)], (), number)[0][0]) for number in range(4)]
    assert steps == [-1.0, -1.0, -0.5, -0.5]


@pytest.mark.parametrize("given", [{"name": "lion"}, {"learning_rate": 0.0}, {"learning_rate": float("nan")}])
def test_bad_optimisers_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"unknown|positive"):
        Optimiser(**given)  # type: ignore[arg-type]


def test_a_loss_that_depends_on_no_weight_is_refused() -> None:
    text = """g (float[1,3] x, float[3,3] w) => (float cost, float[1,3] l) {
        cost = ReduceSum<keepdims=0>(x) m = MatMul(x, w) [hit] l = Log(m) }"""
    with pytest.raises(PropertyError, match="'cost' depends on none of the freed weights"):
        task(text, [(0.0, 1.0), (-1.0, 1.0)])


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(PropertyError, match="no node or output 'price' that could be a loss; outputs: 'cost'"):
        task(loss="price")


def test_a_loss_of_several_elements_is_summed_with_a_notice() -> None:
    assert "shape [1, 4]; the sum of its elements is trained" in task(loss="t").notices[0]
    assert not task().notices
    weights, data = [torch.rand(40, 4)], [torch.rand(1, 40), torch.rand(1, 4)]
    torch.testing.assert_close(task(loss="t").loss(weights, data), -task().loss(weights, data))


# files --------------------------------------------------------------------------------------------------------------


def rehearsed(given: TrainingTask, recipe: Recipe) -> Rehearsed:
    found = search(given, recipe, Unrolling())
    assert found is not None
    with Judge(given) as judge:
        made = rehearse(given, recipe, found, judge, 0)
    assert made is not None
    return made


def write(made: Rehearsed, folder: Path) -> Path:
    for name, arrays in (("training", made.training_arrays()), ("trained", made.trained_arrays())):
        with (folder / f"{name}.npz").open("wb") as stream:
            write_arrays(stream, arrays)
    for name, content in made.list_models().items():
        (folder / name).write_bytes(content)
    (folder / "test_it.py").write_text(made.pytest_file("it.py"), encoding="utf-8")
    return folder / "test_it.py"


def execute(file: Path) -> subprocess.CompletedProcess[str]:
    """Run a generated file as its users do, where ranum_falsify cannot be imported."""
    hidden = file.parent / "hidden" / "ranum_falsify"
    hidden.mkdir(parents=True, exist_ok=True)
    (hidden / "__init__.py").write_text("raise ImportError('generated files need no ranum_falsify')")
    environment = {**os.environ, "PYTHONPATH": str(hidden.parent)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:ranum_falsify.testing",
        file.name,
    ]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=file.parent)


@pytest.mark.slow
def test_the_file_trains_by_itself_and_fails_where_it_says(tmp_path: Path) -> None:
    recipe = Recipe(optimiser=Optimiser(name="adam", learning_rate=0.2), steps=5, batches=2)
    made = rehearsed(task(), recipe)
    file = write(made, tmp_path)
    steps = made.found.steps
    assert steps > 1 and f"adam, learning rate 0.2, {steps} steps" in file.read_text()
    assert made.shown and f"SHOWN = {made.shown!r}" in file.read_text()
    assert execute(file).returncode == 0
    # With other data, the same training leads elsewhere.
    arrays = made.training_arrays()
    with (tmp_path / "training.npz").open("wb") as stream:
        write_arrays(stream, arrays | {"data:x": np.zeros_like(arrays["data:x"])})
    assert "does not fail" in execute(file).stdout


@pytest.mark.slow
def test_the_file_trains_on_scalars(tmp_path: Path) -> None:
    text = REGRESSION.replace("float[1,40] x,", "float[1,40] x, float scale,").replace("MatMul(x, w)", "Mul(n, scale)")
    text = text.replace("m = Mul", "n = MatMul(x, w) m = Mul")
    given = task(text, [BOUNDS[0], (1.0, 2.0), *BOUNDS[1:]])
    file = write(rehearsed(given, Recipe(optimiser=Optimiser(learning_rate=0.5), steps=3)), tmp_path)
    assert execute(file).returncode == 0


@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_rule_in_the_file_is_the_one_that_was_searched(name: OptimiserName, tmp_path: Path) -> None:
    given = task()
    recipe = Recipe(optimiser=Optimiser(name=name, decay=0.5, decay_steps=2), steps=5, batches=2, clamps=True)
    rng = np.random.default_rng(0)
    batches = [[rng.random((1, 40), np.float32), rng.random((1, 4), np.float32)] for _ in range(2)]
    weights = train(given, recipe, [torch.from_numpy(ZEROS)], [[torch.from_numpy(x) for x in b] for b in batches])
    found = search(given, Recipe(), Unrolling())
    assert found is not None
    made = rehearsed(given, Recipe())
    swapped = Rehearsed(
        task=given,
        recipe=recipe,
        found=Found(**{**vars(found), "batches": batches, "steps": 5}),
        program=made.program,
        seed=0,
        shown=(),
    )
    write(swapped, tmp_path)
    scope: dict[str, Any] = {"__file__": str(tmp_path / "test_it.py"), "__name__": "test_it"}
    exec((tmp_path / "test_it.py").read_text(encoding="utf-8"), scope)
    trained = scope["train"](swapped.training_arrays())
    np.testing.assert_allclose(trained["w"], weights[0].numpy(), rtol=1e-5, atol=1e-6)


def test_drawings_show_every_step() -> None:
    made = rehearsed(task(), Recipe(optimiser=Optimiser(learning_rate=0.2), steps=3))
    text = draw_training(made)
    assert text.startswith("<svg") and "margin of hit" in text
    # The last loss may be infinite.
    assert text.count("<circle") >= 2 * made.found.steps + 1


def test_training_that_ends_in_nan_fails_at_the_step_before() -> None:
    # Three such steps: after the first, the loss itself is infinite.
    given = task()
    found = search(given, Recipe(steps=3), Unrolling())
    assert found is not None and 1 <= found.steps <= 3
    assert np.isfinite(found.trained[0]).all() and is_failing(given, found)
