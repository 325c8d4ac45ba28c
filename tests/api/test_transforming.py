"""`transform` in Python: passes and metrics of one's own, what analyses find, and what a broken promise leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import parser

import ranum_falsify as rf
from ranum_falsify.errors import TransformError, UsageError
from ranum_falsify.rewrite import AnalysisPass, Rewrite, metric, register, verify
from ranum_falsify.rewrite.catalogue import find_pass, import_passes
from ranum_falsify.rewrite.checks.comparing import METRICS
from ranum_falsify.rewrite.registry import faults, forget, registered

SOFTMAX = "g (float[2, 3] x) => (float[2, 3] y) { p = Softmax <axis = -1> (x) y = Log(p) }"
PASSES = '''
from ranum_falsify.rewrite import AnalysisPass, Rewrite, metric, register, verify

metric("largest", lambda pairs: max(float(abs(new).max()) for _, new in pairs))


@verify.metric
@register()
class HalveLog(Rewrite):
    """Log(x) becomes Log(x) / 2."""

    def pattern(self, op, x):
        return op.Log(x)

    def rewrite(self, op, x):
        return op.Mul(op.Log(x), op.Constant(value_float=0.5))


@register()
class CountLogs(AnalysisPass):
    """How many logarithms there are."""

    def analyse(self, model):
        return sum(node.op_type == "Log" for node in model.graph)


@register("no_promise")
class NoPromise(Rewrite):
    """Promises nothing."""

    def pattern(self, op, x):
        return op.Log(x)

    def rewrite(self, op, x):
        return op.Log(x)


@register("no_pass")
class NoPass:
    """Is no pass."""
'''


def proto_of(text: str) -> onnx.ModelProto:
    proto: onnx.ModelProto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    return proto


def run(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    passes, metrics = {*registered(), *faults()}, {*METRICS}
    yield
    forget({*registered(), *faults()} - passes)
    for name in METRICS.keys() - metrics:
        del METRICS[name]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "passes.py"
    path.write_text(PASSES)
    return path


@pytest.mark.slow
def test_a_pass_runs_and_says_how_it_was_verified(tmp_path: Path) -> None:
    done = rf.transform(proto_of(SOFTMAX), ["stable_log_softmax"], box=(-200, 200))
    (report,) = done.passes
    assert report.is_modified and report.verified[0] == "structure" and any("sampled" in how for how in report.verified)
    assert [how for how in report.verified if how.startswith(("searched", "proved"))], "with a box, it is searched"
    assert done.operators == {"LogSoftmax": 1}
    assert "stable_log_softmax: replaced 1" in str(done)
    done.save(tmp_path / "new.onnx")
    x = np.array([[0, 100, 200], [1, 2, 3]], np.float32)
    assert (
        np.isfinite(run(onnx.load(tmp_path / "new.onnx"), x)).all() and not np.isfinite(run(proto_of(SOFTMAX), x)).all()
    )
    assert done.to_json()["passes"][0]["name"] == "stable_log_softmax"
    assert rf.check(done.model, box=(-200, 200)).verdict == "holds"


def test_without_a_range_nothing_is_searched() -> None:
    (report,) = rf.transform(proto_of(SOFTMAX), ["stable_log_softmax"]).passes
    assert report.verified[0] == "structure" and len(report.verified) == 2


@pytest.mark.slow
def test_a_broken_promise_leaves_the_model_before_it_and_an_input() -> None:
    @verify.equality
    @register()
    class DropLog(Rewrite):
        def pattern(self, op: Any, x: Any) -> Any:
            return op.Log(x)

        def rewrite(self, op: Any, x: Any) -> Any:
            return op.Identity(x)

    with pytest.raises(rf.PostconditionError, match="'drop_log'") as caught:
        rf.transform(proto_of(SOFTMAX), ["lower_softmax", DropLog] if "lower_softmax" in registered() else [DropLog])
    assert [node.op_type for node in caught.value.checkpoint.graph][-1] == "Log"
    assert getattr(caught.value.__cause__, "inputs", None)


def test_a_file_of_passes_one_of_which_is_bad(file: Path) -> None:
    assert {spec.name for spec in import_passes(file)} == {"halve_log", "count_logs", "no_promise"}
    done = rf.transform(proto_of(SOFTMAX), ["halve_log"], metrics={"largest": (0, 1e3), "max_abs_error": (0, 1e3)})
    assert done.passes[0].is_modified
    with pytest.raises(TransformError, match="'no_promise' has no guarantee"):
        rf.transform(proto_of(SOFTMAX), ["no_promise"])
    with pytest.raises(TransformError, match=r"'no_pass': .* is no pass"):
        find_pass("no_pass")


def test_a_metric_of_ones_own_is_kept(file: Path) -> None:
    with pytest.raises(rf.PostconditionError) as caught:
        rf.transform(proto_of(SOFTMAX), ["halve_log"], imports=[file], metrics={"largest": (0, 1e-6)})
    assert "largest" in str(caught.value.__cause__)
    with pytest.raises(TransformError, match="exists already"):
        metric("largest", lambda pairs: 0.0)
    metric("broken", lambda pairs: float(pairs[7][0].max()))
    with pytest.raises(TransformError, match="metric 'broken': IndexError"):
        rf.transform(proto_of(SOFTMAX), ["halve_log"], metrics={"broken": (0, 1)}, samples=2)


def test_what_analyses_find_is_known_to_the_passes_after_them(file: Path) -> None:
    @register()
    class LookBack(AnalysisPass):
        def analyse(self, model: ir.Model) -> Any:
            return {"before": dict(self.state)}

    done = rf.transform(proto_of(SOFTMAX), ["count_logs", LookBack], imports=[file], state={"earlier": [1]})
    assert done.state == {"earlier": [1], "count_logs": 1, "look_back": {"before": {"earlier": [1], "count_logs": 1}}}
    assert not done.passes[0].is_modified and done.passes[0].found == 1


def test_lost_metadata_is_a_broken_promise() -> None:
    @verify.equality
    @register()
    class LoseMetadata(ir.passes.InPlacePass):
        def call(self, model: ir.Model) -> ir.passes.PassResult:
            model.metadata_props.clear()
            return ir.passes.PassResult(model, modified=True)

    proto = proto_of(SOFTMAX)
    proto.metadata_props.add(key="classes", value="cat,dog")
    with pytest.raises(rf.PostconditionError) as caught:
        rf.transform(proto, [LoseMetadata])
    assert "metadata 'classes' was 'cat,dog'" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("passes", "options", "words"),
    [
        (["no_such"], {}, "no pass 'no_such'"),
        ([int], {}, "is not registered"),
        (["stable_log_softmax"], {"box": (1, 0)}, "no finite numbers"),
        (["stable_log_softmax"], {"box": {"z": (0, 1)}}, "inputs have no 'z'"),
        (["stable_log_softmax"], {"imports": ["missing.py"]}, "no such file"),
        (["stable_log_softmax"], {"metrics": {"bias": (0, 1)}}, "no metric 'bias'"),
    ],
)
def test_bad_input_is_told_in_one_line(passes: list[Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises((TransformError, UsageError), match=words) as caught:
        rf.transform(proto_of(SOFTMAX), passes, **options)
    assert "\n" not in str(caught.value)
