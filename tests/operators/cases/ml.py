"""Operators of `ai.onnx.ml`: features, linear models, support vector machines, trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx

from tests.operators.harness import BorderCase, OperatorCase, Spread

Attributes = dict[str, Any]

DOMAIN = "ai.onnx.ml"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
TESTS = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
X = Spread((4, 3))
INTEGERS = Spread((4, 3), np.int64, -3, 3)


def case(op_type: str, name: str, *inputs: Any, opset: int = 1, outputs: int = 1, **attributes: Any) -> OperatorCase:
    return OperatorCase(
        op_type=op_type,
        name=name,
        inputs=inputs,
        attributes=attributes,
        domain=DOMAIN,
        own_opset=opset,
        outputs=outputs,
        gradient=False,
    )


def features() -> Iterator[OperatorCase]:
    offset, scale = [0.5, -1.0, 2.0], [2.0, 0.25, -3.0]
    yield case("Scaler", "one each", X, offset=offset, scale=scale)
    yield case("Scaler", "one for all", Spread((2, 3, 2)), offset=[0.5], scale=[3.0])
    yield case("Scaler", "three axes", Spread((2, 3, 2)), offset=offset, scale=scale)
    yield case("Scaler", "vector of doubles", Spread((3,), np.float64), offset=offset, scale=scale)
    yield case("Scaler", "integers", INTEGERS, offset=offset, scale=scale)
    for norm in ("MAX", "L1", "L2"):
        yield case("Normalizer", norm, X, norm=norm)
        yield case("Normalizer", f"{norm} of a vector", Spread((4,)), norm=norm)
        yield case("Normalizer", f"{norm} of shares", Spread((3, 4), low=0.0), norm=norm)
        yield case("Normalizer", f"{norm} of integers", Spread((2, 3), np.int32, -3, 3), norm=norm)
        yield case("Normalizer", f"{norm} of doubles", Spread((2, 3), np.float64), norm=norm)
    gaps = np.array([[1.0, np.nan, 0.5], [np.nan, 2.0, 1.0]], np.float32)
    nothing: dict[str, Any] = {"replaced_value_float": float("nan")}
    yield case("Imputer", "one each", gaps, imputed_value_floats=[7.0, 8.0, 9.0], **nothing)
    yield case("Imputer", "one for all", X, imputed_value_floats=[7.0], **nothing)
    yield case(
        "Imputer", "a number", np.array([[1.0, 2, 3]], np.float32), imputed_value_floats=[7.0], replaced_value_float=2.0
    )
    yield case("Imputer", "integers", INTEGERS, imputed_value_int64s=[7, 8, 9], replaced_value_int64=-1)
    yield case("Binarizer", "default", X)
    yield case("Binarizer", "threshold", X, threshold=0.25)
    yield case("ArrayFeatureExtractor", "columns", X, np.array([2, 0], np.int64))
    yield case("ArrayFeatureExtractor", "vector", Spread((4,)), np.array([[3], [1]], np.int64))
    yield case("ArrayFeatureExtractor", "labels", np.array([7, 5, 3], np.int64), Spread((2,), np.int64, 0, 2))
    yield case("FeatureVectorizer", "columns", X, Spread((4, 3)), Spread((4, 1)), inputdimensions=[3, 2, 2])
    yield case(
        "FeatureVectorizer", "vectors", Spread((3,), np.float64), Spread((2,), np.float64), inputdimensions=[3, 2]
    )
    yield case("FeatureVectorizer", "integers", INTEGERS, Spread((4, 1), np.int64), inputdimensions=[3, 1])


def encoders() -> Iterator[OperatorCase]:
    keys, values = [1, -2, 3, 1], [0.5, 0.25, -4.0, 9.0]
    yield case("LabelEncoder", "floats of integers", INTEGERS, opset=2, keys_int64s=keys, values_floats=values)
    yield case(
        "LabelEncoder", "integers", INTEGERS, opset=2, keys_int64s=keys, values_int64s=[5, 6, 7, 8], default_int64=9
    )
    whole = np.array([[1.0, -2.0, 0.0], [3.0, np.nan, -0.0]], np.float32)
    yield case(
        "LabelEncoder", "integers of floats", whole, opset=2, keys_floats=[0.0, 1.0, -2.0], values_int64s=[5, 6, 7]
    )
    tensors = {
        "keys_tensor": onnx.numpy_helper.from_array(np.array([1.0, np.nan], np.float32)),
        "values_tensor": onnx.numpy_helper.from_array(np.array([2.5, 3.5], np.float32)),
        "default_tensor": onnx.numpy_helper.from_array(np.array([-1.5], np.float32)),
    }
    yield case("LabelEncoder", "tensors", whole, opset=4, **tensors)
    yield case("OneHotEncoder", "integers", INTEGERS, cats_int64s=[2, -1, 0, 2])
    yield case("OneHotEncoder", "floats", Spread((3,)), cats_int64s=[1, 0])
    yield case("OneHotEncoder", "all that come", INTEGERS, cats_int64s=[*range(-3, 4)], zeros=0)


def linear_models() -> Iterator[OperatorCase]:
    weights, more = [0.5, -1.0, 0.25], [0.5, -1.0, 0.25, 1.0, 0.125, -0.5]
    for kind in TRANSFORMS:
        yield case("LinearRegressor", f"one {kind}", X, coefficients=weights, intercepts=[0.5], post_transform=kind)
        two: Attributes = {"coefficients": more, "targets": 2, "post_transform": kind}
        yield case("LinearRegressor", f"two {kind}", X, **two)
        one: Attributes = {
            "coefficients": weights,
            "intercepts": [0.1],
            "classlabels_ints": [5, 7],
            "post_transform": kind,
        }
        yield case("LinearClassifier", f"binary {kind}", X, outputs=2, **one)
        both: Attributes = {
            "coefficients": more,
            "intercepts": [0.1, -0.2],
            "classlabels_ints": [5, 7],
            "post_transform": kind,
        }
        yield case("LinearClassifier", f"two {kind}", X, outputs=2, **both)
    shares: Attributes = {"coefficients": [0.1, 0.2, 0.1], "intercepts": [0.3], "post_transform": "PROBIT"}
    yield case("LinearRegressor", "PROBIT", Spread((4, 3), low=0.0, high=1.0), **shares)
    vector: Attributes = {"coefficients": more, "intercepts": [0.1, -0.2], "classlabels_ints": [5, 7]}
    yield case("LinearClassifier", "vector", Spread((3,)), outputs=2, **vector)
    yield case("LinearClassifier", "integers", INTEGERS, outputs=2, **vector)
    yield case("LinearClassifier", "doubles", Spread((2, 3), np.float64), outputs=2, **vector)


def support_vectors() -> Iterator[OperatorCase]:
    generator = np.random.default_rng(0)
    vectors = generator.uniform(-1, 1, (6, 3)).astype(np.float32)
    kernels = {
        "LINEAR": [0.5, 0.25, 2.0],
        "POLY": [0.5, 0.25, 3.0],
        "RBF": [0.5, 0.0, 0.0],
        "SIGMOID": [0.5, 0.25, 0.0],
    }
    for kernel, parameters in kernels.items():
        machine: dict[str, Any] = {
            "kernel_type": kernel,
            "kernel_params": parameters,
            "support_vectors": vectors.ravel().tolist(),
        }
        one = generator.uniform(-1, 1, 6).round(2).tolist()
        yield case("SVMRegressor", kernel, X, n_supports=6, coefficients=one, rho=[0.2], **machine)
        binary = machine | {"vectors_per_class": [4, 2], "classlabels_ints": [3, 8], "coefficients": one, "rho": [0.1]}
        yield case("SVMClassifier", f"binary {kernel}", X, outputs=2, **binary)
        several = {"vectors_per_class": [2, 3, 1], "classlabels_ints": [3, 8, 9], "rho": [0.1, -0.2, 0.3]}
        three = machine | several | {"coefficients": generator.uniform(-1, 1, 12).tolist()}
        yield case("SVMClassifier", f"three {kernel}", X, outputs=2, **three)
    shares: Attributes = {"prob_a": [-1.5], "prob_b": [0.25]}
    yield case("SVMClassifier", "binary shares", X, outputs=2, **binary, **shares)
    more: Attributes = {"prob_a": [-1.5, -0.5, 1.0], "prob_b": [0.25, 0.0, -0.5]}
    yield case("SVMClassifier", "three shares", X, outputs=2, **three, **more)
    for kind in TRANSFORMS:
        yield case("SVMClassifier", f"binary {kind}", X, outputs=2, post_transform=kind, **binary)
        yield case("SVMClassifier", f"three {kind}", X, outputs=2, post_transform=kind, **three)
    square = machine | {"kernel_type": "POLY", "kernel_params": [0.5, 0.25, 2.0]}
    yield case("SVMRegressor", "square", X, n_supports=6, coefficients=one, rho=[0.2], **square)
    inlier = machine | {"kernel_type": "RBF", "one_class": 1}
    yield case("SVMRegressor", "one class", X, n_supports=6, coefficients=one, rho=[0.2], **inlier)
    unused: Attributes = {"kernel_params": [1.0, 0.0, 0.0]}
    yield case("SVMRegressor", "no vectors", X, coefficients=[0.5, -1.0, 0.25], rho=[0.2], **unused)
    flat = unused | {"coefficients": [0.5, -1.0, 0.25, 1.0, 0.125, -0.5], "rho": [0.2], "classlabels_ints": [3, 8]}
    yield case("SVMClassifier", "no vectors", X, outputs=2, **flat)
    yield case("SVMClassifier", "integers", INTEGERS, outputs=2, **flat)


# trees ----------------------------------------------------------------------------------------------------------


def trees(
    prefix: str,
    ids: Sequence[Sequence[int]],
    *,
    count: int = 3,
    depth: int = 3,
    tests: Sequence[str] = TESTS[:1],
    low: float = -1.0,
) -> dict[str, Any]:
    """Return the attributes of full trees over three features; their leaves give the listed scores in turn."""
    generator = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {}

    def add(**row: Any) -> None:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)

    for tree in range(count):
        for node in range(2 ** (depth + 1) - 1):
            leaf = node >= 2**depth - 1
            add(
                nodes_treeids=tree,
                nodes_nodeids=node,
                nodes_featureids=0 if leaf else int(generator.integers(3)),
                nodes_modes="LEAF" if leaf else tests[int(generator.integers(len(tests)))],
                nodes_values=0.0 if leaf else float(generator.integers(-4, 5)) / 4,
                nodes_truenodeids=0 if leaf else 2 * node + 1,
                nodes_falsenodeids=0 if leaf else 2 * node + 2,
                nodes_missing_value_tracks_true=0 if leaf else int(generator.integers(2)),
            )
            for score in ids[node % len(ids)] if leaf else ():
                weight = round(float(generator.uniform(low, 1)), 3)
                add(
                    **{
                        f"{prefix}_treeids": tree,
                        f"{prefix}_nodeids": node,
                        f"{prefix}_ids": score,
                        f"{prefix}_weights": weight,
                    }
                )
    return columns


def forests() -> Iterator[OperatorCase]:
    gaps = np.array([[np.nan, 0.25, -0.25], [0.5, np.nan, 0.75], [1.0, -1.0, np.nan]], np.float32)
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        yield case("TreeEnsembleRegressor", how, X, **trees("target", [[0]]), n_targets=1, aggregate_function=how)
        two = trees("target", [[0, 1]]) | {"n_targets": 2, "base_values": [0.5, -0.25]}
        yield case("TreeEnsembleRegressor", f"two {how}", X, **two, aggregate_function=how)
    some = trees("target", [[0], [1], [0, 1]]) | {"n_targets": 3}
    for how in ("SUM", "MIN", "MAX"):
        yield case("TreeEnsembleRegressor", f"some {how}", X, **some, aggregate_function=how)
        bases = some | {"base_values": [0.25, 1.0, 2.0]}
        yield case("TreeEnsembleRegressor", f"some {how} with bases", X, **bases, aggregate_function=how)
    mixed = trees("target", [[0]], tests=TESTS) | {"n_targets": 1, "base_values": [3.0]}
    yield case("TreeEnsembleRegressor", "all tests", X, **mixed)
    yield case("TreeEnsembleRegressor", "missing", gaps, **mixed)
    for test in TESTS:
        one = trees("target", [[0]], tests=[test]) | {"n_targets": 1}
        yield case("TreeEnsembleRegressor", test, np.array([[0.25, -0.5, 1.0], [0, 0, 0]], np.float32), **one)
    for kind in TRANSFORMS:
        yield case("TreeEnsembleRegressor", kind, X, **trees("target", [[0, 1]]), n_targets=2, post_transform=kind)
    yield case("TreeEnsembleRegressor", "doubles", Spread((4, 3), np.float64), **mixed)
    tensors = {name: mixed.pop(name) for name in ("nodes_values", "target_weights", "base_values")}
    exact = {f"{name}_as_tensor": onnx.numpy_helper.from_array(np.array(v) + 1e-9) for name, v in tensors.items()}
    yield case("TreeEnsembleRegressor", "tensors", Spread((4, 3), np.float64), opset=3, **mixed, **exact)


def classifiers() -> Iterator[OperatorCase]:
    binary = {"first": ([[0]], -1.0), "second": ([[1]], -1.0), "shares": ([[0]], 0.0), "both": ([[0, 1]], -1.0)}
    for name, (ids, low) in binary.items():
        plain = trees("class", ids, low=low) | {"classlabels_int64s": [4, 9]}
        for kind in TRANSFORMS:
            yield case("TreeEnsembleClassifier", f"{name} {kind}", X, outputs=2, post_transform=kind, **plain)
        for bases, kind in (([0.25], "NONE"), ([0.25, 0.5], "LOGISTIC")):
            more = plain | {"base_values": bases, "post_transform": kind}
            yield case("TreeEnsembleClassifier", f"{name} {len(bases)} bases", X, outputs=2, **more)
    either = trees("class", [[0], [0, 1], [1]], count=2, depth=2) | {"classlabels_int64s": [4, 9]}
    yield case("TreeEnsembleClassifier", "either", X, outputs=2, **either)
    for kind in TRANSFORMS:
        several = trees("class", [[0, 1, 2], [1], [0, 2]]) | {"classlabels_int64s": [4, 9, 5], "post_transform": kind}
        yield case("TreeEnsembleClassifier", f"three {kind}", X, outputs=2, **several)
    yield case(
        "TreeEnsembleClassifier", "three with bases", X, outputs=2, **several | {"base_values": [0.1, 0.2, -0.3]}
    )
    yield case("TreeEnsembleClassifier", "integers", INTEGERS, outputs=2, **several)


def ensembles() -> Iterator[OperatorCase]:
    """Trees whose leaves stand apart from their branches."""

    def tensor(values: Sequence[float], dtype: Any = np.float32) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(np.array(values, dtype))

    def attributes(dtype: Any = np.float32, **changes: Any) -> dict[str, Any]:
        return {
            "tree_roots": [0, 3],
            "nodes_featureids": [0, 1, 2, 0, 1],
            "nodes_splits": tensor([0.25, -0.5, 0.75, 0.0, 1.0], dtype),
            "nodes_modes": tensor([0, 1, 2, 3, 0], np.uint8),
            "nodes_truenodeids": [1, 0, 2, 4, 5],
            "nodes_falsenodeids": [2, 1, 3, 4, 0],
            "nodes_trueleafs": [0, 1, 1, 1, 1],
            "nodes_falseleafs": [0, 1, 1, 0, 1],
            "leaf_targetids": [0, 1, 0, 1, 0, 1],
            "leaf_weights": tensor([0.5, -1.0, 2.0, 0.25, -0.75, 1.5], dtype),
            "n_targets": 2,
        } | changes

    for how in range(4):
        yield case("TreeEnsemble", f"aggregate {how}", X, opset=5, **attributes(aggregate_function=how))
    for kind in range(4):
        yield case("TreeEnsemble", f"transform {kind}", X, opset=5, **attributes(post_transform=kind))
    yield case("TreeEnsemble", "doubles", Spread((4, 3), np.float64), opset=5, **attributes(np.float64))
    # float32 has no number between those of the inputs.
    near = Spread((4, 3), np.float64, low=0.1 - 1e-9, high=0.1 + 1e-9)
    splits = tensor([0.1] * 5, np.float64)
    yield case("TreeEnsemble", "close doubles", near, opset=5, **attributes(np.float64, nodes_splits=splits))
    sets = {
        "nodes_modes": tensor([6, 1, 6, 3, 4], np.uint8),
        "membership_values": tensor([1.0, -2.0, 0.0, np.nan, 2.0, np.nan]),
    }
    whole = np.array([[1, 0, 2], [-2, 1, 0], [0, -1, 2], [2, 1, 2], [3, 1, 2]], np.float32)
    yield case("TreeEnsemble", "members", whole, opset=5, **attributes(**sets))


CASES = [*features(), *encoders(), *linear_models(), *support_vectors(), *forests(), *classifiers(), *ensembles()]


def border(
    op_type: str, name: str, inputs: Sequence[np.ndarray], bad: Any, outputs: int = 1, **attributes: Any
) -> BorderCase:
    return BorderCase(
        op_type=op_type, name=name, inputs=inputs, bad=bad, attributes=attributes, domain=DOMAIN, outputs=outputs
    )


BORDERS = [
    border("Scaler", "overflow", [np.array([[3e38, 1e38]], np.float32)], [[True, False]], offset=[0.0], scale=[2.0]),
    border("Normalizer", "vanishing", [np.array([[-1.0, 1e-39]], np.float32)], True, norm="MAX"),
    border("Normalizer", "greatest", [np.array([[-1.0, 1e-30]], np.float32)], False, norm="MAX"),
    border("Normalizer", "squares", [np.array([[1e20, 1.0]], np.float32)], True, norm="L2"),
    border("Normalizer", "zero", [np.zeros((1, 2), np.float32)], False, norm="L2"),
    border(
        "LinearRegressor",
        "probit",
        [np.array([[0.0], [0.5], [1.0], [1.5]], np.float32)],
        [[True], [False], [True], [True]],
        coefficients=[1.0],
        post_transform="PROBIT",
    ),
    border(
        "LinearRegressor",
        "softmax of zeros",
        [np.array([[0.0], [0.5]], np.float32)],
        [[True, True], [False, False]],
        coefficients=[1.0, 2.0],
        targets=2,
        post_transform="SOFTMAX_ZERO",
    ),
]
