"""Classical models as converters export them: read, equal to ONNX Runtime, within their bounds, and decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import ranum_falsify as rf
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.network import Graph, read
from tests.network.building import session

# Where the extra `test` is not installed, these tests are skipped.
skl2onnx = pytest.importorskip("skl2onnx")
data_types = pytest.importorskip("skl2onnx.common.data_types")
cluster = pytest.importorskip("sklearn.cluster")
compose = pytest.importorskip("sklearn.compose")
decomposition = pytest.importorskip("sklearn.decomposition")
discriminant_analysis = pytest.importorskip("sklearn.discriminant_analysis")
ensemble = pytest.importorskip("sklearn.ensemble")
gaussian_process = pytest.importorskip("sklearn.gaussian_process")
impute = pytest.importorskip("sklearn.impute")
linear_model = pytest.importorskip("sklearn.linear_model")
mixture = pytest.importorskip("sklearn.mixture")
naive_bayes = pytest.importorskip("sklearn.naive_bayes")
neighbors = pytest.importorskip("sklearn.neighbors")
neural_network = pytest.importorskip("sklearn.neural_network")
pipeline = pytest.importorskip("sklearn.pipeline")
preprocessing = pytest.importorskip("sklearn.preprocessing")
svm = pytest.importorskip("sklearn.svm")
tree = pytest.importorskip("sklearn.tree")

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(120, 4)).astype(np.float32)
CLASSES = (X[:, 0] + X[:, 1] > 0).astype(np.int64) + (X[:, 2] > 0.5)
NAMES = np.array(["low", "middle", "high"])[CLASSES]
VALUES = (X @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.1 * X[:, 0] ** 2).astype(np.float32)
MIXED = np.column_stack([X[:, :2], CLASSES, X[:, 3] > 0]).astype(np.float32)
OPSETS = {"": 18, "ai.onnx.ml": 3}


def after(*steps: Any) -> Any:
    return pipeline.make_pipeline(*steps)


def linear() -> Any:
    return linear_model.LogisticRegression()


def columns(unknown: str) -> Any:
    kinds = preprocessing.OneHotEncoder(handle_unknown=unknown)
    return compose.ColumnTransformer([("numbers", preprocessing.StandardScaler(), [0, 1]), ("kinds", kinds, [2, 3])])


NAMED = ("logistic regression", "forest", "network")
"""Classifiers whose labels are strings."""

CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "logistic regression": lambda: after(preprocessing.StandardScaler(), linear()),
    "normalised by sums": lambda: after(preprocessing.Normalizer("l1"), linear()),
    "normalised by roots": lambda: after(preprocessing.Normalizer("l2"), linear()),
    "missing values": lambda: after(impute.SimpleImputer(), preprocessing.RobustScaler(), linear()),
    "binarised": lambda: after(preprocessing.Binarizer(threshold=0.1), linear()),
    "components": lambda: after(decomposition.PCA(2), linear()),
    "tree": lambda: tree.DecisionTreeClassifier(max_depth=4),
    "forest": lambda: ensemble.RandomForestClassifier(10, max_depth=4, random_state=0),
    "boosted trees": lambda: ensemble.GradientBoostingClassifier(n_estimators=5, random_state=0),
    "boosted stumps": lambda: ensemble.AdaBoostClassifier(n_estimators=3, random_state=0),
    "support vectors": lambda: svm.SVC(),
    "support vectors, cubic": lambda: svm.SVC(kernel="poly"),
    "linear support vectors": lambda: svm.LinearSVC(),
    "naive Bayes": lambda: naive_bayes.GaussianNB(),
    "network": lambda: neural_network.MLPClassifier((6,), max_iter=20, random_state=0),
    "voting neighbours": lambda: neighbors.KNeighborsClassifier(3),
    "neighbours voting by distance": lambda: neighbors.KNeighborsClassifier(3, weights="distance"),
    "discriminant": lambda: discriminant_analysis.LinearDiscriminantAnalysis(),
}
REGRESSORS: dict[str, Callable[[], Any]] = {
    "polynomials": lambda: after(preprocessing.PolynomialFeatures(2), linear_model.Ridge()),
    "scaled to a range": lambda: after(preprocessing.MinMaxScaler(), linear_model.Lasso(0.01)),
    "forest of numbers": lambda: ensemble.RandomForestRegressor(10, max_depth=4, random_state=0),
    "boosted numbers": lambda: ensemble.GradientBoostingRegressor(n_estimators=5, random_state=0),
    "support vectors of numbers": lambda: svm.SVR(),
    "neighbours": lambda: neighbors.KNeighborsRegressor(),
    "Gaussian process": lambda: gaussian_process.GaussianProcessRegressor(alpha=0.1),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "isolation forest": lambda: ensemble.IsolationForest(n_estimators=5, random_state=0),
    "one class": lambda: svm.OneClassSVM(),
    "mixture": lambda: mixture.GaussianMixture(2, random_state=0),
}


def export(name: str) -> onnx.ModelProto:
    """Return the exported model of a name."""
    if name in CLASSIFIERS:
        fitted = CLASSIFIERS[name]().fit(X, NAMES if name in NAMED else CLASSES)
    elif name in REGRESSORS:
        fitted = REGRESSORS[name]().fit(X, VALUES)
    else:
        fitted = OTHERS[name]().fit(X)
    model: onnx.ModelProto = skl2onnx.to_onnx(fitted, X[:1], target_opset=OPSETS)
    return model


def watched(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose outputs are all tensors that its nodes write."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    given = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in given]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return exposed


def check_bounds(model: onnx.ModelProto, graph: Graph, generator: np.random.Generator) -> None:
    """Assert that outputs lie within the bounds of boxes around samples, and are what PyTorch computes."""
    runtime = session(watched(model))
    written = [output.name for output in runtime.get_outputs()]
    shapes = [details.shape for details in graph.input_details]
    for width in (0.0, 0.1, 3.0):
        centres = [generator.normal(size=shape).astype(np.float32) for shape in shapes]
        ends = [(c - np.float32(width), c + np.float32(width)) for c in centres]
        bounds = IntervalAnalysis(graph).run([Interval.box(*pair) for pair in ends])
        for _ in range(4):
            points = [generator.uniform(low, high).astype(np.float32).clip(low, high) for low, high in ends]
            theirs = dict(
                zip(written, runtime.run(None, dict(zip(graph.input_names, points, strict=True))), strict=True)
            )
            ours = graph(*points, squeeze=False)
            for name, mine, found in zip(graph.output_names, ours, bounds, strict=True):
                if theirs[name].dtype.kind == "f":
                    assert found is not None and bool(found.encloses(torch.from_numpy(theirs[name])).all()), name
                    np.testing.assert_allclose(mine, theirs[name], rtol=1e-3, atol=1e-4)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", [*CLASSIFIERS, *REGRESSORS, *OTHERS])
def test_exported_model_is_read_and_holds(name: str) -> None:
    model = export(name)
    check_bounds(model, read(model), np.random.default_rng(1))
    assert rf.check(model, box=(-3, 3), timeout=60).verdict == "holds"


@pytest.mark.few(1)
@pytest.mark.parametrize("make", [cluster.KMeans, neighbors.KNeighborsClassifier])
def test_distances_are_read(make: Any) -> None:
    fitted = make(3).fit(X, CLASSES)
    model = skl2onnx.to_onnx(fitted, X[:1], target_opset=OPSETS)
    check_bounds(model, read(model), np.random.default_rng(1))


def test_columns_are_inputs_of_their_own() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": X[:, 0], "income": X[:, 1], "kind": CLASSES})
    parts = [
        ("numbers", preprocessing.StandardScaler(), ["age", "income"]),
        ("kinds", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["kind"]),
    ]
    fitted = after(compose.ColumnTransformer(parts), linear()).fit(frame, CLASSES)
    kinds = [
        ("age", data_types.FloatTensorType([None, 1])),
        ("income", data_types.FloatTensorType([None, 1])),
        ("kind", data_types.Int64TensorType([None, 1])),
    ]
    model = skl2onnx.to_onnx(fitted, initial_types=kinds, target_opset=OPSETS)
    result = rf.check(model, box={"age": (-3, 3), "income": (0, 2), "kind": (0, 9)}, timeout=60)
    assert result.verdict == "holds"


@pytest.mark.parametrize(("unknown", "verdict"), [("ignore", "holds"), ("error", "violated")])
def test_categories_of_one_matrix(unknown: str, verdict: str) -> None:
    model = skl2onnx.to_onnx(after(columns(unknown), linear()).fit(MIXED, CLASSES), MIXED[:1], target_opset=OPSETS)
    result = rf.check(model, box=(-3, 3), timeout=60)
    assert result.verdict == verdict
    assert all(op.kind == "error" for op in result.operators if op.verdict == "violated")


@pytest.mark.parametrize(
    ("encoder", "verdict"),
    [
        (preprocessing.OneHotEncoder(handle_unknown="ignore"), "holds"),
        (preprocessing.OneHotEncoder(), "violated"),
        (preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), "holds"),
    ],
    ids=["one of many", "one of known", "ordinal"],
)
def test_columns_of_strings(encoder: Any, verdict: str) -> None:
    pandas = pytest.importorskip("pandas")
    words = np.array(["red", "green", "blue"], object)
    frame = pandas.DataFrame({"age": X[:, 0], "kind": words[CLASSES % 3], "town": words[::-1][CLASSES % 3]})
    parts = [("numbers", preprocessing.StandardScaler(), ["age"]), ("kinds", encoder, ["kind", "town"])]
    fitted = after(compose.ColumnTransformer(parts), linear()).fit(frame, words[CLASSES % 3])
    texts = [(name, data_types.StringTensorType([None, 1])) for name in ("kind", "town")]
    kinds = [("age", data_types.FloatTensorType([None, 1])), *texts]
    model = skl2onnx.to_onnx(fitted, initial_types=kinds, target_opset=OPSETS)
    result = rf.check(model, box=(-3, 3), timeout=60)
    assert result.verdict == verdict
    assert all(op.kind == "error" for op in result.operators if op.verdict == "violated")


@pytest.mark.parametrize("kind", ["LGBMClassifier", "LGBMRegressor"])
def test_lightgbm(kind: str) -> None:
    lightgbm, onnxmltools = pytest.importorskip("lightgbm"), pytest.importorskip("onnxmltools")
    types = onnxmltools.convert.common.data_types
    fitted = getattr(lightgbm, kind)(n_estimators=5, verbose=-1).fit(X, CLASSES if "Class" in kind else VALUES)
    model = onnxmltools.convert_lightgbm(
        fitted, initial_types=[("x", types.FloatTensorType([None, 4]))], target_opset=15
    )
    check_bounds(model, read(model), np.random.default_rng(1))
    assert rf.check(model, box=(-3, 3), timeout=60).verdict == "holds"
