"""`confirm`: unit tests with spans, in memory and as files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ranum_falsify as rf

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 20]> f (float[2] x) => (float[2] z) { s = Add(x, x) [log] z = Log(s) }'
)
PROPERTY = """
from dnnv.properties import *
from ranum_falsify.properties import *

N = Network("N")
Forall(x, Implies(And(-1 <= x, x <= 1), no_invalid_input(N(x))))
"""


@pytest.mark.slow
def test_tests_hold_inputs_and_spans_and_run_as_files(tmp_path: Path) -> None:
    made = rf.confirm(MODEL, PROPERTY, runs=2, self_check=False)
    (log,) = made.operators
    assert (log.node, len(log.tests)) == ("log", 2)
    session = ort.InferenceSession(MODEL.SerializeToString(), providers=["CPUExecutionProvider"])
    for test in log.tests:
        assert test.span is not None
        for x in (test.feeds["x"], test.span.lower["x"], test.span.upper["x"]):
            assert not np.isfinite(session.run(None, {"x": x})[0]).all()
    assert "triggered: 1 of 1 operator, 2 of 2 runs" in str(made)
    test_file = made.write(tmp_path / "tests")
    assert test_file is not None and json.loads((tmp_path / "tests" / "confirm.json").read_text())["triggered"] == 1
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", test_file.name], cwd=test_file.parent, check=False)
    assert run.returncode == 0


def test_what_is_proved_needs_no_test(tmp_path: Path) -> None:
    made = rf.confirm(MODEL, PROPERTY.replace("-1 <=", "0.5 <="), self_check=False)
    assert (list(made.operators), made.write(tmp_path)) == ([], None)
    assert str(made).startswith("nothing to test: every operator is proved")


@pytest.mark.parametrize("option", [{"runs": 0}, {"seed": -1}, {"timeout": float("nan")}])
def test_an_option_out_of_range_is_said_in_one_line(option: dict[str, Any]) -> None:
    with pytest.raises(rf.UsageError, match=f"{next(iter(option))}=.*is no number of at least"):
        rf.confirm(MODEL, PROPERTY, **option)
