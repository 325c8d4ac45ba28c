"""Small models that ONNX Runtime's optimiser fuses or replaces, with the types of operators that it puts into them.

The variants of one fusion differ in what its kernel may treat in another way: missing biases, biases of one element or
of more dimensions, vectors, axes, factors.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import onnx

from tests.network.building import parse

__all__ = ["VARIANTS", "variant"]

Variant = tuple[str, int, str]
"""Types of operators, separated by spaces; the opset; the graph, in which `{W12}` stands for 12 random weights."""

_NEAREST = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
_OWN, _BLOCKED = "com.microsoft.", "com.microsoft.nchwc."


def variant(name: str) -> tuple[set[str], onnx.ModelProto]:
    """Return the types of operators that a variant is to have as it runs, with domain, and its model."""
    types, opset, text = VARIANTS[name]
    rng = np.random.default_rng(len(name))

    def drawn(found: re.Match[str]) -> str:
        return f"{{{', '.join(f'{value:.4f}' for value in rng.normal(size=int(found[1])))}}}"

    text = re.sub(r"\{W(\d+)\}", drawn, text)
    text = re.sub(
        r"\{I(\d+)\}", lambda found: f"{{{', '.join(map(str, rng.integers(-127, 128, int(found[1]))))}}}", text
    )
    return set(types.split()), parse(text, opset)


def _products() -> Iterator[tuple[str, Variant]]:
    fused = _OWN + "FusedMatMul"
    turned = "t = Transpose<perm = [{}]>(x)"
    shapes = {
        "a matrix and a vector": ("[4,3]", "[4]", "[3]", "1, 0", "MatMul(t, z)"),
        "a square and a vector": ("[3,3]", "[3]", "[3]", "1, 0", "MatMul(t, z)"),
        "matrices and a vector": ("[2,3,4]", "[3]", "[2,4]", "0, 2, 1", "MatMul(t, z)"),
        "a vector and a matrix": ("[3,4]", "[4]", "[3]", "1, 0", "MatMul(z, t)"),
        "one element": ("[1,1]", "[1]", "[1]", "1, 0", "MatMul(t, z)"),
        "matrices": ("[4,3]", "[4,2]", "[3,2]", "1, 0", "MatMul(t, z)"),
        "batches": ("[3,2,4]", "[2,4,5]", "[2,3,5]", "1, 0, 2", "MatMul(t, z)"),
        "batches on the right": ("[4,2,5]", "[2,3,4]", "[2,3,5]", "1, 0, 2", "MatMul(z, t)"),
        "batches, both": ("[4,2,3]", "[2,4,5]", "[2,3,5]", "1, 2, 0", "MatMul(t, z)"),
        "one batch for all": ("[4,3]", "[2,4,5]", "[2,3,5]", "1, 0", "MatMul(t, z)"),
    }
    mixed = ("a matrix and a vector", "a vector and a matrix", "batches")
    for name, (x, z, y, perm, product) in shapes.items():
        head = f"g (float{x} x, float{z} z) => (float{y} y)"
        yield f"transpose: {name}", (fused, 17, f"{head} {{ {turned.format(perm)} y = {product} }}")
        if name in ("a matrix and a vector", "batches"):
            double = head.replace("float", "double")
            yield f"transpose: {name}, double", (fused, 17, f"{double} {{ {turned.format(perm)} y = {product} }}")
        for factor in ("float k = {-0.3}", "float[1] k = {2.5}") if name in mixed else ():
            text = f"{head} <{factor}> {{ {turned.format(perm)} m = {product} y = Mul(m, k) }}"
            yield f"transpose: {name}, {factor}", (fused, 17, text)
    biases = (
        "float b = {0.7}",
        "float[1] b = {0.7}",
        "float[3] b = {W3}",
        "float[1,3] b = {W3}",
        "float[2,1] b = {W2}",
    )
    kinds = ("LeakyRelu<alpha = 0.3>", "Sigmoid", "Elu<alpha = 0.5>", "HardSigmoid<alpha = 0.3>")
    for bias, activation in (*((bias, "Relu") for bias in biases), *((biases[2], kind) for kind in kinds)):
        head = f"g (float[2,4] x) => (float[2,3] y) <float[4,3] w = {{W12}}, {bias}>"
        text = f"{head} {{ t = Gemm<alpha = 0.5, beta = 2.0>(x, w, b) y = {activation}(t) }}"
        yield f"product: {activation}, {bias}", (_OWN + "FusedGemm", 17, text)
    text = "g (float[4,2] x) => (float[2,3] y) <float[3,4] w = {W12}>"
    text += " { t = Gemm<transA = 1, transB = 1>(x, w) y = Tanh(t) }"
    yield "product: transposed, without bias", (_OWN + "FusedGemm", 17, text)


def _convolutions() -> Iterator[tuple[str, Variant]]:
    head = "g (float[1,2,5,5] x) => (float[a,b,c,d] y) <float[3,2,3,3] w = {W54}, float[3] b = {W3}>"
    layers = {
        "auto_pad": 'Conv<auto_pad = "SAME_LOWER">(x, w, b)',
        "strides": "Conv<strides = [2, 2], pads = [0, 1, 2, 1]>(x, w)",
        "dilations": "Conv<dilations = [2, 2]>(x, w, b)",
    }
    for name, layer in layers.items():
        for activation in ("Relu", "Tanh", "HardSigmoid<alpha = 0.3, beta = 0.4>"):
            text = f"{head} {{ t = {layer} y = {activation}(t) }}"
            yield f"convolution: {name}, {activation}", (_OWN + "FusedConv", 17, text)
    line = (
        "g (float[2,2,6] x) => (float[a,b,c] y) <float[4,1,3] w = {W12}> { t = Conv<group = 2>(x, w) y = Sigmoid(t) }"
    )
    yield "convolution: groups along a line", (_OWN + "FusedConv", 17, line)
    before, after = "p = Conv(x, w, b)", "Conv(q, u)"
    head = (
        "g (float[1,2,4,4] x) => (float[a,b,c,d] y)"
        " <float[16,2,1,1] w = {W32}, float[16] b = {W16}, float[16,16,1,1] u = {W256}, float[4] s = {1, 1, 2, 2},"
        " float[16] g = {W16}, float[16] m = {W16}, float[16] v = {0.5, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3}>"
    )
    window = "kernel_shape = [2, 2], strides = [2, 2]"
    between = {
        "MaxPool": f"MaxPool<{window}, pads = [0, 1, 1, 0]>(p)",
        "AveragePool": f"AveragePool<{window}, pads = [0, 1, 1, 0]>(p)",
        "AveragePool with its padding": f"AveragePool<{window}, pads = [0, 1, 1, 0], count_include_pad = 1>(p)",
        "MaxPool rounded up": "MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(p)",
        "GlobalAveragePool": "GlobalAveragePool(p)",
        "GlobalMaxPool": "GlobalMaxPool(p)",
        "Upsample": f"Resize<{_NEAREST}>(p, , s)",
        "Upsample, linear": 'Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(p, , s)',
        "Relu": "Relu(p)",
        "BatchNormalization": "BatchNormalization(p, g, b, m, v)",
        "sum": "Add(p, p)",
    }
    for name, layer in between.items():
        own = name.split()[0].rstrip(",")
        types = f"{_BLOCKED}Conv {_BLOCKED}ReorderOutput"
        types += f" {_BLOCKED}{own}" if "Pool" in own or own == "Upsample" else ""
        yield f"blocks: {name}", (types, 17, f"{head} {{ {before} q = {layer} y = {after} }}")
    alone = f"g (float[1,16,4,4] x) => (float[a,b,c,d] y) {{ y = MaxPool<{window}>(x) }}"
    yield "blocks: a pool alone", (f"{_BLOCKED}ReorderInput {_BLOCKED}MaxPool {_BLOCKED}ReorderOutput", 17, alone)


def _gates() -> Iterator[tuple[str, Variant]]:
    head = "g (float[2,4] x) => (float[2,4] y) <float r = {1.4142135}, float one = {1}, float half = {0.5}"
    parts = "d = Div(s, r) e = Erf(d) a = Add(e, one) m = Mul(s, a) y = Mul(m, half)"
    biases = {"float[4] b = {W4}": "BiasGelu", "float b = {0.3}": "Gelu", "float[1] b = {0.3}": "Gelu"}
    biases |= {"float[1,4] b = {W4}": "Gelu", "float[2,4] b = {W8}": "Gelu"}
    for bias, fused in biases.items():
        yield f"gate: {bias}", (_OWN + fused, 17, f"{head}, {bias}> {{ s = Add(x, b) {parts} }}")
        text = f'{head}, {bias}> {{ s = Add(b, x) y = Gelu<approximate = "tanh">(s) }}'
        yield f"gate: tanh, {bias}", (_OWN + "FastGelu" if fused == "BiasGelu" else "Gelu", 20, text)
    for factor in ("float k = {1.702}", "float[1] k = {-2}"):
        text = f"g (float[2,4] x) => (float[2,4] y) <{factor}> {{ m = Mul(k, x) s = Sigmoid(m) y = Mul(s, x) }}"
        yield f"gate: sigmoid, {factor}", (_OWN + "QuickGelu", 17, text)


def _normalisations() -> Iterator[tuple[str, Variant]]:
    head = "g (float[2,3,4] x, float[{}] z) => (float[2,3,4] y) <float[4] v = {{W4}}, float[4] b = {{W4}}>"
    skip = _OWN + "SkipLayerNormalization"
    text = head.format("2,3,4") + " { s = Add(x, z) y = LayerNormalization<axis = -1>(s, v, b) }"
    yield "normalisation: sum", (skip, 17, text)
    for shape in ("1,3,4", "3,4"):
        text = head.format(shape) + " { s = Add(x, z) y = LayerNormalization<axis = -1>(s, v, b) }"
        yield f"normalisation: sum with [{shape}]", ("LayerNormalization", 17, text)
    text = head.format("2,3,4") + " { s = Add(x, z) y = LayerNormalization<axis = 2, epsilon = 0.1>(s, v) }"
    yield "normalisation: sum, without bias", (skip, 17, text)
    constants = "float two = {2}, float[1] e = {1e-5}"
    for axes, scale in (("2", "float[4] v = {W4}"), ("-1", "float[4] v = {W4}")):
        text = (
            f"g (float[2,3,4] x) => (float[2,3,4] y) <{scale}, {constants}> {{ q = Pow(x, two)"
            f" m = ReduceMean<axes = [{axes}]>(q) a = Add(m, e) r = Sqrt(a) d = Div(x, r) y = Mul(d, v) }}"
        )
        yield f"normalisation: by the mean square along {axes}", ("SimplifiedLayerNormalization", 13, text)
    text = (
        f"g (float[2,3,4] x) => (float[2,3,4] y) <float[4] v = {{W4}}, float[4] b = {{W4}}, {constants}>"
        " { n = ReduceMean<axes = [2]>(x) c = Sub(x, n) q = Pow(c, two) m = ReduceMean<axes = [2]>(q) a = Add(m, e)"
        " r = Sqrt(a) d = Div(c, r) w = Mul(v, d) y = Add(b, w) }"
    )
    yield "normalisation: spelled out", ("LayerNormalization", 13, text)


def _quantised() -> Iterator[tuple[str, Variant]]:
    for kind, zero in (("uint8", 100), ("int8", -3)):
        constants = (
            f"<float s = {{0.05}}, {kind} o = {{{zero}}}, float t = {{0.02}}, {kind} p = {{{zero - 2}}},"
            f" float[4,3] w = {{W12}}, int8[4,3] v = {{I12}}, float f = {{0.01}}, int8 n = {{0}},"
            " int8[4,2,2,2] k = {I32}, int32[4] c = {100, -200, 0, 3000}, float cs = {0.0005}, int32 cn = {0},"
            " bool[4] h = {1, 0, 1, 1}>"
        )
        pair = "q = QuantizeLinear(x, s, o) d = DequantizeLinear(q, s, o)"
        second = "i = QuantizeLinear(z, t, p) j = DequantizeLinear(i, t, p)"
        end = "r = QuantizeLinear(m, t, o) y = DequantizeLinear(r, t, o)"
        image, rows = "float[1,2,4,4] x", "float[2,4] x"
        bodies = {
            "QLinearAdd": (f"{rows}, float[2,4] z", f"{pair} {second} m = Add(d, j)"),
            "QLinearAdd of rows": (f"{rows}, float[4] z", f"{pair} {second} m = Add(d, j)"),
            "QLinearAdd of one": (f"{rows}, float[1] z", f"{pair} {second} m = Add(j, d)"),
            "QLinearMul": (f"{rows}, float[2,1] z", f"{pair} {second} m = Mul(d, j)"),
            "QLinearConcat": (f"{rows}, float[2,4] z", f"{pair} {second} m = Concat<axis = 1>(d, j)"),
            "QLinearSigmoid": (rows, f"{pair} m = Sigmoid(d)"),
            "QLinearLeakyRelu": (rows, f"{pair} m = LeakyRelu<alpha = 0.3>(d)"),
            "QLinearSoftmax": (rows, f"{pair} m = Softmax<axis = 1>(d)"),
            "QLinearSoftmax of columns": (rows, f"{pair} m = Softmax<axis = 0>(d)"),
            "QLinearAveragePool": (image, f"{pair} m = AveragePool<kernel_shape = [2, 2], pads = [0, 1, 1, 0]>(d)"),
            "QLinearGlobalAveragePool": (image, f"{pair} m = GlobalAveragePool(d)"),
            "QLinearWhere": (f"{rows}, float[2,4] z", f"{pair} {second} m = Where(h, d, j)"),
            "QGemm": (
                rows,
                f"{pair} u = DequantizeLinear(v, f, n) m = Gemm(d, u)",
            ),
            ".QLinearConv": (
                image,
                f"{pair} u = DequantizeLinear(k, f, n) b = DequantizeLinear(c, cs, cn) m = Conv(d, u, b)",
            ),
            ".QLinearMatMul": (rows, f"{pair} u = DequantizeLinear(v, f, n) m = MatMul(d, u)"),
        }
        for name, (inputs, body) in bodies.items():
            fused = name.split()[0]
            fused = fused[1:] if fused.startswith(".") else _OWN + fused
            shape = "float[a,b,c,d] y" if inputs is image else "float[a,b] y"
            yield f"{kind}: {name}", (fused, 17, f"g ({inputs}) => ({shape}) {constants} {{ {body} {end} }}")


def _integers() -> Iterator[tuple[str, Variant]]:
    stored = {"int8": ("{I12}", 0), "uint8": (f"{{{', '.join(map(str, range(0, 240, 20)))}}}", 3)}
    scales = ("float s = {0.02}", "float[1] s = {0.02}", "float[3] s = {0.02, 0.5, 3}")
    ends = {"": "y = Mul(c, t)", ", bias": "m = Mul(c, t) y = Add(m, b)"}
    # An output of the model stays a node of its own.
    results = {"DynamicQuantizeMatMul": "float[2,3] y", "MatMulIntegerToFloat": "float[2,3] y, uint8[2,4] q"}
    for (kind, (weights, zero)), scale, (fused, result) in itertools.product(stored.items(), scales, results.items()):
        for name, end in ends.items():
            text = (
                f"g (float[2,4] x) => ({result}) <{kind}[4,3] w = {weights}, {scale}, {kind} o = {{{zero}}},"
                " float[3] b = {W3}> { q, sx, ox = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, ox, o)"
                f" c = Cast<to = 1>(i) t = Mul(sx, s) {end} }}"
            )
            yield f"integers: {fused}, {kind}, {scale}{name}", (_OWN + fused, 17, text)


def _plain() -> Iterator[tuple[str, Variant]]:
    """Yield those that become operators of ONNX with other attributes or constants."""
    head = "g (float[1,2,4,4] x) => (float[a,b,c,d] y) <int64[8] p = {0, 0, 1, 0, 0, 0, 0, 1}, float o = {0},"
    head += " float[3,2,2,2] w = {W24}, float[3,1,1] k = {W3}, float[1,3,1,1] l = {W3}, float[3] v = {0.5, 1, 2}>"
    bodies = {
        "Pad, Conv": ("Conv", "q = Pad(x, p, o) y = Conv(q, w)"),
        "Pad, Conv with padding": ("Conv", "q = Pad(x, p) y = Conv<pads = [1, 1, 0, 0]>(q, w)"),
        "Pad, MaxPool": ("MaxPool", "q = Pad(x, p, o) y = MaxPool<kernel_shape = [2, 2]>(q)"),
        "Pad, AveragePool": ("AveragePool", "q = Pad(x, p, o) y = AveragePool<kernel_shape = [2, 2]>(q)"),
        "Conv, Mul": ("Conv", "q = Conv(x, w) y = Mul(q, k)"),
        "Conv, Add, Mul": ("Conv", "q = Conv(x, w) r = Add(q, l) y = Mul(r, k)"),
        "Conv, BatchNormalization": ("Conv", "q = Conv(x, w) y = BatchNormalization(q, v, v, v, v)"),
        "Conv, Add, Relu": ("Conv", "q = Conv(x, w) r = Conv(x, w) s = Add(q, r) y = Relu(s)"),
    }
    for name, (_, body) in bodies.items():
        yield f"plain: {name}", ("", 17, f"{head} {{ {body} }}")
    rows = "g (float[2,3] x) => (float[a,b] y) <float[3,2] w = {W6}, float[2] v = {0.5, 2}, float[1,1,1] z = {0}>"
    for name, body in {
        "MatMul, BatchNormalization": "q = MatMul(x, w) y = BatchNormalization(q, v, v, v, v)",
        "Transpose, MatMul, Transpose": "t = Transpose(x) u = Transpose(w) q = MatMul(u, t) y = Transpose(q)",
        "Transpose, Softmax, Transpose": "t = Transpose(x) q = Softmax<axis = 0>(t) y = Transpose(q)",
        "Not, Where": "l = Less(x, x) q = Not(l) y = Where(q, x, x)",
    }.items():
        yield f"plain: {name}", ("", 17, f"{rows} {{ {body} }}")


VARIANTS: dict[str, Variant] = {
    **dict(_products()),
    **dict(_convolutions()),
    **dict(_gates()),
    **dict(_normalisations()),
    **dict(_quantised()),
    **dict(_integers()),
    **dict(_plain()),
}
