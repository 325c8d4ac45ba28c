"""Real models from packages: each reads, torch agrees with ONNX Runtime, known defects are found and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from ranum_falsify.config import ProveConfig, SearchConfig
from ranum_falsify.network import Graph, read
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.verify.replay.replayer import Replayer
from ranum_falsify.verify.search.converter import convert
from ranum_falsify.verify.search.result import Answer, OperatorResult
from tests.properties.properties_kit import problem
from tests.verify.search.search_kit import valid_in_box

Array = NDArray[Any]
Fetch = Callable[[str, str], Path]

MODELS: dict[tuple[str, str], dict[str, int]] = {
    ("basic-pitch", "nmp.onnx"): {},
    ("magika", "model.onnx"): {},
    ("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx"): {
        "p2o.DynamicDimension.1": 64,
        "p2o.DynamicDimension.2": 64,
    },
    ("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx"): {"x:2": 48, "p2o.DynamicDimension.1": 64},
    ("rapidocr-onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx"): {"x:0": 1, "x:2": 48, "x:3": 192},
    ("silero-vad", "silero_vad.onnx"): {"input:0": 1, "input:1": 576, "state:1": 1},
    ("silero-vad", "silero_vad_16k_op15.onnx"): {"sequence": 576},
    ("silero-vad", "silero_vad_16k_sequence.onnx"): {"sequence_length": 2},
    ("silero-vad", "silero_vad_half.onnx"): {"sequence": 576},
    ("silero-vad", "silero_vad_op18_ifless.onnx"): {"sequence": 576},
    ("silero-vad", "silero_vad_openvino_16k.onnx"): {},
    ("speechmos", "Run_1663829550_Stage_0.onnx"): {"frames": 64},
    ("speechmos", "Run_1663915512_Stage_0.onnx"): {"frames": 64},
    ("speechmos", "Run_1668423760_Stage_0.onnx"): {"frames": 64},
    ("speechmos", "bak_ovr.onnx"): {},
    ("speechmos", "model_v8.onnx"): {},
    ("speechmos", "personalized_sig_bak_ovr.onnx"): {},
    ("speechmos", "plcmos_v2.onnx"): {"frames": 64},
    ("speechmos", "sig.onnx"): {},
    ("speechmos", "sig_bak_ovr.onnx"): {},
    ("swift-f0", "model.onnx"): {"samples": 4000},
}
RATE = np.array(16000, np.int64)
pytestmark = pytest.mark.usefixtures("one_thread")

# Inputs of models that steer which branch runs; the other branch fits no signal of this length.
FIXED: dict[tuple[str, str], Mapping[str, Array]] = {
    ("silero-vad", name): {"sr": RATE} for name in ("silero_vad.onnx", "silero_vad_op18_ifless.onnx")
}
NATURAL = {"fmin": 65.0, "fmax": 2000.0, "sr": 16000}


def draw(graph: Graph) -> dict[str, Array]:
    """Return ordinary inputs: a signal in [-1, 1], bytes, and rates and bands that make sense."""
    generator = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for name, details in zip(graph.input_names, graph.input_details, strict=True):
        if name in NATURAL:
            feeds[name] = np.full(details.shape, NATURAL[name], details.dtype)
        elif np.issubdtype(details.dtype, np.floating):
            feeds[name] = np.asarray(generator.uniform(-1, 1, details.shape)).astype(details.dtype)
        else:
            feeds[name] = np.asarray(generator.integers(0, 256, details.shape)).astype(details.dtype)
    return feeds


def test_the_cache_holds_nothing_else(repository: Path) -> None:
    """But for packages that `scripts/fetch_models --all` adds."""
    folder, packages = repository / "models", {package for package, _ in MODELS}
    fetched = {(file.parent.name, file.name) for file in folder.glob("*/*.onnx") if file.parent.name in packages}
    if not fetched:
        pytest.skip("models/ is empty; run scripts/fetch_models")
    assert fetched <= MODELS.keys()


@pytest.mark.few(1)
@pytest.mark.parametrize("key", MODELS, ids="/".join)
def test_model_reads_and_torch_agrees_with_onnx_runtime(key: tuple[str, str], fetched_model: Fetch) -> None:
    path = fetched_model(*key)
    graph = read(path, dims=MODELS[key], fixed=FIXED.get(key))
    feeds = draw(graph)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    theirs = session.run(list(graph.output_names), {**feeds, **FIXED.get(key, {})})
    with torch.no_grad():
        ours = convert(graph)(*(to_torch(x) for x in feeds.values()))
    for mine, other in zip(ours, theirs, strict=True):
        assert np.isfinite(other).all()
        np.testing.assert_allclose(to_numpy(mine), other, rtol=2e-3, atol=2e-4 * max(1.0, float(np.abs(other).max())))


def search(reduced: Problem, **config: Any) -> Answer:
    settings = {"n_starts": 8, "n_steps": 3, "timeout": 40.0, "processors": 1, "prove": False} | config
    return falsify(reduced, SearchConfig(**settings))


def violated(result: Answer) -> list[OperatorResult]:
    return [operator for operator in result.operators if operator.verdict == "violated"]


def assert_replays(path: Path, operator: OperatorResult) -> None:
    assert operator.counterexample is not None
    with Replayer(path) as replayer:
        findings = replayer.run(operator.counterexample.feeds).findings
    assert (operator.op_type, operator.reach) in {(finding.op_type, finding.reach) for finding in findings}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "key",
    [key for key in MODELS if key[0] == "silero-vad" or key[1].startswith(("Run_", "bak_ovr"))],
    ids="/".join,
)
def test_models_of_speech_are_proved_on_sound_in_its_usual_range(key: tuple[str, str], fetched_model: Fetch) -> None:
    graph = read(fetched_model(*key), dims=MODELS[key], fixed=FIXED.get(key))
    bounds = {"f": (-1, 1), "i": (16000, 16000)}
    reduced = valid_in_box(graph, [bounds[details.dtype.kind] for details in graph.input_details])
    proof = Prover(reduced, ProveConfig()).analyse()
    assert proof.operators and all(operator.proved for operator in proof.operators.values())
    assert proof.holds


@pytest.mark.slow
def test_swift_f0_has_no_pitch_in_a_band_between_its_bins(fetched_model: Fetch) -> None:
    path = fetched_model("swift-f0", "model.onnx")
    bounds = "And(-1 <= audio <= 1, 0 <= fmin <= 8000, 0 <= fmax <= 8000)"
    text = f"Forall(audio, Forall(fmin, Forall(fmax, Implies({bounds}, no_invalid_input(N(audio, fmin, fmax))))))"
    # The defect does not depend on the length of the signal.
    reduced = problem(text, networks={"N": read(path, dims={"samples": 1000})})
    softmax = violated(search(reduced, timeout=10.0))[0]
    assert (softmax.op_type, softmax.kind, softmax.reach) == ("Softmax", "nan", "output")
    assert_replays(path, softmax)


@pytest.mark.slow
@pytest.mark.parametrize("only", [', only=["Div"]', pytest.param("", marks=pytest.mark.slow)])
def test_basic_pitch_divides_silence_by_silence_behind_a_where(only: str, fetched_model: Fetch) -> None:
    path = fetched_model("basic-pitch", "nmp.onnx")
    text = f"Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x){only})))"
    reduced = problem(text, networks={"N": read(path)})
    (div,) = violated(search(reduced, n_starts=2, n_steps=0, timeout=150.0))
    assert (div.op_type, div.kind, div.reach) == ("Div", "nan", "masked")
    assert div.counterexample is not None
    (signal,) = div.counterexample.inputs.values()
    assert len(np.unique(signal)) == 1
    assert_replays(path, div)
    assert violated(search(reduced, n_starts=2, n_steps=0, timeout=4.0, fail_on="output")) == []


@pytest.mark.slow
def test_speechmos_is_guarded(fetched_model: Fetch) -> None:
    path = fetched_model("speechmos", "sig_bak_ovr.onnx")
    text = "Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))"
    result = search(problem(text, networks={"N": read(path)}), n_starts=2, timeout=5.0)
    assert (result.verdict, violated(result), result.unconfirmed) == ("unknown", [], ())
