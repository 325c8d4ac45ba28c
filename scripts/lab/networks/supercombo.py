"""A small version of supercombo, the driving model of openpilot."""

from typing import Any

import numpy as np
import onnx

from lab.networks.builder import NetworkBuilder, draw_weights, make_generator
from ranum_falsify.model_builder import Tensor

__all__ = ["mini_supercombo"]

STATE = 64
FEATURES = 64
TRUNK = 32
# Values per head; a "weight" picks between hypotheses, the other values come as mean and deviation.
PLAN, LANES, EDGES, POSE, DESIRES, META = 33, 16, 8, 6, 8, 10
LEADS = 8
# Deviations before the Relu spread by about 3 around this at random inputs, and by 12 at chosen ones.
DEVIATION_BIAS = 8.0
OUTPUTS = 2 * (PLAN + LANES + EDGES + POSE) + DESIRES + META + 3 * LEADS + STATE


class _Supercombo:
    """The parts of the network; all of them draw their weights from one generator."""

    def __init__(self) -> None:
        # Opset 12 is what such models are exported with: the sizes of a Split are an attribute.
        summary = "Two camera frames and a recurrent state to plan, lanes, lead, pose and desire."
        self.g = NetworkBuilder("mini_supercombo", summary, opset=12)
        self.rng = make_generator(8)

    def dense(self, tensor: Tensor, n_in: int, n_out: int, name: str, bias: float = 0.0) -> Tensor:
        """Add a Gemm with random weights; ``bias`` is the mean of its bias."""
        weights = draw_weights(self.rng, (n_in, n_out), n_in, 1.4)
        return self.g.dense(tensor, weights, bias + draw_weights(self.rng, (n_out,), 1, 0.1), name)

    def convolution(self, tensor: Tensor, n_in: int, n_out: int, kernel: int, name: str) -> Tensor:
        """Add a convolution and its Elu; kernels of 3 halve height and width."""
        weights = draw_weights(self.rng, (n_out, n_in, kernel, kernel), n_in * kernel**2, 1.4)
        operands = (
            self.g.weight(f"{name}_W", weights),
            self.g.weight(f"{name}_b", draw_weights(self.rng, (n_out,), 1, 0.1)),
        )
        layer = self.g.node(
            "Conv",
            tensor,
            *operands,
            name=name,
            kernel_shape=[kernel] * 2,
            strides=[1 if kernel == 1 else 2] * 2,
            pads=[kernel // 2] * 4,
        )
        return self.g.node("Elu", layer, name=f"{name}_elu")

    def backbone(self, images: Tensor) -> Tensor:
        """Reduce the images, ``(1, 12, 32, 64)``, to ``(1, FEATURES)``."""
        # Centred pixels: otherwise the mean brightness would outweigh what the picture shows.
        g = self.g
        tensor = g.node("Sub", images, g.weight("pixel_mean", 0.5), name="centre")
        tensor = g.node("Mul", tensor, g.weight("pixel_scale", 2.0), name="rescale")
        for index, (n_in, n_out) in enumerate(((12, 16), (16, 24), (24, 32)), start=1):
            tensor = self.convolution(tensor, n_in, n_out, 3, f"conv{index}")
        tensor = self.convolution(tensor, 32, 8, 1, "conv4")
        flat = g.node("Flatten", tensor, name="flatten", axis=1)
        return g.node("Elu", self.dense(flat, 8 * 4 * 8, FEATURES, "features"), name="features_elu")

    def gru(self, tensor: Tensor, width: int, state: Tensor) -> Tensor:
        """Add a gated recurrent unit (Cho et al. 2014) spelled out; returns the new state."""
        g, gates = self.g, ("reset", "update", "new")
        given = self.dense(tensor, width, 3 * STATE, "gru_input")
        kept = self.dense(state, STATE, 3 * STATE, "gru_state")
        sizes = [STATE] * 3
        x_r, x_z, x_n = g.split(given, name="gru_input_split", parts=gates, axis=1, split=sizes)
        h_r, h_z, h_n = g.split(kept, name="gru_state_split", parts=gates, axis=1, split=sizes)
        r = g.node("Sigmoid", g.node("Add", x_r, h_r, name="gru_reset"), name="gru_reset_sigmoid")
        z = g.node("Sigmoid", g.node("Add", x_z, h_z, name="gru_update"), name="gru_update_sigmoid")
        memory = g.node("Mul", r, h_n, name="gru_memory")
        n = g.node("Tanh", g.node("Add", x_n, memory, name="gru_new"), name="gru_new_tanh")
        change = g.node("Sub", state, n, name="gru_change")
        return g.node("Add", n, g.node("Mul", z, change, name="gru_keep"), name="gru_next_state")

    def trunk(self, state: Tensor, name: str) -> Tensor:
        """Add the hidden layer of a head."""
        layer = self.dense(state, STATE, TRUNK, f"{name}_hidden")
        return self.g.node("Elu", layer, name=f"{name}_elu")

    def regression_head(self, state: Tensor, size: int, name: str) -> Tensor:
        """Add a head of means and log-deviations, ``(1, 2 * size)``; no input makes it fail."""
        return self.dense(self.trunk(state, name), TRUNK, 2 * size, name)

    def class_head(self, state: Tensor, size: int, name: str, activation: str) -> Tensor:
        """Add a head of ``size`` probabilities by Softmax or Sigmoid."""
        attributes: dict[str, Any] = {"axis": 1} if activation == "Softmax" else {}
        logits = self.dense(self.trunk(state, name), TRUNK, size, name)
        return self.g.node(activation, logits, name=f"{name}_{activation.lower()}", **attributes)

    def lead_head(self, state: Tensor) -> Tensor:
        """Add the head with the defect: only the deviations are rectified and then logged."""
        g = self.g
        # The bias keeps deviations positive at ordinary inputs; training would have done the same.
        bias = np.repeat([0.0, DEVIATION_BIAS, 0.0], LEADS)
        weights = draw_weights(self.rng, (TRUNK, 3 * LEADS), TRUNK, 1.4)
        layer = g.dense(self.trunk(state, "lead"), weights, bias, "lead")
        parts = ("mean", "deviation", "weight")
        mean, deviation, weight = g.split(layer, name="lead_split", parts=parts, axis=1, split=[LEADS] * 3)
        rectified = g.node("Relu", deviation, name="lead_deviation_relu")
        log_deviation = g.node("Log", rectified, name="lead_deviation_log")
        share = g.node("Softmax", weight, name="lead_weight_softmax", axis=1)
        return g.node("Concat", mean, log_deviation, share, name="lead_concat", axis=1)


def mini_supercombo() -> onnx.ModelProto:
    """A small driving model: convolutions, a GRU written out, seven heads, one output vector.

    The deviations of the lead head go through ``Log(Relu(.))``. They are positive at ordinary inputs
    and can be driven to 0; neither the means nor the weights of the same Split can do harm.
    """
    m = _Supercombo()
    g = m.g
    images = g.input("input_imgs", (1, 12, 32, 64), 0, 1)
    desire = g.input("desire", (1, DESIRES), 0, 1)
    traffic = g.input("traffic_convention", (1, 2), 0, 1)
    state = g.input("initial_state", (1, STATE), -1, 1)
    seen = g.node("Concat", m.backbone(images), desire, traffic, name="context", axis=1)
    state = m.gru(seen, FEATURES + DESIRES + 2, state)
    heads = [
        m.regression_head(state, PLAN, "plan"),
        m.regression_head(state, LANES, "lane_lines"),
        m.regression_head(state, EDGES, "road_edges"),
        m.lead_head(state),
        m.regression_head(state, POSE, "pose"),
        m.class_head(state, DESIRES, "desire_state", "Softmax"),
        m.class_head(state, META, "meta", "Sigmoid"),
    ]
    g.output(g.node("Concat", *heads, state, name="outputs_concat", axis=1, out="outputs"), (1, OUTPUTS))
    g.hazard("lead_deviation_log", "inputs that drive a deviation of the lead head below 0")
    return g.build()
