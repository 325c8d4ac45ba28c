"""Recurrent layers, written out step by step."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from ranum_falsify.rewrite.apply import Applied, apply_pass
from ranum_falsify.rewrite.catalogue import find_pass
from tests.rewrite.recurrent_cases import GATES, check_recurrent
from tests.rewrite.sweeping import session
from tests.rewrite.transform_kit import operators, proto_of, transformed

SEEDS = 25
# Time, batch, input and hidden size, 2 each but for the first.
TEXT = """g (float[{time}, 2, 2] x) => (float[{time}, 1, 2, 2] y)
    <float[1, {size}, 2] w = {{{w}}}, float[1, {size}, 2] r = {{{w}}}> {{
    [layer] y = {op_type}<hidden_size = 2{attributes}>(x, w, r{more}) }}"""


def text(op_type: str = "LSTM", attributes: str = "", more: str = "", time: int | str = 3, least: float = -1.0) -> str:
    size = 2 * GATES[op_type]
    w = ", ".join(f"{number:.2f}" for number in np.linspace(least, 1, 2 * size))
    return TEXT.format(time=time, size=size, w=w, op_type=op_type, attributes=attributes, more=more)


def unrolled(model: str, op_type: str = "LSTM", opset: int = 17) -> Applied:
    return apply_pass(find_pass(f"unroll_{op_type.lower()}"), ir.from_proto(proto_of(model, opset)))


@pytest.mark.few(1)
@pytest.mark.parametrize("op_type", GATES)
def test_random_layers_compute_the_same(op_type: str) -> None:
    faults = {seed: fault for seed in range(SEEDS) if (fault := check_recurrent(op_type, seed))}
    assert not faults


@pytest.mark.few(1)
@pytest.mark.parametrize("op_type", GATES)
def test_it_is_verified(op_type: str) -> None:
    done = transformed(text(op_type), [f"unroll_{op_type.lower()}"])
    (report,) = done.reports
    assert report.replaced == 1 and report.verified[0] == "structure"
    assert set(operators(done.model)) <= set(find_pass(report.name).spec.gives)


def test_the_first_step_from_zeros_has_no_products_with_the_state() -> None:
    applied = unrolled(text("LSTM", time=1))
    assert applied.model is not None
    assert operators(applied.model).count("MatMul") == 3, "neither the state's, nor the forget gate's"


def test_nodes_are_named_after_the_layer() -> None:
    applied = unrolled(text("RNN", time=2), "RNN")
    assert applied.model is not None
    names = [node.name for node in applied.model.graph]
    assert len(set(names)) == len(names) and all(name and name.startswith("layer/") for name in names)


def test_outputs_that_nothing_reads_are_not_made() -> None:
    model = text("LSTM", time=2).replace("[layer] y =", "[layer] y, h, c =")
    applied = unrolled(model)
    assert applied.model is not None
    assert operators(applied.model).count("Reshape") == 2, "one for each time step, none for the last states"


def test_layers_in_branches_are_written_out() -> None:
    layer = text("RNN", time=2)
    body = layer.partition("> {\n")[2].rpartition("}")[0]
    weights = layer.partition("    <")[2].partition("> {")[0]
    model = f"""g (float[2, 2, 2] x, bool on) => (float[2, 1, 2, 2] z) <{weights}> {{
        z = If (on) <then_branch = a () => (float[2, 1, 2, 2] y) {{ {body} }},
                     else_branch = b () => (float[2, 1, 2, 2] y) {{ {body} }}> }}"""
    applied = unrolled(model, "RNN")
    assert applied.replaced == 2


@pytest.mark.parametrize(
    ("model", "opset", "reason"),
    [
        (text(time="T"), 17, "axis 0 of 'x' has no fixed length"),
        (text(time=257), 17, "it takes 257 time steps; at most 256 are written out"),
        (text(), 8, "a constant of int64 needs opset 9"),
        (text(attributes=', direction = "sideways"'), 17, "direction 'sideways' is unknown"),
        (text(attributes=', activations = ["Sigmoid", "Tanh"]'), 17, "it names 2 activations; 3 are needed"),
        (text(attributes=', activations = ["Sigmoid", "Tanh", "Gelu"]'), 17, "activation 'Gelu' is unknown"),
        (text(attributes=', activations = ["Affine", "Tanh", "Tanh"]'), 17, "activation Affine has no parameters"),
        (
            text(attributes=', activations = ["ThresholdedRelu", "Tanh", "Tanh"], activation_alpha = [1.0]'),
            9,
            "ThresholdedRelu needs opset 10",
        ),
        (text(more=", , n").replace("w =", "w =", 1).replace("(float[3, 2, 2] x)", "(float[3, 2, 2] x, int32[2] n)"),
         17, "the lengths of its sequences (sequence_lens) are not constant"),
        (text(more=", , n").replace("<float[1", "<int32[2] n = {3, 1}, float[1", 1), 17,
         "its sequences have lengths of their own"),
        (text().replace("<float[1, 8, 2] w", "<float[1, 8, 2] v", 1).replace("] x)", "] x, float[1, 8, 2] w)", 1), 17,
         "its weights W are not constant"),
    ],
)  # fmt: skip
def test_what_it_cannot_write_out_stays(model: str, opset: int, reason: str) -> None:
    applied = unrolled(model, opset=opset)
    assert applied.model is None
    (refusal,) = applied.refusals
    assert (refusal.node, refusal.op_type) == ("layer", "LSTM")
    assert reason in refusal.reason


def test_full_lengths_are_no_lengths() -> None:
    applied = unrolled(text(more=", , n").replace("<float[1", "<int32[2] n = {3, 3}, float[1", 1))
    assert applied.model is not None


def test_the_cell_state_in_the_output_is_not_clipped() -> None:
    """ONNX Runtime clips what the gates and the new state are computed from, and nothing else."""
    attributes = ', clip = 0.3, activations = ["Sigmoid", "Tanh", "Affine"], activation_alpha = [3.0], '
    attributes += "activation_beta = [0.0]"
    model = text(attributes=attributes, time=8, least=0.5)
    applied = unrolled(model)
    assert applied.model is not None and "Clip" in operators(applied.model)
    inputs = {"x": np.full((8, 2, 2), 8.5, np.float32)}
    old, new = (session(proto) for proto in (proto_of(model, 17), ir.to_proto(applied.model)))
    assert old is not None and new is not None
    np.testing.assert_allclose(old.run(None, inputs)[0], new.run(None, inputs)[0], rtol=1e-4)
