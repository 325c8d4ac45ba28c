"""Real models, repaired: the repaired ones hold, and do on sound what the original does."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ranum_falsify as rf

MODELS = Path(__file__).resolve().parents[2] / "models"
PITCH = """
from dnnv.properties import *
from ranum_falsify.properties import *

N = Network("N")
box = And(-1 <= audio <= 1, 0 <= fmin <= 8000, 0 <= fmax <= 8000)
Forall(audio, Forall(fmin, Forall(fmax, Implies(box, no_invalid_input(N(audio, fmin, fmax))))))
"""


@pytest.mark.slow
@pytest.mark.skipif(not (MODELS / "swift-f0").is_dir(), reason="scripts/fetch_models fetches it")
def test_a_band_without_a_bin_gives_no_nan() -> None:
    path = MODELS / "swift-f0" / "model.onnx"
    model = rf.load_model(path, dims={"samples": 4000})
    repair = rf.fix(model, PITCH, by="guard", samples=2, n_starts=2, self_check=False)[0]
    assert repair.standing == "proved"
    assert [change.node for change in repair.changes] == ["Softmax_v452"]
    time = np.arange(4000, dtype=np.float32) / 16000
    tone = np.sin(2 * np.pi * 220 * time, dtype=np.float32)[None]
    before, after = (run(proto, tone, 50, 2000) for proto in (onnx.load(path), repair.model))
    assert all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))
    assert all(np.isfinite(output).all() for output in run(repair.model, tone, 3000, 50))


def run(model: onnx.ModelProto, audio: np.ndarray, fmin: float, fmax: float) -> list[np.ndarray]:
    """Run the pitch detector."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds: dict[str, np.ndarray] = {}
    for value, array in zip(session.get_inputs(), (audio, fmin, fmax), strict=True):
        feeds[value.name] = np.asarray(array, np.float32).reshape(
            [d if isinstance(d, int) else -1 for d in value.shape]
        )
    found: list[np.ndarray] = session.run(None, feeds)
    return found
