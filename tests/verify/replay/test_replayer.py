"""The replay's child process: life, death, time limits, and errors that users see."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from ranum_falsify.errors import ReplayCrashError, ReplayError, ReplayTimeoutError
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.process.child import _SERVER, Child
from ranum_falsify.verify.replay import replayer as replay
from ranum_falsify.verify.replay.replayer import Replayer
from tests.network.building import unchecked

LOG = unchecked("g (float[2] x) => (float[2] y) {y = Log(x)}")
ONE = {"x": np.ones(2, np.float32)}
ZERO = {"x": np.zeros(2, np.float32)}


def chain(length: int, size: int) -> onnx.ModelProto:
    g = ModelBuilder("chain")
    y, one = g.input("t0", [size]), g.constant(np.ones(size, np.float32), "c")
    for k in range(length):
        y = g.Add(y, one, out=f"t{k + 1}")
    g.output(y)
    return g.build()


def one_line(error: pytest.ExceptionInfo[ReplayError]) -> str:
    message = str(error.value)
    assert "\n" not in message and "; " in message
    return message


def pid(replayer: Replayer) -> int:
    assert replayer._child is not None
    return replayer._child.pid


def test_one_child_serves_many_requests() -> None:
    with Replayer(LOG) as replayer:
        first = pid(replayer)
        for _ in range(3):
            assert replayer.run(ONE).findings == ()
            assert [f.op_type for f in replayer.run(ZERO).findings] == ["Log"]
            np.testing.assert_array_equal(replayer.outputs(ONE)["y"], [0, 0])
        assert pid(replayer) == first


def test_outputs_come_in_the_model_s_order_without_the_exposed_ones() -> None:
    net = unchecked("g (float[2] x) => (float[2] z, float[2] a) { b = Neg(x) a = Neg(b) z = Neg(a) }")
    with Replayer(net) as replayer:
        assert list(replayer.run(ONE).outputs) == ["z", "a"]
        assert list(replayer.outputs(ONE)) == ["z", "a"]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes in bytes of the answers that were waited for."""
    sizes: list[int] = []
    original = Child._answer

    def answer(child: Child) -> tuple[str, object]:
        found = original(child)
        sizes.append(len(pickle.dumps(found, protocol=5)))
        return found

    monkeypatch.setattr(Child, "_answer", answer)
    return sizes


def test_lazy_start_and_restart_after_close() -> None:
    replayer = Replayer(LOG)
    assert replayer._child is None
    try:
        replayer.run(ONE)
        assert replayer._child is not None
        folder = replayer._child.folder
        replayer.close()
        assert replayer._child is None and not list(folder.glob("*"))
        assert replayer.run(ZERO).findings
    finally:
        replayer.close()


def test_start_does_not_wait(answers: list[int]) -> None:
    replayer = Replayer(LOG)
    try:
        replayer.start()
        assert not answers
        assert replayer.run(ONE).outputs
        assert len(answers) == 2, "of loading and of running"
    finally:
        replayer.close()


def test_a_child_that_is_done_serves_the_next_replayer() -> None:
    with Replayer(LOG) as replayer:
        replayer.run(ONE)
        child = pid(replayer)
    other = unchecked("g (float[2] x) => (float[2] z) { z = Neg(x) }")
    with Replayer(other) as replayer:
        assert replayer.outputs(ONE)["z"].tolist() == (-ONE["x"]).tolist()
        assert pid(replayer) == child


def test_close_ends_a_second_child() -> None:
    with Replayer(LOG) as first, Replayer(LOG) as second:
        first.run(ONE)
        second.run(ONE)
        children = {pid(first), pid(second)}
        assert len(children) == 2
    with pytest.raises(ProcessLookupError):
        for child in children:
            os.kill(child, 0)


@pytest.mark.parametrize("how", ["loading", "flushing"])
def test_a_child_that_is_not_as_good_as_new_is_ended(how: str) -> None:
    replayer = Replayer(LOG, flush=how == "flushing")
    replayer.start()
    if how == "flushing":
        replayer.run(ONE)
    child = pid(replayer)
    replayer.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_child_imports_neither_torch_nor_the_package() -> None:
    code = (
        "import runpy, sys; from pathlib import Path; serving = runpy.run_path(sys.argv[1]); "
        "serving['_service'](Path(sys.argv[2])); print(*{name.split('.')[0] for name in sys.modules})"
    )
    command = [sys.executable, "-P", "-c", code, str(_SERVER), str(replay._WORKER)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "onnxruntime" in loaded
    assert not {"torch", "dnnv", "ranum_falsify"} & set(loaded)


@pytest.mark.slow
def test_each_replayer_draws_numbers_of_its_own() -> None:
    noise = unchecked("g (float[2] x) => (float[2] y) { y = RandomNormalLike(x) }")
    drawn = set()
    for _ in range(4):
        with Replayer(noise) as replayer:
            drawn.add(replayer.outputs(ONE)["y"].tobytes())
    assert len(drawn) == 4


@pytest.mark.parametrize("when", ["idle", "loading"])
def test_killed_child_is_reported_and_replaced(when: str) -> None:
    with Replayer(LOG) as replayer:
        if when == "idle":
            replayer.run(ONE)
        os.kill(pid(replayer), signal.SIGKILL)
        with pytest.raises(ReplayCrashError, match="exit status -9") as error:
            replayer.run(ONE)
        one_line(error)
        assert replayer.run(ZERO).findings


def test_time_limit() -> None:
    with Replayer(LOG, timeout=30) as replayer:
        replayer.run(ONE)
        os.kill(pid(replayer), signal.SIGSTOP)
        replayer._timeout = 0.2
        with pytest.raises(ReplayTimeoutError, match=r"within 0\.2 s") as error:
            replayer.run(ONE)
        one_line(error)
        replayer._timeout = 30
        assert replayer.run(ZERO).findings


def test_interruption_leaves_no_stale_answer() -> None:
    with Replayer(LOG) as replayer:
        replayer.run(ONE)
        os.kill(pid(replayer), signal.SIGSTOP)
        timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            replayer.run(ZERO)
        assert replayer.run(ONE).findings == ()


def test_child_ignores_ctrl_c() -> None:
    with Replayer(LOG) as replayer:
        replayer.run(ONE)
        child = pid(replayer)
        os.kill(child, signal.SIGINT)
        assert replayer.run(ZERO).findings and pid(replayer) == child


def test_two_models_at_once() -> None:
    exp = unchecked("g (float[2] x) => (float[2] y) {y = Exp(x)}")
    with Replayer(LOG) as log, Replayer(exp) as other:
        assert log.run(ZERO).findings and not other.run(ZERO).findings


@pytest.mark.parametrize("data", [b"", b"garbage", LOG.SerializeToString()[:30], b"\x00" * 100])
def test_bad_bytes(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    with Replayer(path) as replayer, pytest.raises(ReplayError, match=r"bad\.onnx") as error:
        replayer.run(ONE)
    assert "cannot load" in one_line(error)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="there is no such file") as error:
        Replayer(tmp_path / "none.onnx").start()
    one_line(error)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = Log(nowhere)", "nowhere"),
        ("a = Log(b) b = Log(a) y = Log(a)", "cannot load"),
        ("y = NoSuchOperator(x)", "NoSuchOperator"),
        ("y = Log(x, x)", "cannot load"),
    ],
)
def test_bad_graphs(body: str, said: str) -> None:
    net = unchecked(f"g (float[2] x) => (float[2] y) {{{body}}}")
    with Replayer(net) as replayer, pytest.raises(ReplayError, match=said) as error:
        replayer.run(ONE)
    one_line(error)


def test_opset_of_the_future() -> None:
    net = onnx.ModelProto()
    net.CopyFrom(LOG)
    net.opset_import[0].version = 99
    with Replayer(net) as replayer, pytest.raises(ReplayError, match=r"(?i)opset") as error:
        replayer.run(ONE)
    one_line(error)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "x"),
        ({"x": np.ones(2)}, "double"),
        ({"x": np.ones((2, 1), np.float32)}, "rank"),
        ({"x": np.ones(3, np.float32)}, "x"),
        ({**ONE, "more": np.ones(2, np.float32)}, "more"),
    ],
)
def test_bad_inputs_leave_the_child_usable(inputs: dict[str, np.ndarray], said: str) -> None:
    with Replayer(LOG) as replayer:
        for request in (replayer.run, replayer.outputs):
            with pytest.raises(ReplayError, match=said) as error:
                request(inputs)
            assert "cannot run" in one_line(error)
        assert replayer.run(ZERO).findings


def test_scalars_views_and_zero_dimensions() -> None:
    net = unchecked("g (float s, float[2,3] x) => (float[2,3] y) {y = Div(x, s)}")
    x = np.arange(6, dtype=np.float32).reshape(3, 2).T
    with Replayer(net) as replayer:
        (finding,) = replayer.run({"s": np.float32(0), "x": x}).findings  # type: ignore[dict-item]
        np.testing.assert_array_equal(replayer.outputs({"s": np.array(2, np.float32), "x": x})["y"], x / 2)
    assert finding.values == {"x": 0, "s": 0}


def test_initializer_that_is_an_input() -> None:
    net = unchecked("""g (float[2] x, float[2] w = {1, 0}) => (float[2] y) { l = Log(w) y = Add(x, l) }""")
    assert [value.name for value in net.graph.input] == ["x", "w"]
    with Replayer(net) as replayer:
        assert replayer.run(ONE).findings == ()  # the stored 0 makes a constant -Inf
        (finding,) = replayer.run({**ONE, "w": np.zeros(2, np.float32)}).findings
        assert finding.operands == {"w": (0, 0)}
        np.testing.assert_array_equal(replayer.outputs({**ONE, "w": ONE["x"]})["y"], [1, 1])


def external(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save_model(chain(3, 1000), path, save_as_external_data=True, location="weights.bin")
    assert (tmp_path / "weights.bin").stat().st_size >= 4000
    return path


def test_external_data(tmp_path: Path) -> None:
    path = external(tmp_path)
    x = {"t0": np.full(1000, 1, np.float32)}
    for model in (path, onnx.load(path)):
        with Replayer(model) as replayer:
            np.testing.assert_array_equal(replayer.run(x).outputs["t3"], np.full(1000, 4))
            np.testing.assert_array_equal(replayer.outputs(x)["t3"], np.full(1000, 4))


def test_external_data_of_a_constant_node(tmp_path: Path) -> None:
    net = chain(1, 1000)
    value = numpy_helper.from_array(np.full(1000, -np.inf, np.float32), "v")
    net.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=value))
    del net.graph.initializer[:]
    path = tmp_path / "model.onnx"
    onnx.save_model(net, path, save_as_external_data=True, location="w.bin", convert_attribute=True)
    assert (tmp_path / "w.bin").stat().st_size >= 4000
    with Replayer(path) as replayer:
        result = replayer.run({"t0": np.zeros(1000, np.float32)})
    assert np.isneginf(result.outputs["t1"]).all() and result.findings == ()


def test_external_data_that_is_not_there(tmp_path: Path) -> None:
    path = external(tmp_path)
    with pytest.raises(ReplayError, match="external data is not loaded") as error:
        Replayer(onnx.load(path, load_external_data=False)).start()
    one_line(error)
    (tmp_path / "weights.bin").unlink()
    with Replayer(path) as replayer, pytest.raises(ReplayError, match=r"weights\.bin") as error:
        replayer.run({"t0": np.ones(1000, np.float32)})
    one_line(error)


def test_model_beyond_protobuf_s_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_LARGEST", 3000)
    with pytest.raises(ReplayError, match="external data") as error:
        Replayer(chain(3, 1000)).start()
    one_line(error)


def test_original_model_is_left_alone() -> None:
    before = LOG.SerializeToString()
    with Replayer(LOG) as replayer:
        replayer.run(ONE)
    assert LOG.SerializeToString() == before


def test_a_thousand_intermediate_tensors_are_not_sent_back(answers: list[int]) -> None:
    x = {"t0": np.zeros(1000, np.float32)}
    with Replayer(chain(1000, 1000)) as replayer:
        replayer.run(x), replayer.outputs(x)
        _, exposed, plain = answers
    assert plain >= 4000, "the one output"
    assert exposed < 2 * plain


def test_deep_chain_needs_no_recursion() -> None:
    net = chain(5_000, 1)
    net.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full(1, 1e35, np.float32), "c"))
    with Replayer(net) as replayer:
        (finding,) = replayer.run({"t0": np.zeros(1, np.float32)}).findings
    assert 3300 < finding.node_index < 3500 and finding.kind == "inf"
