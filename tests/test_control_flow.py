"""Models with branches and loops, as exporters write them: what holds, and what fails under which name."""

import io
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.parser import parse_model
from torch import Tensor

import ranum_falsify as rf

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def verdicts(result: rf.Result) -> dict[str, str]:
    return {op.node: op.verdict for op in result.operators}


def violated(result: rf.Result) -> set[str]:
    return {op.node for op in result.operators if op.verdict == "violated"}


def script(module: torch.nn.Module, *inputs: Tensor) -> onnx.ModelProto:
    target: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(torch.jit.script(module), inputs, target, dynamo=False, opset_version=17, input_names=["x"])
    return onnx.load_model_from_string(target.getvalue())


def export(module: torch.nn.Module, *inputs: Tensor) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
    assert program is not None
    return program.model_proto


class Roots(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        k = 0
        while k < 3:
            x = torch.sqrt(x + 1)
            k += 1
        return x


class Halving(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        k = 0
        while bool(x.sum() > 1) and k < 10:
            x = torch.sqrt(x) - 0.3
            k += 1
        return x


class Cumulative(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        from torch._higher_order_ops.scan import scan

        def step(carry: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            after = torch.sqrt(carry + y)
            return after, after * 2

        last, rows = scan(step, torch.zeros(3), x, dim=0)
        return last, rows


class Repeated(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        step = (lambda i, x: i < 3), (lambda i, x: (i + 1, torch.log(x + 2)))
        last: Tensor = while_loop(*step, (torch.tensor(0), x))[1]
        return last


class Chosen(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        chosen: Tensor = torch.cond(x.sum() > 0, lambda x: torch.log(x + 2), lambda x: torch.sqrt(-x), (x,))
        return chosen


def test_a_scripted_loop_is_proved_and_its_operators_are_named() -> None:
    model = script(Roots(), torch.ones(2))
    assert [node.op_type for node in model.graph.node].count("Loop") == 1
    safe = rf.check(model, box=(0, 1), n_starts=0)
    assert safe.verdict == "holds" and len(safe.operators) == 6
    unsafe = rf.check(model, box=(-2, 1), n_starts=20, prove_timeout=0)
    assert violated(unsafe) == {"/Loop/body/Sqrt[0]"}
    (root,) = (op for op in unsafe.operators if op.verdict == "violated")
    assert root.reach == "output" and root.runtimes == ("onnxruntime", "torch")


def test_an_iteration_of_a_loop_that_an_input_ends_is_named() -> None:
    model = script(Halving(), torch.ones(4))
    assert "Loop" in [node.op_type for node in model.graph.node]
    result = rf.check(model, box=(0, 1), n_starts=20, prove_timeout=0)
    assert result.verdict == "violated"
    assert violated(result) and all(name.startswith("/Loop/body/Sqrt[") for name in violated(result))


def test_a_scan_is_proved_and_its_operators_are_named() -> None:
    model = export(Cumulative(), torch.ones(4, 3))
    assert "Scan" in [node.op_type for node in model.graph.node]
    assert rf.check(model, box=(0, 1), n_starts=0).verdict == "holds"
    unsafe = rf.check(model, box=(-1, 1), n_starts=20, prove_timeout=0)
    assert violated(unsafe) and all("/body/node_sqrt[" in name for name in violated(unsafe))


def test_a_while_loop_is_proved_and_its_operators_are_named() -> None:
    model = export(Repeated(), torch.ones(3))
    assert "Loop" in [node.op_type for node in model.graph.node]
    assert rf.check(model, box=(0, 1), n_starts=0).verdict == "holds"
    unsafe = rf.check(model, box=(-2, 1), n_starts=20, prove_timeout=0)
    assert violated(unsafe) and all("/body/node_log[" in name for name in violated(unsafe))


def test_an_operator_in_a_branch_that_an_input_chooses_is_named() -> None:
    model = export(Chosen(), torch.ones(3))
    assert "If" in [node.op_type for node in model.graph.node]
    result = rf.check(model, box=(-1, 1), n_starts=20, prove_timeout=0)
    assert {name.rpartition("/")[2] for name in violated(result)} == {"node_sqrt"}
    assert all("/else_branch/" in name for name in violated(result))


def loop(body: str, count: int = 3) -> onnx.ModelProto:
    head = f"{HEAD} g (float[2] x) => (float[2] y) <int64 m = {{{count}}}, float[2] big = {{2, 2}}>"
    model = parse_model(f"{head} {{ z = Hole(x) y = Identity(z) }}")
    ends = "b (int64 i, bool c, float[2] s) => (bool d, float[2] t)"
    graph = onnx.parser.parse_graph(f"{ends} {{ d = Identity(c) {body} }}")
    model.graph.node[0].CopyFrom(onnx.helper.make_node("Loop", ["m", "", "x"], ["z"], name="loop", body=graph))
    return model


def test_what_a_loop_swallows_is_found_inside_it() -> None:
    """The root of a negative number is not taken, so the loop itself gives no NaN."""
    model = loop("n = Neg(s) q = Sqrt(n) p = Greater(s, big) e = Abs(s) t = Where(p, q, e)")
    result = rf.check(model, box=(1, 1.5), n_starts=5, prove_timeout=0)
    assert result.verdict == "violated" and violated(result) == {f"loop/body/Sqrt_q[{i}]" for i in range(3)}
    assert all(op.reach == "masked" for op in result.operators if op.verdict == "violated")
    again = rf.replay(None, result)
    assert again.violated and {finding.node for finding in again.findings} == violated(result)


def test_an_infinite_constant_in_a_body_excuses_no_other_operator() -> None:
    model = loop("u = Min(s, big) t = Exp(u)")
    model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.full(2, np.inf, np.float32), "big"))
    result = rf.check(model, box=(0, 5), n_starts=10, prove_timeout=0)
    assert violated(result) <= {"loop/body/Exp_t[1]", "loop/body/Exp_t[2]"} and violated(result)


def test_a_loop_with_a_count_that_the_box_fixes_is_unrolled() -> None:
    model = loop("t = Log(s)")
    del model.graph.initializer[0]
    model.graph.input.append(onnx.helper.make_tensor_value_info("m", onnx.TensorProto.INT64, []))
    fixed = rf.check(model, box={"x": (5, 6), "m": 2}, n_starts=5, prove_timeout=0)
    assert fixed.verdict == "holds" and verdicts(fixed) == {
        "loop/body/Log_t[0]": "proved",
        "loop/body/Log_t[1]": "proved",
    }
    wrong = rf.check(model, box={"x": (0.5, 6), "m": 2}, n_starts=20, prove_timeout=0)
    assert violated(wrong) == {"loop/body/Log_t[1]"}
    ranging = rf.check(model, box={"x": (0.5, 6), "m": (1, 3)}, n_starts=20, prove_timeout=0)
    assert ranging.verdict == "violated"


@pytest.mark.parametrize("count", [1, 3])
def test_a_counterexample_replays(count: int) -> None:
    result = rf.check(loop("t = Sqrt(s)", count), box=(-1, 1), n_starts=5, prove_timeout=0)
    assert result.verdict == "violated"
    assert rf.replay(None, result).violated


def test_a_property_of_the_outputs_of_a_loop_holds() -> None:
    text = "from dnnv.properties import *\nN = Network('N')\nForall(x, Implies((0 <= x) & (x <= 1), N(x)[0] <= 3))"
    assert rf.falsify(loop("k = Constant<value_float = 1.0>() t = Min(s, k)"), text).verdict == "holds"
    assert rf.falsify(loop("t = Add(s, s)"), text).verdict == "violated"
