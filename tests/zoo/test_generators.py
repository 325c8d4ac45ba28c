"""Generative, spatial and planning networks of the zoo compute what their equations say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch.nn import functional

from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.catalogue import model_of

Array = NDArray[Any]

LOOSE = 1e-4


def sample(name: str, *, batch: int, seed: int = 0) -> tuple[Architecture, dict[str, Array]]:
    """Return a model with an array for every input, drawn within its range, and the initial value of every weight."""
    architecture = model_of(name).architecture(batch=batch)
    rng = np.random.default_rng(seed)
    values = {t.name: numpy_helper.to_array(t) for t in architecture.model.graph.initializer}
    for v in architecture.inputs:
        drawn = (
            rng.uniform(v.low, v.high, v.shape)
            if "float" in v.dtype
            else rng.integers(int(v.low), int(v.high) + 1, v.shape)
        )
        values[v.name] = drawn.astype(v.dtype)
    return architecture, values


def compute(architecture: Architecture, values: Mapping[str, Array], tensors: Sequence[str] = ()) -> list[Array]:
    """Return tensors of a model, its outputs where none are named, with the given inputs and initializers."""
    model = onnx.ModelProto()
    model.CopyFrom(architecture.model)
    for initializer in model.graph.initializer:
        initializer.CopyFrom(numpy_helper.from_array(values[initializer.name], initializer.name))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options)
    computed: list[Array] = session.run(list(tensors) or None, {v.name: values[v.name] for v in architecture.inputs})
    return computed


def tensors(values: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    """Return arrays as float64 tensors, integers as they are."""
    return {k: torch.tensor(v, dtype=torch.float64 if v.dtype.kind == "f" else None) for k, v in values.items()}


def made_by(architecture: Architecture, operator: str, index: int = 0) -> str:
    """Return the output of one of the nodes of an operator."""
    name: str = [n.output[0] for n in architecture.model.graph.node if n.op_type == operator][index]
    return name


def test_the_spatial_transformer_interpolates_between_pixels() -> None:
    architecture, values = sample("1", batch=2)
    values |= {"keep_prob": np.ones((), np.float32), "b_loc2": np.array([0.3, 0.4, -0.2, -0.5, 0.2, 0.1], np.float32)}
    (mixed,) = compute(architecture, values, [made_by(architecture, "Sum")])
    theta = np.tanh(values["b_loc2"].astype(float)).reshape(2, 3)
    along = np.linspace(-1, 1, 40)
    for b, image in enumerate(values["x"].reshape(2, 40, 40)):
        for i, j in [(0, 0), (3, 30), (20, 20), (39, 39)]:
            x, y = (theta @ [along[j], along[i], 1] + 1) * 20
            x0, y0 = int(x), int(y)
            square = image[y0 : y0 + 2, x0 : x0 + 2].astype(float)
            expected = [y0 + 1 - y, y - y0] @ square @ [x0 + 1 - x, x - x0]
            assert mixed[b * 1600 + i * 40 + j, 0] == pytest.approx(expected, abs=LOOSE)


def test_value_iteration_plans_on_flipped_kernels() -> None:
    architecture, values = sample("15", batch=2)
    rng = np.random.default_rng(1)
    for v in architecture.weights:
        values[v.name] = rng.uniform(v.low, v.high, v.shape).astype(np.float32)
    (loss,) = compute(architecture, values)
    t = tensors(values)

    def convolve(x: torch.Tensor, *kernels: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, torch.cat(kernels, 1).flip(2, 3), padding="same")

    reward = convolve(convolve(t["X"].permute(0, 3, 1, 2), t["w0"]) + t["bias"].permute(0, 3, 1, 2), t["w1"])
    q = convolve(reward, t["w"])
    for _ in range(10):
        q = convolve(torch.cat([reward, q.amax(1, keepdim=True)], 1), t["w"], t["w_fb"])
    of_states = torch.cat([q[b, :, t["S1"][b].long(), t["S2"][b].long()].T for b in range(2)])
    expected = functional.cross_entropy(of_states @ t["w_o"], t["y"].long())
    assert float(loss) == pytest.approx(float(expected), rel=LOOSE)


def test_the_u_net_has_the_sizes_of_the_program() -> None:
    model = onnx.shape_inference.infer_shapes(model_of("17").architecture().model, data_prop=True)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.value_info}
    of_operator = {op: [shapes[n.output[0]] for n in model.graph.node if n.op_type == op] for op in ("Relu", "MaxPool")}
    down = [(16, 570), (16, 568), (32, 282), (32, 280), (64, 138), (64, 136)]
    up = [(32, 272), (32, 270), (32, 268), (16, 536), (16, 534), (16, 532), (2, 532)]
    assert of_operator["Relu"] == [[1, channels, side, side] for channels, side in down + up]
    assert of_operator["MaxPool"] == [[1, 16, 284, 284], [1, 32, 140, 140]]


@pytest.mark.parametrize("name", ["28a", "28b", "28cd"])
def test_stochastic_computing_keeps_values_and_scales(name: str) -> None:
    architecture, values = sample(name, batch=2)
    if name == "28b":
        values["w1"] = np.random.default_rng(1).normal(size=(784, 128)).astype(np.float32)
    (loss,) = compute(architecture, values)
    t = tensors(values)
    epsilon = 1e-7 if name == "28b" else 0.0
    h, scale = t["features"], torch.ones(784, dtype=torch.float64)
    for w, b, gain in (("w1", "b1", "gain1"), ("wout", "bout", "gain2")):
        columns = t[w].abs().sum(0) + epsilon
        greatest = scale.max()
        h = ((h * scale / (greatest + epsilon)) @ t[w] / columns * t[gain]).clamp(-1, 1)
        scale = greatest * columns / (t[gain] + epsilon)
        h = (h + t[b] / scale).clamp(-1, 1)
    expected = -(t["labels"] * torch.log_softmax(h * scale, -1)).sum(1).mean()
    for weight in (t[n] for n in ("w1", "wout", "b1", "bout")):
        excess = 0.5 * (weight.abs() - 1).clamp(min=0).sum()
        expected += 0.0006 * weight.square().sum() if name == "28cd" else excess
    assert float(loss) == pytest.approx(float(expected), rel=LOOSE)


@pytest.mark.parametrize("name", ["35a", "36b", "43a", "49b"])
def test_autoencoders_bound_the_evidence(name: str) -> None:
    architecture, values = sample(name, batch=2)
    (loss,) = compute(architecture, values)
    t = tensors(values)
    label = [t["y"]] if "y" in t else []

    def hidden(x: torch.Tensor, side: str) -> torch.Tensor:
        first = functional.softplus(x @ t[f"{side}_h1"] + t[f"{side}_b1"])
        return functional.softplus(first @ t[f"{side}_h2"] + t[f"{side}_b2"])

    e = hidden(torch.cat([t["x"], *label], 1), "R")
    mean, log_variance = e @ t["R_mean"] + t["R_bmean"], e @ t["R_logsig"] + t["R_blogsig"]
    z = mean + (log_variance / 2).exp() * t["eps"]
    logits = hidden(torch.cat([z, *label], 1), "G") @ t["G_mean"] + t["G_bmean"]
    pixels = functional.binary_cross_entropy_with_logits(logits, t["x"], reduction="none").sum(1)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)
    assert float(loss) == pytest.approx(float((pixels + divergence).mean()), rel=LOOSE)


@pytest.mark.parametrize(("name", "binary"), [("51", True), ("62", False)])
def test_boltzmann_machines_compare_free_energies(name: str, binary: bool) -> None:
    architecture, values = sample(name, batch=2)
    values["v_bias"] = np.linspace(-1, 1, 784, dtype=np.float32)
    data = made_by(architecture, "Cast" if binary else "Reshape")
    loss = architecture.model.graph.output[0].name
    seen = compute(architecture, values, [data, made_by(architecture, "Relu", 1), loss])
    for drawn in seen[:2] if binary else seen[1:2]:
        assert set(np.unique(drawn)) == {0.0, 1.0}
    t = tensors(values)

    def free_energy(u: Array) -> torch.Tensor:
        v = torch.tensor(u, dtype=torch.float64)
        return -(functional.softplus(v @ t["W"].T + t["h_bias"]).sum(1) + v @ t["v_bias"]).mean()

    expected = free_energy(seen[0]) - free_energy(seen[1])
    assert float(seen[2]) == pytest.approx(float(expected), rel=1e-3, abs=1e-3)


def test_samples_are_1_with_the_probability_of_the_pixel() -> None:
    architecture, values = sample("22", batch=4)
    values["image"] = np.full((4, 784), 0.9, np.float32)
    (drawn,) = compute(architecture, values, [made_by(architecture, "Cast")])
    assert drawn.mean() == pytest.approx(0.9, abs=0.03)


def test_the_adversaries_have_opposite_aims() -> None:
    architecture, values = sample("31", batch=2)
    names = [output.name for output in architecture.model.graph.output]
    judged = [made_by(architecture, "Sigmoid", i) for i in range(2)]
    of_discriminator, of_generator, real, fake = compute(architecture, values, names + judged)
    assert of_discriminator == pytest.approx(-(np.log(real) + np.log(1 - fake)).mean(), rel=LOOSE)
    assert of_generator == pytest.approx(-np.log(fake).mean(), rel=LOOSE)


def test_graph_losses() -> None:
    x = np.random.default_rng(0).uniform(0.5, 2, (3, 2)).astype(np.float32)
    (loss,) = compute(model_of("4").architecture(), {**sample("4", batch=1)[1], "x": x})
    assert float(loss) == pytest.approx(-0.5 * (1 + x - x**2 - np.log(x)).sum(1).mean(), rel=LOOSE)

    scores = np.array([2.0, 0.0, 1.0, 0.0, 3.0, 0.0], np.float32)[:, None]
    relevant = np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], np.float32)[:, None]
    (loss,) = compute(model_of("5").architecture(), {**sample("5", batch=1)[1], "y_pred": scores, "y_true": relevant})
    roots = np.sqrt(np.exp([2.0, 3.0]) / np.exp([[2, 0, 1], [0, 3, 0]]).sum(1))
    assert float(loss) == pytest.approx(-roots.mean(), rel=LOOSE)

    attributes = np.array([0.5, 1.5, 2.0, 0.2, 0.3, 0.4], np.float32)
    values = {**sample("13", batch=1)[1], "edge_attr": attributes, "index": np.array([0, 0, 0, 1, 1, 1])}
    (out,) = compute(model_of("13").architecture(), values)
    logs = np.log(attributes).reshape(2, 3)
    assert out == pytest.approx((logs / logs.sum(1, keepdims=True)).ravel(), rel=LOOSE)
