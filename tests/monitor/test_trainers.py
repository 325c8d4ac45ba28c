"""The watch under trainers of others, where these are installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ranum_falsify as rf

STEPS = 40


class Likelihood(nn.Module):
    """A loss whose exponential overflows after some steps of 50 times the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        precision = torch.exp(-self.log_variance)
        return {"loss": 0.5 * (self.log_variance + precision * (labels - 0 * x) ** 2).mean()}


BATCHES = [{"x": torch.ones(4), "labels": torch.zeros(4)} for _ in range(STEPS)]


def check_failure(error: rf.NonFiniteError, watch: rf.Watch) -> None:
    assert "exp gives infinity" in str(error) and "test_trainers.py" in str(error)
    assert watch.failure is not None and watch.failure.step < STEPS
    assert any("exp at" in text for _, text in watch.warned)


@pytest.mark.filterwarnings("ignore")
def test_a_run_of_lightning_is_stopped_and_its_step_repeated(tmp_path: Path) -> None:
    lightning: Any = pytest.importorskip("pytorch_lightning")

    class Trained(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Likelihood()

        def training_step(self, batch: dict[str, Tensor], number: int) -> Tensor:
            loss: Tensor = self.inner(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 50.0)

    module = Trained()
    with pytest.raises(rf.NonFiniteError) as caught, rf.watch(module, every=5, folder=tmp_path, mend=0) as watch:
        trainer = lightning.Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            default_root_dir=tmp_path,
            callbacks=[watch.lightning_callback()],
        )
        trainer.fit(module, torch.utils.data.DataLoader(BATCHES, batch_size=1))  # type: ignore[arg-type]
    check_failure(caught.value, watch)


@pytest.mark.filterwarnings("ignore")
def test_a_run_of_hugging_face_is_stopped(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    transformers: Any = importlib.import_module("transformers")
    module = Likelihood()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=1,
        num_train_epochs=1,
        learning_rate=50.0,
        optim="sgd",
        report_to=[],
        use_cpu=True,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
    )
    with pytest.raises(rf.NonFiniteError) as caught, rf.watch(module, every=5, folder=tmp_path, mend=0) as watch:
        transformers.Trainer(module, arguments, train_dataset=BATCHES).train()
    check_failure(caught.value, watch)
