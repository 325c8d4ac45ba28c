"""The property files for users: each is reduced as its own docstring says to run it."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from ranum_falsify.errors import PropertyError
from ranum_falsify.network import read
from ranum_falsify.properties.formula.terms import NetworkCall
from ranum_falsify.properties.language.parse import parse
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted((ROOT / "properties").glob("*.py"))


def commands(path: Path) -> list[list[str]]:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    text = re.sub(r"\\?\n\s{8,}", " ", text)
    return [shlex.split(line) for line in text.splitlines() if line.strip().startswith("ranum-falsify ")]


def reduced(words: list[str], **changes: str) -> Problem:
    parameters = {k: v for k, v in (w.removeprefix("--prop.").split("=") for w in words if w.startswith("--prop."))}
    networks = {words[i + 1]: read(ROOT / words[i + 2]) for i, w in enumerate(words) if w == "--network"}
    return reduce(parse(ROOT / words[1], parameters | changes), networks)


def on_runtime(call: NetworkCall, arrays: tuple[Any, ...]) -> list[Any]:
    session = onnxruntime.InferenceSession(call.graph.model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(zip(call.graph.input_names, arrays, strict=True))))


def file(name: str) -> list[str]:
    return commands(ROOT / "properties" / name)[0]


def test_there_is_a_file_for_each_purpose() -> None:
    assert len(FILES) >= 6
    assert all(commands(path) for path in FILES), "each docstring shows a command"


@pytest.mark.parametrize("words", [words for path in FILES for words in commands(path)], ids=lambda words: words[1])
def test_each_file_reduces_as_its_docstring_says(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    problem = reduced(words)
    assert Path(words[1]).exists()
    assert problem.clauses and not problem.penalties
    assert problem.is_pure_validity == Path(words[1]).name.startswith("no_invalid_input")
    for variable in problem.inputs:
        assert (variable.lower <= variable.upper).all()


def test_the_box_takes_any_number_of_inputs() -> None:
    problem = reduced(commands(ROOT / "properties" / "no_invalid_input_box.py")[1])
    assert [v.name for v in problem.inputs] == ["x", "y"]
    assert all(v.lower.min() == 0 and v.upper.max() == 1 for v in problem.inputs)


def test_the_architecture_frees_a_weight() -> None:
    problem = reduced(file("no_invalid_input_architecture.py"), weight_bound="7")
    model = onnx.load(ROOT / "networks" / "vae.onnx")
    shapes = {initializer.name: tuple(initializer.dims) for initializer in model.graph.initializer}
    weight = problem.inputs[-1]
    assert weight.name == "logvar_W" and weight.shape == shapes["logvar_W"]
    assert weight.lower.min() == -7 and problem.inputs[0].lower.min() == 0


def test_robustness_is_decided_as_onnx_runtime_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    problem = reduced(file("robustness.py"), epsilon="1")
    digit = np.load(ROOT / "networks" / "digit_three.npy")
    assert problem.holds({"x": digit}, on_runtime)
    rng = np.random.default_rng(0)
    answers = []
    for _ in range(30):
        x = rng.random(digit.shape, np.float32).astype(np.float32)
        (scores,) = on_runtime(problem.calls[0], (x,))
        answers.append(bool(scores.argmax() == 3))
        assert problem.holds({"x": x}, on_runtime) == answers[-1]
    assert not all(answers)


def test_equivalence_fails_exactly_where_the_classifiers_differ() -> None:
    problem = reduced(file("equivalence.py"))
    same, other = np.zeros((1, 16), np.float32), np.zeros((1, 16), np.float32)
    other[0, :4] = 1
    assert problem.holds({"x": same}, on_runtime)
    assert not problem.holds({"x": other}, on_runtime)
    assert problem.holds({"x": other * 3}, on_runtime), "outside the box"


def test_a_local_property_needs_its_input() -> None:
    with pytest.raises(PropertyError, match="parameter 'input' has no value"):
        parse(ROOT / "properties" / "robustness.py")
    with pytest.raises(PropertyError, match=r"No such file or directory: .*missing\.npy"):
        reduced(file("robustness.py"), input="missing.npy")
