"""The pytest file of unit tests, which needs only NumPy and ONNX Runtime."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from ranum_falsify.confirm.exposed import Watched
from ranum_falsify.escaping import escape

__all__ = ["Case", "CheckedOperator", "pytest_file"]


@dataclass(frozen=True, kw_only=True)
class CheckedOperator:
    """The description of an operator in the file.

    Attributes:
        label: A name without spaces, unique in the file.
        model: Name of the model's file.
        valid_where: The conditions on its operands.
        watched: The tensors that its tests look at.
    """

    label: str
    model: str
    valid_where: str
    watched: Watched


@dataclass(frozen=True, kw_only=True)
class Case:
    """The entry of one unit test in the file.

    Attributes:
        file: Name of the .npz file.
        operator: Label of its operator.
        kind: `nan`, `inf` or `gradient`.
        tensor: The tensor in question.
        index: Position of the offending element in it.
        flushed: Whether denormal numbers are to be replaced by 0.
        hidden: Whether ONNX Runtime hides the NaN, so that the test is skipped.
        has_span: Whether a span was proved.
    """

    file: str
    operator: str
    kind: str
    tensor: str
    index: tuple[int, ...]
    flushed: bool
    hidden: bool
    has_span: bool


def pytest_file(property_name: str, operators: Sequence[CheckedOperator], cases: Sequence[Case]) -> str:
    """Return the source text of a pytest file.

    Args:
        property_name: Name of the property that the tests are about.
        operators: The operators, each once.
        cases: The tests.
    """
    rows = [f"    {operator.label!r}: {_operator(operator)},\n" for operator in operators]
    tests = [f"    {_case(case)},\n" for case in cases]
    title = escape(property_name).replace("\\", r"\\").replace('"', r"\"")
    text = _TEMPLATE.format(title=title, operators="".join(rows), cases="".join(tests))
    return "\n".join(map(escape, text.split("\n")))


def _operator(operator: CheckedOperator) -> str:
    watched = operator.watched
    fields: dict[str, object] = {
        "node": watched.node,
        "type": watched.op_type,
        "valid_where": operator.valid_where,
        "model": operator.model,
        "reads": watched.reads,
        "writes": watched.writes,
    }
    if watched.limits:
        fields["steep_where"] = watched.limits
    if watched.is_integer:
        fields["is_integer"] = True
    lines = "".join(f"{name}={value!r},\n" for name, value in fields.items())
    return f"Operator(\n{textwrap.indent(lines, ' ' * 8)}    )"


def _case(case: Case) -> str:
    marks = [f"{name}=True" for name in ("has_span", "flushed", "hidden") if getattr(case, name)]
    parts = (case.file, case.operator, case.kind, case.tensor, case.index)
    return f"Case({', '.join([*map(repr, parts), *marks])})"


_TEMPLATE = '''\
"""Unit tests that make operators invalid: {title}

Written by ranum-falsify.  Each .npz file holds inputs and weights (`input:<name>`) on which one operator of the model
receives good operands and produces NaN or infinity, or has no finite derivative; and a span around them, in every
point of which it does so too: between `lower:<name>` and `upper:<name>` and, if `reach:<name>` is given, only so far
from the input.  Inputs that the span does not mention keep their values.

    python -m pytest FOLDER              needs only NumPy and ONNX Runtime
"""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when ONNX Runtime is loaded

import onnxruntime  # noqa: E402

FOLDER = Path(__file__).resolve().parent
POINTS = 10  # of each span
OVERFLOWS = (-signal.SIGFPE, 0xC0000095)  # exit status of a process that divides the least integer by -1


class Operator(NamedTuple):
    """An operator, the conditions on its operands, and the tensors that it reads and writes."""

    node: str
    type: str
    valid_where: str
    model: str
    reads: tuple
    writes: tuple
    steep_where: tuple = ()  # (tensor, "at most" or "at least", bound): no finite derivative there
    is_integer: bool = False  # a division by zero raises, and that of the least integer by -1 ends the process


class Case(NamedTuple):
    """A test: kind "nan", "inf" or "gradient", and the offending element."""

    file: str
    operator: str
    kind: str
    tensor: str
    index: tuple
    has_span: bool = False
    flushed: bool = False  # shows only where denormal numbers are replaced by 0, as many devices do
    hidden: bool = False  # ONNX Runtime hides NaN in this operator, the ONNX reference evaluator does not

    def __repr__(self):
        return self.file  # what pytest shows; names of tensors may be anything


OPERATORS = {{
{operators}}}

CASES = [
{cases}]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_recorded_point(case):
    if is_run_alone(case):
        check_in_process_of_its_own(case, 0)
    else:
        check_recorded_point(case)


@pytest.mark.parametrize("case", [case for case in CASES if case.has_span], ids=lambda case: case.file)
def test_points_of_the_span(case):
    if is_run_alone(case):
        check_in_process_of_its_own(case, POINTS)
    else:
        check_points_of_the_span(case, POINTS)


def is_run_alone(case):
    return case.flushed or OPERATORS[case.operator].is_integer


def check_recorded_point(case):
    """Assert that the inputs make the operator invalid at the recorded element."""
    arrays = load(case)
    tensors = check(case, {{name[6:]: array for name, array in arrays.items() if name.startswith("input:")}})
    if tensors and case.kind != "gradient":
        bad = np.isnan if case.kind == "nan" else np.isinf
        if not bad(tensors[case.tensor])[case.index]:
            pytest.fail(f"{{case.operator}} fails at another element than the recorded one")


def check_points_of_the_span(case, count):
    """Assert that corners and points drawn from the span make the operator invalid."""
    for inputs in points(load(case), count):
        check(case, inputs)


def check(case, inputs):
    """Assert that inputs make the operator invalid; return what it reads and writes, nothing if the run stops."""
    __tracebackhide__ = True  # pytest would show the names of the inputs, which may be anything
    operator = OPERATORS[case.operator]
    if case.hidden:
        pytest.skip("ONNX Runtime hides NaN in this operator")
    if operator.is_integer:
        with pytest.raises(Exception, match="(?i)zero"):
            run(case, inputs)
        return {{}}
    tensors = run(case, inputs)
    if not is_triggered(case, tensors):
        pytest.fail(f"{{case.operator}} does not fail")
    return tensors


def is_triggered(case, tensors):
    """Tell whether the operator reads good operands, and its output or its derivative is not finite."""
    operator = OPERATORS[case.operator]
    reads = [tensors[name] for name in operator.reads]
    writes = [tensors[name] for name in operator.writes]
    if any(np.isnan(x).any() for x in reads):
        return False
    is_finite = all(np.isfinite(x).all() for x in reads)
    if case.kind == "gradient":
        return is_finite and any(is_steep(tensors[name], *limit) for name, *limit in operator.steep_where)
    return any(np.isnan(y).any() for y in writes) or (is_finite and any(np.isinf(y).any() for y in writes))


def is_steep(tensor, side, bound):
    return bool((tensor <= bound).any() if side == "at most" else (tensor >= bound).any())


def load(case):
    with np.load(FOLDER / case.file) as arrays:
        return dict(arrays)


def points(arrays, count):
    """Yield inputs in the span, every second one a corner; seeded."""
    random = np.random.default_rng(0)
    ends = {{name[6:]: span(name[6:], arrays) for name in arrays if name.startswith("input:")}}
    for number in range(count):
        inputs = {{}}
        for name, (low, high) in ends.items():
            inputs[name] = high
            if low is not high:
                share = random.integers(2, size=high.shape) if number % 2 else random.random(high.shape)
                inputs[name] = np.clip((low * (1 - share) + high * share).astype(high.dtype), low, high)
        yield inputs


def span(name, arrays):
    """Return the least and the greatest value of an input in the span; the same array twice if it does not move."""
    value = arrays["input:" + name]
    if "lower:" + name not in arrays:
        return value, value
    low, high = (np.broadcast_to(arrays[end + name], value.shape) for end in ("lower:", "upper:"))
    if "reach:" + name in arrays:
        reach = arrays["reach:" + name]
        low, high = np.maximum(low, value - reach), np.minimum(high, value + reach)
    return low, high


def run(case, inputs):
    """Return what the operator reads and writes on ONNX Runtime, by name."""
    __tracebackhide__ = True
    operator = OPERATORS[case.operator]
    runtime = session(operator.model, case.flushed)
    types = {{value.name: value.type for value in runtime.get_inputs()}}
    feeds = {{name: feed(array, types.get(name, "")) for name, array in inputs.items()}}
    outputs = {{value.name for value in runtime.get_outputs()}}
    names = [name for name in dict.fromkeys(operator.reads + operator.writes) if name not in inputs]
    # NumPy has no bfloat16: the model widens such a tensor.
    shown = [name + ":float32" if name + ":float32" in outputs else name for name in names]
    return {{**inputs, **dict(zip(names, runtime.run(shown or None, feeds), strict=False))}}


def feed(array, kind):
    array = np.array(array, order="C")
    if kind == "tensor(bfloat16)":
        halves = (array.view(np.uint32) >> 16).astype(np.uint16)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(halves, 16)
    return array


@functools.lru_cache(maxsize=None)
def session(model, flushed):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.set_denormal_as_zero", str(int(flushed)))
    return onnxruntime.InferenceSession(str(FOLDER / model), options, providers=["CPUExecutionProvider"])


def check_in_process_of_its_own(case, points):
    """Run a check in a process of its own: only its first session decides on denormal numbers, and it may end."""
    command = [sys.executable, __file__, str(CASES.index(case)), str(points)]
    child = subprocess.run(command, capture_output=True, text=True)
    if OPERATORS[case.operator].is_integer and child.returncode in OVERFLOWS:
        return
    if child.returncode != 0:
        pytest.fail(child.stderr)


if __name__ == "__main__":
    chosen = CASES[int(sys.argv[1])]
    if int(sys.argv[2]):
        check_points_of_the_span(chosen, int(sys.argv[2]))
    else:
        check_recorded_point(chosen)
'''
