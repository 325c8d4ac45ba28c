"""Operators that ONNX Runtime's optimiser puts in the place of several of ONNX."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread

DOMAIN = "com.microsoft"
INF = np.inf
ROW = np.array([-INF, -3.4e38, -100, -20, -1e-3, 0, 1e-3, 20, 100, 3.4e38, INF], np.float32)
FINITE = ROW[2:-2]

ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": (0.3,),
    "HardSigmoid": (0.3, 0.4),
}
CONV_ACTIVATIONS = ACTIVATIONS | {"Clip": (-0.5, 0.75)}
GEMM_ACTIVATIONS = ACTIVATIONS | {
    "Elu": (1.5,),
    "Softplus": (),
    "Softsign": (),
    "ThresholdedRelu": (0.5,),
}


def convolutions() -> Iterator[OperatorCase]:
    x, w, b = Spread((1, 2, 5, 4)), Spread((4, 2, 3, 2)), Spread((4,))
    for activation, parameters in CONV_ACTIVATIONS.items():
        attributes: dict[str, Any] = {"activation": activation}
        if parameters:
            attributes["activation_params"] = parameters
        yield OperatorCase(op_type="FusedConv", inputs=[x, w, b], attributes=attributes, name=activation, domain=DOMAIN)
    relu = {"activation": "Relu"}
    yield OperatorCase(op_type="FusedConv", inputs=[x, w], attributes=relu, name="no bias", domain=DOMAIN)
    yield OperatorCase(op_type="FusedConv", inputs=[x, w, b], name="no activation", domain=DOMAIN)
    yield OperatorCase(
        op_type="FusedConv",
        inputs=[x, w, b, Spread((1, 4, 3, 3))],
        attributes=relu,
        name="with a sum",
        domain=DOMAIN,
    )
    geometry = {"strides": [2, 1], "pads": [1, 0, 0, 2], "dilations": [1, 2], "group": 2}
    yield OperatorCase(
        op_type="FusedConv",
        inputs=[x, Spread((4, 1, 3, 2)), b],
        attributes=relu | geometry,
        name="geometry",
        domain=DOMAIN,
    )
    yield OperatorCase(
        op_type="FusedConv",
        inputs=[Spread((1, 2, 6)), Spread((3, 2, 3))],
        attributes=relu | {"auto_pad": "SAME_UPPER"},
        name="one axis",
        domain=DOMAIN,
    )


def gemms() -> Iterator[OperatorCase]:
    a, b, c = Spread((3, 4)), Spread((4, 5)), Spread((5,))
    for activation, parameters in GEMM_ACTIVATIONS.items():
        attributes: dict[str, Any] = {"activation": activation}
        attributes |= {f"activation_{n}": p for n, p in zip(("alpha", "beta"), parameters, strict=False)}
        yield OperatorCase(op_type="FusedGemm", inputs=[a, b, c], attributes=attributes, name=activation, domain=DOMAIN)
    yield OperatorCase(
        op_type="FusedGemm",
        inputs=[a, b, c],
        attributes={"activation": "Selu", "activation_alpha": 2.0, "activation_gamma": 0.5},
        name="Selu",
        domain=DOMAIN,
    )
    yield OperatorCase(
        op_type="FusedGemm",
        inputs=[Spread((4, 3)), Spread((5, 4)), Spread((3, 5))],
        attributes={"activation": "Relu", "transA": 1, "transB": 1, "alpha": 0.5, "beta": -2.0},
        name="scaled",
        domain=DOMAIN,
    )
    yield OperatorCase(
        op_type="FusedGemm", inputs=[a, b], attributes={"activation": "Tanh"}, name="no bias", domain=DOMAIN
    )


def products() -> Iterator[OperatorCase]:
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
        "matrices": ((3, 4), (4, 5), {"alpha": 0.25}),
        "plain": ((2, 3, 4), (4, 5), {}),
        "transposed": ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1, "alpha": -1.5}),
        "batch behind": ((3, 2, 4), (2, 4, 5), {"transBatchA": 1, "alpha": 3.0}),
        "both": ((4, 2, 3), (5, 2, 4), {"transA": 1, "transB": 1, "transBatchA": 1, "transBatchB": 1}),
        "four dimensions": ((3, 2, 2, 4), (2, 2, 4, 5), {"transBatchA": 1}),
        "vector": ((4,), (4, 5), {"alpha": 2.0}),
        "transposed beside a vector": ((4, 3), (4,), {"transA": 1}),
        "square beside a vector": ((3, 3), (3,), {"transA": 1, "transB": 1, "alpha": -0.5}),
        "matrices beside a vector": ((2, 3, 4), (3,), {"transA": 1}),
        "vector transposed": ((3,), (3, 4), {"transA": 1}),
        "vector beside a transposed": ((3,), (2, 4, 3), {"transB": 1}),
        "two vectors": ((3,), (3,), {"transA": 1, "transB": 1}),
    }
    for name, (a, b, attributes) in shapes.items():
        yield OperatorCase(
            op_type="FusedMatMul", inputs=[Spread(a), Spread(b)], attributes=attributes, name=name, domain=DOMAIN
        )


def gelus() -> Iterator[OperatorCase]:
    wide, bias = Spread((2, 3, 5), low=-6, high=6), Spread((5,))
    yield OperatorCase(op_type="Gelu", inputs=[wide], domain=DOMAIN)
    yield OperatorCase(op_type="Gelu", inputs=[ROW[1:-1]], name="ends", domain=DOMAIN, gradient=False)
    yield OperatorCase(op_type="BiasGelu", inputs=[wide, bias], domain=DOMAIN)
    yield OperatorCase(op_type="FastGelu", inputs=[wide, bias], domain=DOMAIN, gradient=False)
    yield OperatorCase(op_type="FastGelu", inputs=[wide], name="no bias", domain=DOMAIN, gradient=False)
    for alpha in (1.702, 1.0, -3.0, 0.125, 0.0):
        yield OperatorCase(
            op_type="QuickGelu", inputs=[wide], attributes={"alpha": alpha}, name=f"alpha {alpha}", domain=DOMAIN
        )
    yield OperatorCase(op_type="QuickGelu", inputs=[FINITE], name="ends", domain=DOMAIN, gradient=False)


def normalisations() -> Iterator[OperatorCase]:
    x, weights = Spread((2, 3, 8)), Spread((8,))
    for opset in (13, 17):
        yield OperatorCase(op_type="SimplifiedLayerNormalization", inputs=[x, weights], opset=opset)
    yield OperatorCase(
        op_type="SimplifiedLayerNormalization",
        inputs=[Spread((2, 3, 4)), Spread((3, 4))],
        attributes={"axis": 1, "epsilon": 0.5},
        name="axis",
    )
    yield OperatorCase(
        op_type="SimplifiedLayerNormalization",
        inputs=[Spread((2, 8), np.float64), Spread((8,), np.float64)],
        attributes={"stash_type": 11},
        name="double",
        gradient=False,
    )
    for opset in (9, 16):
        yield OperatorCase(
            op_type="LayerNormalization",
            inputs=[x, weights, weights],
            attributes={"axis": -1, "stash_type": 1},
            opset=opset,
            name="before ONNX had it",
        )


def normalised_sums() -> Iterator[OperatorCase]:
    x, weights = Spread((2, 3, 8)), Spread((8,))
    sums: dict[str, list[Spread | None]] = {
        "plain": [None, None],
        "shifted": [weights, None],
        "biased": [weights, weights],
        "bias": [None, weights],
    }
    for name, rest in sums.items():
        inputs: list[Spread | None] = [x, x, weights, *rest]
        while inputs[-1] is None:
            inputs.pop()
        yield OperatorCase(
            op_type="SkipLayerNormalization",
            inputs=inputs,
            attributes={"epsilon": 1e-5},
            name=name,
            domain=DOMAIN,
        )
    for name, simple in (("plain", [x, x, weights]), ("biased", [x, x, weights, weights])):
        yield OperatorCase(
            op_type="SkipSimplifiedLayerNormalization",
            inputs=simple,
            attributes={"epsilon": 1e-5},
            name=name,
            domain=DOMAIN,
        )


def sums_with_statistics() -> Iterator[OperatorCase]:
    x, weights = Spread((2, 3, 8)), Spread((8,))
    for name, outputs in (
        ("all outputs", 4),
        ("statistics", 3),
        ("mean", 2),
        ("its sum", ("y", "", "", "total")),
    ):
        for op_type, given in (
            ("SkipLayerNormalization", [x, x, weights, weights, weights]),
            ("SkipSimplifiedLayerNormalization", [x, Spread((3, 8)), weights, weights]),
        ):
            yield OperatorCase(
                op_type=op_type,
                inputs=given,
                attributes={"epsilon": 1e-5},
                name=name,
                outputs=outputs,
                domain=DOMAIN,
            )


def attentions() -> Iterator[OperatorCase]:
    x, weights, bias = Spread((2, 3, 4)), Spread((4, 12)), Spread((12,))
    masks = {
        "no mask": None,
        "mask": np.array([[1, 1, 0], [0, 5, 1]], np.int32),
        "nothing seen": np.zeros((2, 3), np.int32),
    }
    for name, mask in masks.items():
        yield OperatorCase(
            op_type="Attention",
            inputs=[x, weights, bias] if mask is None else [x, weights, bias, mask],
            attributes={"num_heads": 2},
            name=name,
            domain=DOMAIN,
        )


def attentions_of_other_forms() -> Iterator[OperatorCase]:
    x, weights, bias = Spread((2, 3, 4)), Spread((4, 12)), Spread((12,))
    past = Spread((2, 2, 2, 2, 2))
    more: dict[str, tuple[list[Any], int, dict[str, Any]]] = {
        "lengths": ([np.array([3, 2], np.int32)], 1, {}),
        "a mask for each query": ([np.array([[[1, 0, 0], [1, 1, 0], [1, 1, 1]]] * 2, np.int32)], 1, {}),
        "causal": ([], 1, {"unidirectional": 1}),
        "past": ([None, past], 2, {"unidirectional": 1}),
        "added": ([None, None, Spread((2, 2, 3, 3))], 1, {}),
    }
    for name, (rest, outputs, attributes) in more.items():
        yield OperatorCase(
            op_type="Attention",
            inputs=[x, weights, bias, *rest],
            attributes={"num_heads": 2} | attributes,
            name=name,
            outputs=outputs,
            domain=DOMAIN,
        )
    yield OperatorCase(
        op_type="Attention",
        inputs=[x, Spread((4, 10)), Spread((10,))],
        attributes={"num_heads": 2, "qkv_hidden_sizes": [4, 4, 2]},
        name="sizes",
        domain=DOMAIN,
    )
    yield OperatorCase(
        op_type="Attention",
        inputs=[x, weights, bias, np.array([[1, 1, 0], [0, 5, 1]], np.int32)],
        attributes={"num_heads": 1, "scale": 2.0, "mask_filter_value": -3.0},
        name="scaled",
        domain=DOMAIN,
    )


def quantised_attentions() -> Iterator[OperatorCase]:
    # Greater weights saturate pairs of products in 16 bits on processors without dot products of 8-bit integers.
    x, w, b = Spread((2, 3, 4), np.uint8, 0, 255), Spread((4, 12), np.int8, -64, 63), Spread((12,))
    one, columns = np.array(0.01, np.float32), np.linspace(0.005, 0.02, 12).astype(np.float32)
    zeros = np.array(100, np.uint8), np.array(3, np.int8)
    mask = np.array([[1, 1, 0], [0, 5, 1]], np.int32)
    past = Spread((2, 2, 2, 2, 2))
    forms: dict[str, tuple[list[Any], int, dict[str, Any]]] = {
        "plain": ([one, one], 1, {}),
        "zero points": ([one, one, None, *zeros], 1, {"scale": 0.5}),
        "columns": ([one, columns, mask, zeros[0], np.arange(-6, 6).astype(np.int8)], 1, {"mask_filter_value": -3.0}),
        "causal": ([np.array([0.02], np.float32), one, np.array([3, 2], np.int32)], 2, {"unidirectional": 1}),
        "past": ([one, one, None, *zeros, past], 2, {"unidirectional": 1}),
        "scales": ([Spread((), low=-0.1, high=0.1), Spread((), low=0.01, high=0.1)], 1, {}),
    }
    for name, (rest, outputs, attributes) in forms.items():
        yield OperatorCase(
            op_type="QAttention",
            inputs=[x, w, b, *rest],
            attributes={"num_heads": 2} | attributes,
            name=name,
            outputs=outputs,
            domain=DOMAIN,
            tolerance=(1e-4, 1e-4),
            gradient=False,
        )
    yield OperatorCase(
        op_type="QAttention",
        inputs=[x, Spread((4, 12), np.uint8, 0, 255), b, one, one, None, None, np.array(9, np.uint8)],
        attributes={"num_heads": 1},
        name="unsigned",
        domain=DOMAIN,
        tolerance=(1e-4, 1e-4),
        gradient=False,
    )


CASES: list[OperatorCase] = [
    *quantised_attentions(),
    *attentions(),
    *attentions_of_other_forms(),
    *convolutions(),
    *gemms(),
    *products(),
    *gelus(),
    *normalisations(),
    *normalised_sums(),
    *sums_with_statistics(),
]


def _border(op_type: str, inputs: list[np.ndarray], bad: Any, name: str, **rest: Any) -> BorderCase:
    return BorderCase(op_type=op_type, inputs=inputs, bad=bad, name=name, **({"domain": DOMAIN} | rest))


def _full(value: float, *shape: int) -> np.ndarray:
    return np.full(shape, value, np.float32)


BORDERS: list[BorderCase] = [
    _border("Gelu", [ROW[:-1]], ROW[:-1] == -INF, "ends"),
    _border("BiasGelu", [ROW[None, :-1], _full(0, 10)], ROW[None, :-1] == -INF, "ends"),
    _border("QuickGelu", [ROW], ROW == -INF, "ends", attributes={"alpha": 1.702}),
    _border("FusedMatMul", [_full(2e19, 1, 1), _full(1.5e19, 1, 1)], False, "fits"),
    _border("FusedMatMul", [_full(2e19, 1, 1), _full(3e19, 1, 1)], True, "overflows"),
    _border(
        "SkipLayerNormalization", [_full(1, 1, 4)] * 2 + [_full(1, 4)], True, "constant", attributes={"epsilon": 0.0}
    ),
    _border("SkipLayerNormalization", [_full(1, 1, 4)] * 2 + [_full(1, 4)], False, "constant, epsilon"),
    _border(
        "SkipSimplifiedLayerNormalization",
        [_full(1, 1, 4), _full(-1, 1, 4), _full(1, 4)],
        True,
        "zeros",
        attributes={"epsilon": 0.0},
    ),
    _border(
        "SimplifiedLayerNormalization",
        [_full(0, 1, 4), _full(1, 4)],
        True,
        "zeros",
        attributes={"epsilon": 0.0},
        domain="",
    ),
]
