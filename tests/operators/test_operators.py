"""Every row against ONNX Runtime: values, batches, gradients and the borders of validity."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.network import OperatorSpec, list_supported
from tests.operators import harness
from tests.operators.harness import BorderCase, OperatorCase

FOLDER = Path(__file__).parent / "cases"
TABLES = [importlib.import_module(f"tests.operators.cases.{file.stem}") for file in sorted(FOLDER.glob("*.py"))]


def table(name: str) -> Iterator[Any]:
    for module in TABLES:
        yield from getattr(module, name, [])


CASES: list[OperatorCase] = list(table("CASES"))
BORDERS: list[BorderCase] = list(table("BORDERS"))


def each(cases: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in cases])


@each(CASES)
def test_agrees_with_the_oracle(case: OperatorCase) -> None:
    harness.check_values(case)


@pytest.mark.few(450)
@each([case for case in CASES if case.vmap])
def test_batch_is_its_samples(case: OperatorCase) -> None:
    harness.check_vmap(case)


@pytest.mark.few(350)
@each([case for case in CASES if case.gradient])
def test_gradient_is_that_of_finite_differences(case: OperatorCase) -> None:
    harness.check_gradient(case)


@each(BORDERS)
def test_validity_is_that_of_the_oracle(case: BorderCase) -> None:
    harness.check_border(case)


@pytest.mark.parametrize("spec", [pytest.param(spec, id=spec.op_type) for spec in list_supported()])
def test_row_has_a_case(spec: OperatorSpec) -> None:
    assert any((case.op_type, case.domain) == (spec.op_type, spec.domain) for case in CASES)


def test_tables_are_found() -> None:
    assert all(isinstance(module, ModuleType) for module in TABLES)
    assert len(CASES) > len(list_supported())
