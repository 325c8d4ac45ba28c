"""For each pass that lowers an operator: a graph to which it applies, and what it makes of it."""

X = "float[2, 3] x"
Y = "float[2, 3] y"
IMAGE = "float[2, 2, 4, 4] x"


def graph(body: str, x: str = X, y: str = Y, constants: str = "") -> str:
    return f"g ({x}) => ({y}) {f'<{constants}>' if constants else ''} {{ {body} }}"


# Pass -> graph, opset, operators that it makes.
APPLIES: dict[str, tuple[str, int, set[str]]] = {
    "lower_neg": (graph("y = Neg(x)"), 17, {"Mul"}),
    "lower_sub": (graph("y = Sub(x, x)"), 17, {"Add", "Mul"}),
    "lower_sum": (graph("y = Sum(x, x, x)"), 17, {"Add"}),
    "lower_mean": (graph("y = Mean(x, x)"), 17, {"Add", "Mul"}),
    "lower_div": (graph("y = Div(x, c)", constants="float[3] c = {2.0, 3.0, -0.5}"), 17, {"Mul"}),
    "lower_reciprocal": (graph("a = Exp(x) y = Reciprocal(a)"), 17, {"Exp", "Div"}),
    "lower_pow": (graph("y = Pow(x, c)", constants="float c = {3.0}"), 17, {"Mul"}),
    "lower_dropout": (graph("y = Dropout(x)"), 17, {"Identity"}),
    "lower_abs": (graph("y = Abs(x)"), 17, {"Add", "Mul", "Relu"}),
    "lower_leaky_relu": (graph("y = LeakyRelu(x)"), 17, {"Add", "Mul", "Relu"}),
    "lower_prelu": (graph("y = PRelu(x, s)", constants="float[3] s = {0.5, 2.0, -1.0}"), 17, {"Add", "Mul", "Relu"}),
    "lower_hard_swish": (graph("y = HardSwish(x)"), 17, {"HardSigmoid", "Mul"}),
    "lower_hard_sigmoid": (graph("y = HardSigmoid(x)"), 17, {"Add", "Clip", "Mul"}),
    "lower_softsign": (graph("y = Softsign(x)"), 17, {"Abs", "Add", "Div"}),
    "lower_elu": (graph("y = Elu(x)"), 17, {"Add", "Exp", "Mul", "Relu", "Sub"}),
    "lower_selu": (graph("y = Selu(x)"), 17, {"Add", "Exp", "Mul", "Relu", "Sub"}),
    "lower_celu": (graph("y = Celu<alpha = 2.0>(x)"), 17, {"Add", "Exp", "Mul", "Relu", "Sub"}),
    "lower_gelu": (graph("y = Gelu(x)"), 20, {"Add", "Erf", "Mul"}),
    "lower_clip": (
        graph("y = Clip(x, a, b)", constants="float a = {-0.5}, float b = {0.25}"),
        17,
        {"Add", "Mul", "Relu", "Sub"},
    ),
    "lower_max": (graph("y = Max(x, c)", constants="float[3] c = {0.5, 0.0, -0.5}"), 17, {"Add", "Mul", "Relu", "Sub"}),
    "lower_min": (graph("a = Sin(x) y = Min(x, a)"), 17, {"Sin", "Mul", "Relu", "Sub"}),
    "lower_arg_max_equal": (
        graph("i = ArgMax<axis = 1, keepdims = 0>(x) y = Equal(i, k)", y="bool[2] y", constants="int64 k = {1}"),
        17,
        {"And", "Greater", "Less", "Not", "Slice", "Squeeze"},
    ),
    "lower_reduce_mean": (graph("y = ReduceMean<axes = [1]>(x)", y="float[2, 1] y"), 17, {"Mul", "ReduceSum"}),
    "lower_reduce_max": (
        graph("y = ReduceMax<axes = [1], keepdims = 0>(x)", y="float[2] y"),
        17,
        {"Max", "Slice", "Squeeze"},
    ),
    "lower_reduce_min": (graph("y = ReduceMin(x)", y="float[1, 1] y"), 17, {"Min", "Slice"}),
    "lower_reduce_l1": (graph("y = ReduceL1<axes = [0]>(x)", y="float[1, 3] y"), 17, {"Abs", "ReduceSum"}),
    "lower_reduce_l2": (graph("y = ReduceL2<axes = [0]>(x)", y="float[1, 3] y"), 17, {"Mul", "ReduceSum", "Sqrt"}),
    "lower_reduce_sum_square": (graph("y = ReduceSumSquare(x)", y="float[1, 1] y"), 17, {"Mul", "ReduceSum"}),
    "lower_softmax": (graph("y = Softmax(x)"), 17, {"Div", "Exp", "ReduceMax", "ReduceSum", "Sub"}),
    "lower_log_softmax": (graph("y = LogSoftmax<axis = 0>(x)"), 17, {"Exp", "Log", "ReduceMax", "ReduceSum", "Sub"}),
    "lower_layer_normalization": (
        graph("y = LayerNormalization(x, s)", constants="float[3] s = {1.0, 2.0, 3.0}"),
        17,
        {"Add", "Div", "Mul", "ReduceMean", "Sqrt", "Sub"},
    ),
    "lower_instance_normalization": (
        graph("y = InstanceNormalization(x, s, s)", IMAGE, "float[2, 2, 4, 4] y", "float[2] s = {1.0, 2.0}"),
        17,
        {"Add", "Div", "Mul", "ReduceMean", "Sqrt", "Sub"},
    ),
    "fold_batch_normalization": (
        graph(
            "a = Conv(x, w) y = BatchNormalization(a, s, s, s, s)",
            IMAGE,
            "float[2, 3, 4, 4] y",
            "float[3, 2, 1, 1] w = {1.0, 2.0, 3.0, 4.0, 5.0, -6.0}, float[3] s = {1.0, 2.0, 3.0}",
        ),
        17,
        {"Conv"},
    ),
    "lower_batch_normalization": (
        graph(
            "y = BatchNormalization(x, s, s, m, s)",
            constants="float[3] s = {1.0, 2.0, 3.0}, float[3] m = {0.0, 1.0, 2.0}",
        ),
        17,
        {"Add", "Mul"},
    ),
    "lower_gemm": (
        graph(
            "y = Gemm<transA = 1, transB = 1, alpha = 0.5>(x, w, b)",
            y="float[3, 2] y",
            constants="float[2, 2] w = {1.0, 2.0, 3.0, 4.0}, float[2] b = {1.0, -1.0}",
        ),
        17,
        {"Add", "MatMul", "Mul", "Transpose"},
    ),
    "lower_conv": (
        graph(
            "y = Conv<pads = [1, 1, 0, 0], strides = [2, 1]>(x, w, b)",
            IMAGE,
            "float[2, 1, 2, 4] y",
            "float[1, 2, 2, 2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0}, float[1] b = {0.5}",
        ),
        17,
        {"Add", "MatMul", "Reshape"},
    ),
    "lower_conv_transpose": (
        graph(
            "y = ConvTranspose<strides = [2, 2]>(x, w)",
            IMAGE,
            "float[2, 1, 8, 8] y",
            "float[2, 1, 2, 2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0}",
        ),
        17,
        {"MatMul", "Reshape"},
    ),
    "lower_max_pool": (
        graph(
            "y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(x)", IMAGE, "float[2, 2, 2, 2] y"
        ),
        17,
        {"Max", "Slice"},
    ),
    "lower_average_pool": (
        graph("y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)", IMAGE, "float[2, 2, 4, 4] y"),
        17,
        {"Conv", "Mul"},
    ),
    "lower_global_average_pool": (graph("y = GlobalAveragePool(x)", IMAGE, "float[2, 2, 1, 1] y"), 17, {"ReduceMean"}),
    "lower_global_max_pool": (graph("y = GlobalMaxPool(x)", IMAGE, "float[2, 2, 1, 1] y"), 17, {"ReduceMax"}),
    "lower_squeeze": (
        graph("y = Squeeze(x, a)", "float[N, 1, 3] x", "float[N, 3] y", "int64[1] a = {1}"),
        17,
        {"Reshape"},
    ),
    "lower_unsqueeze": (
        graph("y = Unsqueeze(x, a)", y="float[2, 1, 3] y", constants="int64[1] a = {-2}"),
        17,
        {"Reshape"},
    ),
    "lower_flatten": (graph("y = Flatten(x)", "float[N, 2, 3] x", "float[N, 6] y"), 17, {"Reshape"}),
    "lower_depth_to_space": (
        graph("y = DepthToSpace<blocksize = 2>(x)", "float[N, 4, 2, 2] x", "float[N, 1, 4, 4] y"),
        17,
        {"Reshape", "Transpose"},
    ),
    "lower_space_to_depth": (
        graph("y = SpaceToDepth<blocksize = 2>(x)", IMAGE, "float[2, 8, 2, 2] y"),
        17,
        {"Reshape", "Transpose"},
    ),
    "lower_split": (
        graph("y, z = Split<axis = 1>(x, l)", y="float[2, 1] y, float[2, 2] z", constants="int64[2] l = {1, 2}"),
        17,
        {"Slice"},
    ),
    "lower_gather": (
        graph("y = Gather<axis = 1>(x, i)", y="float[2, 4] y", constants="int64[4] i = {2, 0, 1, -1}"),
        17,
        {"Concat", "Slice"},
    ),
    "lower_pad": (
        graph("y = Pad(x, p, v)", y="float[2, 5] y", constants="int64[4] p = {0, 1, 0, 1}, float v = {2.0}"),
        17,
        {"Concat"},
    ),
    "lower_expand": (graph("y = Expand(x, s)", y="float[4, 2, 3] y", constants="int64[3] s = {4, 2, 3}"), 17, {"Mul"}),
    "lower_tile": (graph("y = Tile(x, r)", y="float[4, 9] y", constants="int64[2] r = {2, 3}"), 17, {"Concat"}),
}

# Pass -> graphs that it leaves, with the opset and the reason.
REFUSES: dict[str, list[tuple[str, int, str]]] = {
    "lower_neg": [(graph("y = Neg(x)", "int32[3] x", "int32[3] y"), 17, "'x' holds int32")],
    "lower_sub": [(graph("y = Sub(x, x)", "int64[3] x", "int64[3] y"), 17, "'x' holds int64")],
    "lower_sum": [(graph("y = Sum(x, x)", "uint8[3] x", "uint8[3] y"), 17, "'x' holds uint8")],
    "lower_mean": [(graph("y = Mean(x, x)", "int64[3] x", "int64[3] y"), 17, "'x' holds int64")],
    "lower_div": [
        (graph("y = Div(x, x)"), 17, "its divisor is not constant"),
        (graph("y = Div(x, c)", constants="float[3] c = {1.0, 0.0, 1.0}"), 17, "no normal number of float"),
        (graph("y = Div(x, c)", constants="float c = {1e-39}"), 17, "no normal number of float"),
        (graph("y = Div(x, c)", constants="float c = {3e38}"), 17, "no normal number of float"),
    ],
    "lower_reciprocal": [(graph("y = Reciprocal(x)", "int64[3] x", "int64[3] y"), 17, "'x' holds int64")],
    "lower_pow": [
        (graph("y = Pow(x, x)"), 17, "its exponent is not constant"),
        (graph("y = Pow(x, c)", constants="float c = {2.5}"), 17, "its exponent is 2.5"),
        (graph("y = Pow(x, c)", constants="float[3] c = {2.0, 2.0, 2.0}"), 17, "has shape [3]"),
        (graph("y = Pow(x, c)", y="float[1, 2, 3] y", constants="float[1, 1, 1] c = {2.0}"), 17, "has shape [1, 1, 1]"),
    ],
    "lower_dropout": [
        (graph("y, m = Dropout(x)", y="float[2, 3] y, bool[2, 3] m"), 17, "its mask is used"),
        (graph("y = Dropout(x, r, t)", constants="float r = {0.5}, bool t = {1}"), 17, "it is in training mode"),
        (graph("y = Dropout(x, r, t)", f"{X}, bool t", constants="float r = {0.5}"), 17,
         "training mode is not constant"),
    ],
    "lower_abs": [(graph("y = Abs(x)", "int32[3] x", "int32[3] y"), 17, "'x' holds int32")],
    "lower_leaky_relu": [
        (graph("y = LeakyRelu(x)", "float16[3] x", "float16[3] y"), 17, "0.01, is no number of float16"),
    ],
    "lower_prelu": [(graph("y = PRelu(x, s)", constants="float s = {inf}"), 17, "a slope is not finite")],
    "lower_hard_swish": [(graph("y = HardSwish(x)", "int32[3] x", "int32[3] y"), 17, "'x' holds int32")],
    "lower_hard_sigmoid": [
        (graph("y = HardSigmoid<alpha = 2.0>(x)"), 17, "may overflow"),
        (graph("y = HardSigmoid(x)", "double[3] x", "double[3] y"), 11, "Clip of double needs opset 12"),
    ],
    "lower_softsign": [(graph("y = Softsign(x)", "int32[3] x", "int32[3] y"), 17, "'x' holds int32")],
    "lower_elu": [(graph("y = Elu(x)", "float16[3] x", "float16[3] y"), 17, "'x' holds float16")],
    "lower_selu": [(graph("y = Selu(x)", "float16[3] x", "float16[3] y"), 17, "'x' holds float16")],
    "lower_celu": [(graph("y = Celu<alpha = 0.5>(x)"), 17, "alpha is 0.5, so that x / alpha may overflow")],
    "lower_gelu": [(graph('y = Gelu<approximate = "tanh">(x)'), 20, "it is approximated (tanh)")],
    "lower_clip": [
        (graph("y = Clip(x, x)"), 17, "its bounds are not constant"),
        (graph("y = Clip(x, a)", constants="float a = {2e31}"), 17, "a difference to it may overflow"),
        (graph("y = Clip<min = -16.0>(x)", "float16[3] x", "float16[3] y"), 10, "bound -16 is so large"),
        (graph("y = Clip(x, a, b)", constants="float a = {1.0}, float b = {0.0}"), 17, "must not be above the second"),
        (graph("y = Clip(x, a)", "int32[3] x", "int32[3] y", "int32 a = {1}"), 17, "'x' holds int32"),
        (graph("y = Clip(x, a)", "double[3] x", "double[3] y", "double a = {1e-50}"), 17, "addition of 1e-50 for none"),
    ],
    "lower_max": [
        (graph("y = Max(x, c)", constants="float c = {-inf}"), 17, "a constant is not finite"),
        (graph("y = Max(x, c)", "double[3] x", "double[3] y", "double c = {1e-50}"), 17, "addition of 1e-50 for none"),
    ],
    "lower_min": [(graph("y = Min(x, x)", "int32[3] x", "int32[3] y"), 17, "'x' holds int32")],
    "lower_arg_max_equal": [
        (graph("i = ArgMax<axis = 1>(x) y = Equal(i, k)", y="bool[2, 3] y", constants="int64[3] k = {0, 1, 2}"), 17,
         "one position is handled"),
        (graph("i = ArgMax<axis = 1>(x) y = Equal(i, k)", y="bool[2, 1] y", constants="int64 k = {3}"), 17,
         "position 3 is none of an axis of length 3"),
        (graph("i = ArgMax<axis = 1>(x) y = Equal(i, k)", f"{X}, int64 k", "bool[2, 1] y"), 17, "is not constant"),
        (graph("i = ArgMax(x) y = Equal(i, k)", "float[N, 3] x", "bool[1, 3] y", "int64 k = {1}"), 17,
         "has no fixed length"),
    ],
    "lower_reduce_mean": [
        (graph("y = ReduceMean(x)", "float[N, 3] x", "float[1, 1] y"), 17, "axis 0 of 'x' has no fixed length"),
        (graph("y = ReduceMean(x)", "float16[20000] x", "float16[1] y"), 17, "mean of 20,000 elements"),
        (graph("y = ReduceMean(x, a)", f"{X}, int64[1] a", "float[2, 1] y"), 18, "its axes are not constant"),
    ],
    "lower_reduce_max": [
        (graph("y = ReduceMax(x)", "float[N] x", "float[1] y"), 17, "axis 0 of 'x' has no fixed length"),
    ],
    "lower_reduce_min": [(graph("y = ReduceMin(x)", "int32[3] x", "int32[1] y"), 17, "'x' holds int32")],
    "lower_reduce_l1": [(graph("y = ReduceL1(x)", "float16[3] x", "float16[1] y"), 17, "'x' holds float16")],
    "lower_reduce_l2": [(graph("y = ReduceL2(x)", "float16[3] x", "float16[1] y"), 17, "'x' holds float16")],
    "lower_reduce_sum_square": [(graph("y = ReduceSumSquare<noop_with_empty_axes = 1>(x)"), 18, "it reduces no axis")],
    "lower_softmax": [(graph("y = Softmax(x)", "float16[3] x", "float16[3] y"), 17, "'x' holds float16")],
    "lower_log_softmax": [(graph("y = LogSoftmax(x)", "float16[3] x", "float16[3] y"), 17, "'x' holds float16")],
    "lower_layer_normalization": [
        (graph("y, m = LayerNormalization(x, s)", y="float[2, 3] y, float[2, 1] m", constants="float[3] s = {1, 2, 3}"),
         17, "its statistics are used"),
        (graph("y = LayerNormalization(x, x)", "float16[3] x", "float16[3] y"), 17, "'x' holds float16"),
    ],
    "lower_instance_normalization": [
        (graph("y = InstanceNormalization(x, s, s)", f"{IMAGE}, float[2] s", "float[2, 2, 4, 4] y"), 8,
         "needs opset 9"),
    ],
    "lower_batch_normalization": [
        (graph("y = BatchNormalization(x, s, s, s, s)", f"{X}, float[3] s"), 17, "its scale is not constant"),
        (graph("y = BatchNormalization(x, s, s, s, v)", constants="float[3] s = {1, 2, 3}, float[3] v = {1, -1, 1}"),
         17, "is not finite as float"),
        (graph("y, m, v = BatchNormalization<training_mode = 1>(x, s, s, s, s)",
               y="float[2, 3] y, float[3] m, float[3] v", constants="float[3] s = {1, 2, 3}"), 17, "in training mode"),
    ],
    "fold_batch_normalization": [
        (graph("y = BatchNormalization(x, s, s, s, s)", constants="float[3] s = {1, 2, 3}"), 17,
         "nothing that it could"),
        (graph("a = MatMul(x, w) y = BatchNormalization(a, s, s, s, s)", f"{X}, float[3, 3] w",
               constants="float[3] s = {1, 2, 3}"), 17, "the weights of MatMul are not constant"),
        (graph("a = MatMul(x, w) y = BatchNormalization(a, s, s, s, s)", y="float[2, 1] y, float[2, 1] a",
               constants="float[3, 1] w = {1, 2, 3}, float[1] s = {1}"), 17, "something else reads that"),
        (graph("a = MatMul(x, w) y = BatchNormalization(a, s, s, s, s)", "float[2, 1, 3] x", "float[2, 1, 1] y",
               constants="float[3, 1] w = {1, 2, 3}, float[1] s = {1}"), 17, "none of two matrices"),
    ],
    "lower_gemm": [
        (graph("y = Gemm(x, w)", "int32[2, 3] x, int32[3, 2] w", "int32[2, 2] y"), 17, "'x' holds int32"),
        (graph("y = Gemm<beta = 1e30>(x, w, b)", y="float[2, 1] y",
               constants="float[3, 1] w = {1, 2, 3}, float[1] b = {1e30}"), 17, "beta times its addend overflows"),
    ],
    "lower_conv": [
        (graph("y = Conv(x, w)", f"{IMAGE}, float[1, 2, 2, 2] w", "float[2, 1, 3, 3] y"), 17,
         "weights are not constant"),
        (graph("y = Conv(x, w)", "float[1, 1, H, 4] x", "float[1, 1, H, 4] y", "float[1, 1, 1, 1] w = {1}"), 17,
         "axis 2 of 'x' has no fixed length"),
        (graph("y = Conv(x, w)", "float[1, 1, 64, 64] x", "float[1, 1, 64, 64] y", "float[1, 1, 1, 1] w = {1}"), 17,
         "its matrix has 16,777,216 entries"),
    ],
    "lower_conv_transpose": [
        (graph('y = ConvTranspose<auto_pad = "SAME_UPPER">(x, w)', IMAGE, "float[2, 1, 4, 4] y",
               "float[2, 1, 1, 1] w = {1, 2}"), 17, "its padding is not explicit"),
    ],
    "lower_max_pool": [
        (graph("y, i = MaxPool<kernel_shape = [2, 2]>(x)", IMAGE, "float[2, 2, 3, 3] y, int64[2, 2, 3, 3] i"), 17,
         "its indices are used"),
        (graph("y = MaxPool<kernel_shape = [2, 2]>(x)", "float[2, 2, H, 4] x", "float[2, 2, K, 3] y"), 17,
         "axis 2 of 'x' has no fixed length"),
        (graph("y = MaxPool<kernel_shape = [2], strides = [2]>(x)", "float[1, 1, 600] x", "float[1, 1, 300] y"), 9,
         "it would take 600 slices"),
    ],
    "lower_average_pool": [
        (graph("y = AveragePool<kernel_shape = [2, 2]>(x)", "float[2, C, 4, 4] x", "float[2, C, 3, 3] y"), 17,
         "axis 1 of 'x' has no fixed length"),
        (graph("y = AveragePool<kernel_shape = [2], strides = [2], ceil_mode = 1, count_include_pad = 1>(x)",
               "float[1, 1, 5] x", "float[1, 1, 3] y"), 17, "reaches beyond the padding"),
    ],
    "lower_global_average_pool": [(graph("y = GlobalAveragePool(x)", "float[2, 2] x", "float[2, 2] y"), 17, "no axis")],
    "lower_global_max_pool": [(graph("y = GlobalMaxPool(x)", "float[2, 2] x", "float[2, 2] y"), 17, "no axis")],
    "lower_squeeze": [
        (graph("y = Squeeze(x)", "float[N, 1, 3] x", "float[N, 3] y"), 17, "it names no axes"),
        (graph("y = Squeeze(x, a)", f"{X}, int64[1] a"), 17, "its axes are not constant"),
        (graph("y = Squeeze(x, a)", "float[1, 3] x", "float[3] y", "int64[0] a = {}"), 17, "its list of axes is empty"),
        (graph("y = Squeeze<axes = [0]>(x)", "float[1, 3] x", "float[3] y"), 8, "int64 needs opset 9"),
    ],
    "lower_unsqueeze": [
        (graph("y = Unsqueeze(x, a)", "float[N, M] x", "float[1, N, M] y", "int64[1] a = {0}"), 17, "not fixed"),
    ],
    "lower_flatten": [(graph("y = Flatten(x)", "float[0, 2, 3] x", "float[0, 6] y"), 17, "it is empty")],
    "lower_depth_to_space": [
        (graph("y = DepthToSpace<blocksize = 2>(x)", "float[1, 4, H, 2] x", "float[1, 1, K, 4] y"), 17, "is not fixed"),
    ],
    "lower_space_to_depth": [
        (graph("y = SpaceToDepth<blocksize = 2>(x)", "float[1, 1, 3, 2] x", "float[1, 4, 1, 1] y"), 17, "no multiple"),
    ],
    "lower_split": [
        (graph("y, z = Split<axis = 1>(x)", "float[2, N] x", "float[2, M] y, float[2, M] z"), 17, "no fixed length"),
        (graph("y, z = Split<axis = 1>(x, l)", y="float[2, 3] y, float[2, 0] z", constants="int64[2] l = {3, 0}"), 17,
         "a part is empty"),
    ],
    "lower_gather": [
        (graph("y = Gather(x, i)", f"{X}, int64[1] i", "float[1, 3] y"), 17, "its indices are not constant"),
        (graph("y = Gather(x, i)", y="float[1, 3] y", constants="int64[1] i = {2}"), 17, "none of an axis of length 2"),
        (graph("y = Gather(x, i)", "string[2, 3] x", "string[1, 3] y", "int64[1] i = {1}"), 17, "it gathers texts"),
    ],
    "lower_pad": [
        (graph("y = Pad(x, p)", "float[N, 3] x", "float[N, 4] y", "int64[4] p = {0, 0, 0, 1}"), 17, "no fixed length"),
        (graph("y = Pad(x, p)", f"{X}, int64[4] p"), 17, "its pads are not constant"),
        (graph('y = Pad<mode = "reflect">(x, p)', y="float[2, 6] y", constants="int64[4] p = {0, 3, 0, 0}"), 17,
         "it reflects more than there is"),
        (graph("y = Pad(x, p)", y="float[2, 1] y", constants="int64[4] p = {0, 2, 0, -4}"), 17,
         "its padding leaves nothing"),
    ],
    "lower_expand": [
        (graph("y = Expand(x, s)", f"{X}, int64[2] s"), 17, "its shape is not constant"),
        (graph("y = Expand(x, s)", constants="int64[2] s = {-1, 3}"), 17, "its shape [-1, 3] has negative lengths"),
    ],
    "lower_tile": [
        (graph("y = Tile(x, r)", f"{X}, int64[2] r"), 17, "its copies are not constant"),
        (graph("y = Tile(x, r)", y="float[2, 300] y", constants="int64[2] r = {1, 100}"), 17, "100 copies"),
    ],
}  # fmt: skip
