"""Divisions by a norm, a deviation and a difference."""

import onnx

from lab.networks.builder import NetworkBuilder, draw_weights, make_generator
from ranum_falsify.model_builder import Tensor

__all__ = [
    "l2_normalise",
    "l2_normalise_safe",
    "layer_norm_no_epsilon",
    "layer_norm_safe",
    "split_forms",
]

FEATURES, EMBEDDING, WIDTH = 8, 16, 16


def l2_normalise() -> onnx.ModelProto:
    """An embedding divided by its Euclidean norm: 0/0 at the zero embedding only."""
    g = NetworkBuilder("l2_normalise", "A linear embedding divided by its Euclidean norm.")
    embedding, norm = _embedding_and_norm(g)
    g.output(g.node("Div", embedding, norm, name="normalise_div", out="y"), (1, EMBEDDING))
    g.hazard("normalise_div", "x = 0, or so small (about 1e-23) that every square underflows")
    return g.build()


def l2_normalise_safe() -> onnx.ModelProto:
    """``l2_normalise`` with the norm kept above 1e-6."""
    g = NetworkBuilder("l2_normalise_safe", "l2_normalise with the norm kept above 1e-6.")
    embedding, norm = _embedding_and_norm(g)
    floored = g.node("Max", norm, g.weight("floor", 1e-6), name="norm_floor")
    g.output(g.node("Div", embedding, floored, name="normalise_div", out="y"), (1, EMBEDDING))
    return g.build()


def _embedding_and_norm(g: NetworkBuilder) -> tuple[Tensor, Tensor]:
    # More columns than rows: the embedding vanishes for x = 0 alone.
    weights = draw_weights(make_generator(4), (FEATURES, EMBEDDING), FEATURES)
    x = g.input("x", (1, FEATURES), -1, 1)
    embedding = g.node("MatMul", x, g.weight("W", weights), name="embedding")
    squares = g.node("Mul", embedding, embedding, name="squares")
    total = g.reduce_sum(squares, 1, "sum_of_squares", keepdims=1)
    return embedding, g.node("Sqrt", total, name="norm_sqrt")


def layer_norm_no_epsilon() -> onnx.ModelProto:
    """A hand-written layer norm without epsilon: 0/0 for constant inputs."""
    g = NetworkBuilder("layer_norm_no_epsilon", "Layer norm written by hand, without epsilon.")
    centred, variance = _centred_and_variance(g)
    _normalise(g, centred, variance)
    g.hazard("normalise_div", "a constant input whose mean is computed exactly, such as 1.5: variance 0")
    return g.build()


def layer_norm_safe() -> onnx.ModelProto:
    """``layer_norm_no_epsilon`` with the usual epsilon of 1e-5 added to the variance."""
    g = NetworkBuilder("layer_norm_safe", "Layer norm written by hand, with epsilon 1e-5.")
    centred, variance = _centred_and_variance(g)
    _normalise(g, centred, g.node("Add", variance, g.weight("epsilon", 1e-5), name="variance_add"))
    return g.build()


def _centred_and_variance(g: NetworkBuilder) -> tuple[Tensor, Tensor]:
    x = g.input("x", (1, WIDTH), -5, 5)
    mean = g.node("ReduceMean", x, name="mean", axes=[-1], keepdims=1)
    centred = g.node("Sub", x, mean, name="centred")
    squares = g.node("Pow", centred, g.weight("two", 2.0), name="squares")
    return centred, g.node("ReduceMean", squares, name="variance", axes=[-1], keepdims=1)


def _normalise(g: NetworkBuilder, centred: Tensor, variance: Tensor) -> None:
    rng = make_generator(5)
    deviation = g.node("Sqrt", variance, name="deviation_sqrt")
    normal = g.node("Div", centred, deviation, name="normalise_div")
    scale = g.weight("gamma", 1.0 + draw_weights(rng, (WIDTH,), 1, 0.1))
    shift = g.weight("beta", draw_weights(rng, (WIDTH,), 1, 0.1))
    scaled = g.node("Mul", normal, scale, name="scale_mul")
    g.output(g.node("Add", scaled, shift, name="shift_add", out="y"), (1, WIDTH))


def split_forms() -> onnx.ModelProto:
    """Three forms of Split in one network with two outputs, one of which divides by a difference.

    Sizes as an input; ``num_outputs`` that does not divide the axis (7 = 3 + 3 + 1); one part only.
    """
    g = NetworkBuilder("split_forms", "Split with sizes, with num_outputs, with one part.", opset=18)
    x = g.input("x", (1, 7), -1, 1)
    sizes = g.indices("sizes", [2, 1, 4])
    head, middle, tail = g.split(x, sizes, name="split_sizes", parts=["head", "middle", "tail"], axis=1)
    parts = ["first", "second", "rest"]
    first, second, rest = g.split(x, name="split_number", parts=parts, axis=-1, num_outputs=3)
    (whole,) = g.split(x, name="split_one", parts=["whole"], axis=1, num_outputs=1)
    difference = g.node("Sub", middle, rest, name="difference")
    ratio = g.node("Div", head, difference, name="ratio_div")
    smooth = g.node("Tanh", tail, name="tail_tanh")
    g.output(g.node("Concat", ratio, smooth, name="concat", axis=1, out="y"), (1, 6))
    product = g.node("Mul", first, second, name="product")
    g.output(g.node("Concat", product, whole, name="concat_products", axis=1, out="z"), (1, 10))
    g.hazard("ratio_div", "x[2] = x[6], so that the divisor cancels to 0")
    return g.build()
