"""Training as the programs do it: batches as they draw them, and what training meets without any search."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ranum_falsify.network.tensors import to_numpy
from ranum_falsify.zoo.catalogue import model_of
from ranum_falsify.zoo.natural import Feeder, Pictures, train_naturally
from ranum_falsify.zoo.train import TrainingBench

pytestmark = pytest.mark.usefixtures("one_thread")

PICTURES = Pictures(pixels=np.linspace(0, 1, 5)[:, None, None] * np.ones((5, 28, 28)), classes=np.arange(5))


def draw(name: str, pictures: Pictures | None = None, seed: int = 0) -> dict[str, np.ndarray]:
    """Return a program's first batch, by the names of the inputs."""
    model = model_of(name)
    task = TrainingBench(model, "real").task(model.defects[0])
    batch = Feeder(model.id, task.data, pictures, seed).draw()
    for datum, x in zip(task.data, batch, strict=True):
        assert x.shape == datum.box.lower.shape and x.dtype == datum.box.dtype
        assert bool((x >= datum.box.lower).all()) and bool((x <= datum.box.upper).all())
    return {datum.name: to_numpy(x) for datum, x in zip(task.data, batch, strict=True)}


@pytest.mark.parametrize(("name", "low"), [("3", 0.0), ("11a", -1.0), ("14", 0.0), ("12", 0.0)])
def test_pictures_keep_their_classes(name: str, low: float) -> None:
    batch = draw(name, PICTURES)
    images, labels = (next(x for key, x in batch.items() if (key[0] == "x") is wanted) for wanted in (True, False))
    classes = labels.argmax(-1) if labels.ndim > 1 else labels
    brightest = images.reshape(len(images), -1).max(1)
    np.testing.assert_allclose(brightest, low + (1 - low) * classes / 4, atol=1e-6)


def test_data_that_a_program_writes_out_are_these() -> None:
    batch = draw("26")
    assert batch["x"].tolist() == [[1, 2], [2, 3], [3, 1], [4, 3], [5, 3], [6, 2]]
    assert batch["y"].flatten().tolist() == [0, 0, 0, 1, 1, 1]


def test_noise_is_normal_and_keep_probabilities_are_those_of_training() -> None:
    batch = draw("31")
    assert batch["keep_prob"] == np.float32(0.3)
    assert abs(batch["z"].mean()) < 0.05 and batch["z"].std() == pytest.approx(1, abs=0.05)
    mlp = draw("48a")
    noise = next(x for x in mlp.values() if x.shape == (784,))
    assert mlp["keep_prob"] == 0.75 and noise.std() == pytest.approx(1, abs=0.1)


def test_classes_of_body_mass_follow_from_it() -> None:
    batch = draw("40")
    index = batch["x"][:, 0] * 100 / (batch["x"][:, 1] * 2) ** 2
    assert ((index < 18.5) == (batch["y_"].argmax(1) == 0)).all()
    assert ((index > 25.1) <= (batch["y_"].argmax(1) == 2)).all()


def test_grids_have_obstacles_and_one_goal() -> None:
    grids = draw("15")["X"]
    assert set(np.unique(grids[..., 0])) == {0.0, 1.0} and ((grids[..., 1] == 10).sum((1, 2)) == 1).all()


def test_equal_seeds_draw_equal_batches() -> None:
    first, second = draw("15", seed=4), draw("15", seed=4)
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.slow
def test_training_ends_where_the_documented_operator_fails() -> None:
    # From zeros, a step of 0.5 on bright pictures parts logits by 100 and more.
    model = model_of("18")
    white = Pictures(pixels=np.ones((2, 28, 28)), classes=np.array([3, 7]))
    bench = TrainingBench(model, "real")
    run = train_naturally(bench, model.defects[0], 1, steps=20, pictures=white)
    assert run.failing == "log" and 0 < run.steps < 20
    assert train_naturally(bench, model.defects[0], 1, steps=run.steps, pictures=white).failing == ""


def test_training_ends_where_another_operator_fails() -> None:
    # The probability of the only class is 1 long before one of the others is 0.
    model = model_of("2a")
    white = Pictures(pixels=np.ones((1, 28, 28)), classes=np.array([3]))
    bench = TrainingBench(model, "real")
    runs = [train_naturally(bench, defect, 1, steps=20, pictures=white) for defect in model.defects]
    assert [run.failing for run in runs] == ["log_not_p", "log_not_p"]
    assert 0 < runs[0].steps == runs[1].steps


@pytest.mark.slow
def test_keep_probabilities_are_held_in_real_training() -> None:
    model = model_of("48a")
    keep = {
        level: next(d.box for d in TrainingBench(model, level).task(model.defects[0]).data if d.name == "keep_prob")
        for level in ("strict", "real")
    }
    assert keep["strict"].lower < keep["strict"].upper
    assert torch.equal(keep["real"].lower, keep["real"].upper)
