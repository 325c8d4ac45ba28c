"""The small networks: built the same everywhere, sane at ordinary inputs, failing where they say."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.networks.probing import Feed, Probe, descend, metadata

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "networks"
FILES = sorted(FOLDER.glob("*.onnx"))
NAMES = [file.stem for file in FILES]


def _path(name: str) -> Path:
    return FOLDER / f"{name}.onnx"


def _ordinary(name: str, **changes: np.ndarray) -> Feed:
    return {**Probe(_path(name)).random_feed(seed=0), **changes}


def _softmax_trigger() -> Feed:
    weights = Probe(_path("softmax_regression")).constants["W"]
    image = (weights[:, 3] > weights[:, 5]).astype(np.float32)
    return {"x": image[None], "y": np.eye(10, dtype=np.float32)[:1]}


def _silent_frame() -> Feed:
    audio = _ordinary("log_mel")["audio"]
    audio[0, 64:192] = 0.0
    return {"audio": audio}


def _masked_row() -> Feed:
    feed = _ordinary("masked_attention")
    feed["mask"][0, 5] = 0.5
    return feed


def _equal_pair() -> Feed:
    x = _ordinary("split_forms")["x"]
    x[0, 6] = x[0, 2]
    return {"x": x}


TRIGGERS: dict[tuple[str, str], Callable[[], Feed]] = {
    ("softmax_regression", "log"): _softmax_trigger,
    ("vae", "log_p"): lambda: descend(_path("vae"), "pixels_out", 1.0),
    ("vae", "log_not_p"): lambda: descend(_path("vae"), "pixels_out", -1.0),
    ("l2_normalise", "normalise_div"): lambda: {"x": np.zeros((1, 8), np.float32)},
    ("layer_norm_no_epsilon", "normalise_div"): lambda: {"x": np.full((1, 16), 1.5, np.float32)},
    ("log_mel", "log"): _silent_frame,
    ("masked_attention", "attention_softmax"): _masked_row,
    ("mini_supercombo", "lead_deviation_log"): lambda: descend(_path("mini_supercombo"), "lead_split_deviation", 1.0),
    ("split_forms", "ratio_div"): _equal_pair,
}
# These need other weights than the file has, as the property vocabulary's `free` allows.
FREE_TRIGGERS = {("vae", "std_exp"), ("vae", "variance_exp")}
SAFE_TWINS = {
    "softmax_regression": "softmax_regression_safe",
    "l2_normalise": "l2_normalise_safe",
    "layer_norm_no_epsilon": "layer_norm_safe",
    "log_mel": "log_mel_safe",
    "masked_attention": "masked_attention_safe",
}


def test_regenerating_gives_the_same_bytes(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "make_networks.py"
    subprocess.run([sys.executable, str(script), "--output", str(tmp_path)], check=True)
    made = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    kept = {file.name: file.read_bytes() for file in FOLDER.iterdir()}
    assert sorted(made) == sorted(kept)
    assert [name for name in made if made[name] != kept[name]] == []


def test_the_folder_is_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 1_000_000


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_model_is_valid_and_describes_itself(file: Path) -> None:
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    assert model.producer_name == "ranum-falsify scripts/make_networks.py"
    assert model.graph.name == file.stem
    names = [node.name for node in model.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)
    assert set(metadata(model, "box:")) == {tensor.name for tensor in model.graph.input}
    assert set(metadata(model, "hazard:")) <= set(names)


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_ordinary_inputs_give_finite_outputs(file: Path) -> None:
    probe = Probe(file)
    for seed in range(10):
        feed = probe.random_feed(seed)
        assert probe.invalid_nodes(feed) == []
        for output in probe.model.graph.output:
            value = probe.tensors(feed)[output.name]
            assert value.shape == tuple(d.dim_value for d in output.type.tensor_type.shape.dim)
            assert np.isfinite(value).all()


def test_every_documented_hazard_is_tested() -> None:
    documented = {(file.stem, node) for file in FILES for node in metadata(onnx.load(file), "hazard:")}
    assert documented == set(TRIGGERS) | FREE_TRIGGERS


@pytest.mark.parametrize(("name", "node"), TRIGGERS, ids=lambda text: text)
def test_hazard_is_real_and_reaches_an_output(name: str, node: str) -> None:
    probe, feed = Probe(_path(name)), TRIGGERS[name, node]()
    for key, (_, low, high) in probe.box.items():
        assert low <= feed[key].min() <= feed[key].max() <= high
    invalid = probe.invalid_nodes(feed)
    assert node in invalid
    assert invalid[0] in metadata(probe.model, "hazard:")
    assert any(not np.isfinite(value).all() for value in probe.outputs(feed).values())


@pytest.mark.parametrize(("name", "twin"), SAFE_TWINS.items(), ids=lambda text: text)
def test_safe_twin_stays_finite_at_the_trigger(name: str, twin: str) -> None:
    probe = Probe(_path(twin))
    for (network, _), trigger in TRIGGERS.items():
        if network == name:
            assert probe.invalid_nodes(trigger()) == []
            assert all(np.isfinite(value).all() for value in probe.outputs(trigger()).values())


@pytest.mark.parametrize(("name", "twin"), SAFE_TWINS.items(), ids=lambda text: text)
def test_safe_twin_agrees_at_ordinary_inputs(name: str, twin: str) -> None:
    probe, safe = Probe(_path(name)), Probe(_path(twin))
    feed = probe.random_feed(seed=3)
    expected, actual = probe.outputs(feed), safe.outputs(feed)
    for key in expected:
        np.testing.assert_allclose(actual[key], expected[key], rtol=2e-4, atol=1e-5)


def test_softmax_underflow_turns_the_loss_into_nan() -> None:
    probe, feed = Probe(_path("softmax_regression")), _softmax_trigger()
    tensors = probe.tensors(feed)
    assert (tensors["softmax_out"] == 0.0).any()
    assert np.isneginf(tensors["log_out"]).any()
    assert np.isnan(tensors["cross_entropy"]).all()


def test_free_encoder_weights_overflow_both_exponentials() -> None:
    feed = _ordinary("vae")
    wild = Probe(_path("vae"), {"logvar_W": np.full((32, 8), 50.0, np.float32)})
    assert {node for _, node in FREE_TRIGGERS} <= set(wild.invalid_nodes(feed))


def test_only_one_part_of_the_lead_head_fails() -> None:
    probe = Probe(_path("mini_supercombo"))
    tensors = probe.tensors(TRIGGERS["mini_supercombo", "lead_deviation_log"]())
    broken = {name for name, value in tensors.items() if not np.isfinite(value).all()}
    assert broken == {"lead_deviation_log_out", "lead_concat_out", "outputs"}
    reads = {name for node in probe.model.graph.node for name in node.input}
    assert {"lead_split_mean", "lead_split_deviation", "lead_split_weight"} <= reads


def test_supercombo_hazard_needs_a_search() -> None:
    probe = Probe(_path("mini_supercombo"))
    rng = np.random.default_rng(0)
    for _ in range(30):
        corner = {
            name: np.where(rng.random(shape) < 0.5, low, high).astype(np.float32)
            for name, (shape, low, high) in probe.box.items()
        }
        assert probe.invalid_nodes(corner) == []


def test_mlp_classifier_reads_digits_and_can_be_fooled() -> None:
    probe = Probe(_path("mlp_classifier"))
    three = np.load(FOLDER / "digit_three.npy")
    rows = ("01110", "10001", "10001", "01110", "10001", "10001", "01110")
    eight = np.zeros((8, 8), np.float32)
    eight[:7, 1:6] = [[float(bit) for bit in row] for row in rows]
    eight = eight.reshape(1, 64)

    def answer(blend: float) -> int:
        x = (three + blend * (eight - three)).astype(np.float32)
        return int(probe.outputs({"x": x})["y"].argmax())

    assert answer(0.0) == 3
    assert answer(0.3) == 3
    assert answer(0.7) == 8
    assert answer(1.0) == 8


def test_classifiers_differ_only_where_they_should() -> None:
    first, second = Probe(_path("classifier_a")), Probe(_path("classifier_b"))
    for seed in range(20):
        feed = first.random_feed(seed)
        feed["x"][0, :4] = np.minimum(feed["x"][0, :4], 0.6)
        np.testing.assert_allclose(first.outputs(feed)["y"], second.outputs(feed)["y"], atol=1e-5)
        feed["x"][0, :4] = 0.9
        difference = second.outputs(feed)["y"] - first.outputs(feed)["y"]
        np.testing.assert_allclose(difference, [[1.1, -1.1, 0.0, 0.0]], atol=1e-5)
