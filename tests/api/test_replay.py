"""`replay`: counterexamples again, from arrays, results and files."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import ranum_falsify as rf
from ranum_falsify.api.replayed import ReplayCase, ReplaySettings, TorchReplay
from ranum_falsify.errors import ReplayError
from ranum_falsify.network import read

TWO_INPUTS = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 20]> f (float[3] x, float[3] y) => (float[3] z) {'
    " [add] s = Add(x, y) [log] z = Log(s) }"
)
ONE_INPUT = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 20]> f (float[2] x) => (float[2] z) <float[2] w = {1, 1}> {'
    " [scale] s = Mul(x, w) [root] z = Sqrt(s) }"
)


def test_arrays_show_which_operator_fails() -> None:
    shown = rf.replay(TWO_INPUTS, {"x": np.zeros(3, np.float32), "y": np.array([1, 0, 2], np.float32)})
    (finding,) = shown.findings
    assert (shown.violated, finding.node, finding.kind, finding.index) == (True, "log", "inf", (1,))
    assert "log (Log) gives infinity" in str(shown)


def test_an_array_stands_for_the_only_input() -> None:
    assert not rf.replay(ONE_INPUT, np.ones(2, np.float32)).violated
    assert rf.replay(ONE_INPUT.SerializeToString(), -np.ones(2, np.float32)).violated
    with pytest.raises(rf.UsageError, match="the model has 2 inputs"):
        rf.replay(TWO_INPUTS, np.ones(3, np.float32))


def test_results_and_their_files_replay(tmp_path: Path) -> None:
    result = rf.check(TWO_INPUTS, box=(-1, 1), self_check=False)
    saved = result.save(tmp_path / "cex")
    assert saved.description is not None
    for model, inputs in ((None, result), (TWO_INPUTS, result), (saved.models["N"], saved.description)):
        shown = rf.replay(model, inputs)
        assert shown.violated and {finding.node for finding in shown.findings} == {"log"}
        assert not shown.notices


def test_freed_weights_and_derivatives_replay(tmp_path: Path) -> None:
    result = rf.check(ONE_INPUT, box=(1, 2), free="all", weights=(-1, 1), self_check=False)
    assert result.verdict == "violated" and rf.replay(ONE_INPUT, result).violated
    steep = rf.check(ONE_INPUT, box=(0, 1), gradient=True, self_check=False)
    shown = rf.replay(None, steep)
    assert shown.violated and not shown.findings and "a derivative that is not finite" in str(shown)


def test_what_pytorch_alone_shows_replays_on_pytorch(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> f (float[2] x) => (float[2] z) <float one = {1}> {'
        " s = Sigmoid(x) d = Sub(one, s) [log] z = Log(d) }"
    )
    points = torch.linspace(16, 18, 1001)[:, None].expand(-1, 2)
    there = [x.contiguous() for x in points if bool((torch.sigmoid(x.contiguous()) == 1).all())]
    few = [x.numpy() for x in there[:: len(there) // 10 + 1]]
    apart = [x for x in few if not rf.replay(model, x).violated]
    if not apart:
        pytest.skip("this processor's kernels agree there")
    result = rf.check(model, box=float(apart[0][0]), runtime="torch", self_check=False)
    (log,) = [operator for operator in result.operators if operator.verdict == "violated"]
    assert log.runtimes == ("torch",)
    saved = result.save(tmp_path / "cex")
    assert saved.description is not None
    shown = rf.replay(model, saved.description)
    assert shown.violated and not shown.findings
    assert "confirmed by PyTorch only, not by ONNX Runtime" in str(shown)


def test_a_result_without_counterexample_is_refused() -> None:
    held = rf.check(ONE_INPUT, box=(1, 2), self_check=False)
    with pytest.raises(rf.UsageError, match="the result, holds, has no counterexample"):
        rf.replay(None, held)
    with pytest.raises(rf.UsageError, match="only a result knows its models"):
        rf.replay(None, {"x": np.ones(2, np.float32)})


def test_operators_that_no_row_exists_for_replay() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>'
        " f (float[2,2] x) => (float[2,2] d) { d = com.microsoft.ScaledSiLU(x) }"
    )
    shown = rf.replay(model, np.eye(2, dtype=np.float32))
    assert (shown.violated, shown.findings) == (False, ())


def test_pytorch_runs_beside() -> None:
    shown = rf.replay(ONE_INPUT, -np.ones(2, np.float32))
    assert "valid where x >= 0" in str(shown)
    assert "confirmed by ONNX Runtime, and by PyTorch" in str(shown)


def test_what_fails_on_pytorch_alone_is_said_but_not_counted() -> None:
    beside = TorchReplay(read(ONE_INPUT), {"x": -np.ones(2, np.float32)})
    alone = beside.find_torch_alone(())
    assert [(node, failure.kind) for node, failure in alone.items()] == [("root", "nan")]
    case = ReplayCase(network="N", load=dict)
    shown = ReplaySettings(threads=1, reading=nullcontext).show((), case, beside)
    assert not shown.violated
    assert shown.lines == ["  only on PyTorch, and so not counted: root (Sqrt) gives NaN"]


def test_a_model_that_cannot_be_read_is_replayed_without_pytorch(tmp_path: Path) -> None:
    text = '<ir_version: 3, opset_import: ["": %d]> f (float[n, 2] x) => (float[n, 2] z) { [root] z = Sqrt(x) }'
    negative = -np.ones((3, 2), np.float32)
    assert "and by PyTorch" in str(rf.replay(onnx.parser.parse_model(text % 7), negative))
    onnx.save(onnx.parser.parse_model(text % 6), tmp_path / "old.onnx")
    shown = rf.replay(tmp_path / "old.onnx", negative)
    assert shown.violated and "PyTorch" not in str(shown)


def test_what_is_refused_after_an_operator_is_not_its_fault() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> f (float[12] x, int64[2] s) => (z) {'
        " [reshape] r = Reshape(x, s) [product] z = MatMul(r, w) }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((6, 2), np.float32), "w"))
    x = np.ones(12, np.float32)
    with pytest.raises(ReplayError, match="product"):
        rf.replay(model, {"x": x, "s": np.array([3, 4])})
    (finding,) = rf.replay(model, {"x": x, "s": np.array([5, 5])}).findings
    assert (finding.node, finding.kind) == ("reshape", "error")
