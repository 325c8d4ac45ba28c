"""The graph that ONNX Runtime's optimiser makes of a model."""

import os
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ranum_falsify.network import optimised as module
from ranum_falsify.network import read
from ranum_falsify.network.optimised import Optimised, find_known_details, optimise
from tests.network.building import parse, types, unchecked

FOLDED = (
    "g (float[1,1,N,N] x) => (float[1,1,N,N] y) <float[1,1,1,1] w = {2}, float[1,1,1] k = {3}>"
    "{ c = Conv(x, w) y = Mul(c, k) }"
)


def test_constants_are_folded_as_onnx_runtime_does() -> None:
    graph = read(parse(FOLDED), dims={"N": 4})
    found = optimise(graph)
    assert found.graph is not None and types(found.graph) == ["Conv"]
    assert found.graph.input_details == graph.input_details
    (conv,) = found.graph.nodes
    assert conv.w.item() == 6.0
    assert not (found.refusal or found.fault)


def test_freed_weights_are_inputs() -> None:
    graph = read(parse(FOLDED), dims={"N": 4}, free=["w"])
    found = optimise(graph).graph
    assert found is not None
    assert found.input_names == ("x", "w")
    assert types(found) == ["Conv", "Mul"]


@pytest.mark.parametrize(("type_name", "told"), [("float", True), ("float16", False)])
def test_shapes_are_known_but_around_half_precision(type_name: str, told: bool) -> None:
    text = f"g ({type_name}[2,3] x) => ({type_name}[3,2] y) {{ a = Exp(x) b = Transpose(a) c = Neg(b) y = Abs(c) }}"
    graph = read(parse(text))
    found = optimise(graph).graph
    assert found is not None and [d.shape for d in found.output_details] == [(3, 2)]
    assert set(find_known_details(graph)) == ({"a", "b", "c", "y"} if told else set())


def test_what_the_values_of_a_row_refuse_is_no_operator_of_a_known_shape() -> None:
    """ONNX Runtime scales the bias, too, beside scales of fewer dimensions than a batch of matrices."""
    text = """g (float[2,3,5] x) => (float[2,3,2] y) <int8[2,5,2] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2},
        float[2] k = {0.5, 0.25}, float[2] c = {9, 9}, int8 p = {0}>
        { q, s, z = DynamicQuantizeLinear(x) m = MatMulInteger(q, w, z, p) f = Cast<to = 1>(m)
          t = Mul(s, k) u = Mul(f, t) y = Add(u, c) }"""
    model = parse(text)
    rewritten, _ = module.optimise_model(model)
    found = optimise(read(model)).graph
    assert rewritten is not None and found is not None
    if "DynamicQuantizeMatMul" in [node.op_type for node in rewritten.graph.node]:
        assert any("scales the bias" in notice for notice in found.notices)


def test_a_slice_is_written_first() -> None:
    graph = read(parse("g (float[2] x) => (float[2] y) { a = Neg(x) b = Identity(a) c = Exp(b) y = Abs(c) }"))[:-1]
    found = optimise(graph).graph
    assert found is not None and types(found) == ["Neg", "Exp"]


def test_a_model_that_onnx_runtime_refuses_runs_nowhere() -> None:
    model = parse("g (bfloat16[2] x) => (bfloat16[2] y) { y = Erf(x) }")
    found = optimise(read(model))
    assert found.graph is None and found.refusal and not found.fault


def test_a_child_that_died_is_replaced() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Identity(x) y = Exp(a) }"
    assert optimise(read(parse(text))).graph is not None
    with module.optimiser.use() as child:
        os.kill(child.pid, signal.SIGKILL)
        child._process.wait()
    assert optimise(read(parse(text))).graph is not None


def test_a_child_whose_folder_is_gone_is_replaced() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Identity(x) y = Exp(a) }"
    with module.optimiser.use() as child:
        shutil.rmtree(child.folder)
    assert optimise(read(parse(text))).graph is not None
    assert child.is_closed


def test_a_child_that_dies_while_it_optimises_is_replaced() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Identity(x) y = Exp(a) }"
    with module.optimiser.use() as child:
        child.send("nothing", {})
        assert child.receive(timeout=60)[0] == "error"
    os.kill(child.pid, signal.SIGSTOP)  # it does not answer the next request

    def kill_once_it_has_the_model() -> None:
        while not (child.folder / "model.onnx").exists():
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_once_it_has_the_model, daemon=True)
    killer.start()
    assert "crashes" in optimise(read(parse(text))).fault
    killer.join()
    assert optimise(read(parse(text))).graph is not None


def test_threads_get_what_is_made_of_their_own_graphs() -> None:
    texts = [FOLDED.replace("{2}", f"{{{number}}}") for number in range(1, 7)]
    graphs = [[read(parse(text), dims={"N": 4}) for _ in range(12)] for text in texts]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(len(graphs)) as pool:
            found = list(pool.map(lambda mine: [weights_of(optimise(graph)) for graph in mine], graphs))
    finally:
        sys.setswitchinterval(before)
    assert found == [[3.0 * number] * 12 for number in range(1, 7)]


def weights_of(found: Optimised) -> float | str:
    return found.fault or found.refusal if found.graph is None else float(found.graph.nodes[0].w.item())


def test_a_broken_model_runs_nowhere() -> None:
    graph = read(parse("g (float[2] x) => (float[2] y) { y = Exp(x) }"))
    graph.source = unchecked("g (float[2] x) => (float[2] y) { y = Exp(missing) }")
    assert optimise(graph).graph is None and optimise(graph).refusal


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds another process to a limit of memory")
def test_what_only_the_optimiser_refuses_may_run() -> None:
    import resource

    text = (
        "g (float[1] x) => (float[N] y) <float[1] k = {1}, int64[1] s = {16000000}> { c = Expand(k, s) y = Mul(x, c) }"
    )
    graph = read(parse(text))
    with module.optimiser.use() as child:
        assert child.ask("nothing", {}, timeout=60)[0] == "error"
        held = Path(f"/proc/{child.pid}/status").read_text().partition("VmData:")[2].split()[0]
        # Enough for the constant, and too little for a copy: some versions make one to run it, all to write it.
        resource.prlimit(child.pid, resource.RLIMIT_DATA, (1024 * int(held) + 95 * 2**20, resource.RLIM_INFINITY))
    found = optimise(graph)
    module.optimiser.forget()
    assert found.graph is None and not found.refusal
    assert any(text in found.fault for text in ("its optimiser fails", "it cannot be written"))


def test_a_model_that_cannot_be_written_may_run() -> None:
    with module.optimiser.use() as child:
        target = child.folder / "optimised.onnx"
    target.mkdir()
    found = optimise(read(parse("g (float[2] x) => (float[2] y) { y = Exp(x) }")))
    target.rmdir()
    assert found.graph is None and "cannot be written" in found.fault and not found.refusal


def test_conversions_are_left_out_as_at_the_highest_level() -> None:
    text = (
        "g (float[2,2] x) => (float[2,2] y) <float16[2,2] w = {1, 2, 3, 4}, float16 k = {3}>"
        "{ a = Cast<to = 16>(x) b = Cast<to = 1>(a) c = Cast<to = 10>(b) d = MatMul(c, w) e = Div(d, k)"
        " y = Cast<to = 1>(e) }"
    )
    found = optimise(read(parse(text))).graph
    assert found is not None and types(found).count("Cast") < 3
    assert "FusedMatMul" in types(found)


def test_the_layout_of_tensors_stays() -> None:
    weights = ", ".join(["1"] * 256)
    ends = f"g (float[1,16,4,4] x) => (float[1,16,4,4] y) <float[16,16,1,1] w = {{{weights}}}>"
    found = optimise(read(parse(f"{ends} {{ c = Conv(x, w) y = Relu(c) }}"))).graph
    assert found is not None and types(found) == ["FusedConv"]
