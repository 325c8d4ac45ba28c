"""Which forms are drawn: every attribute, operand and opset of every row, in each class of values that its type has."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from ranum_falsify.network import OperatorSpec, list_supported
from tests.operators.forms.attributes import attribute_classes
from tests.operators.forms.operands import operand_classes
from tests.operators.forms.schemas import schema_at, versions_of
from tests.operators.forms.walk import Slot, changed, slots_of
from tests.operators.harness import OperatorCase, constants_of
from tests.operators.test_operators import CASES

NOT_DRAWN: Mapping[str, str] = {
    "attribute GRAPH": "subgraphs are drawn by random models",
    "attribute SPARSE_TENSOR": "it is read as a dense one",
}
"""Kinds of slots that no walk draws, and why."""

_FIRST = ("given", "constant", "rank + 1", "default", "positive", "longer", "more")
_TRIES = 20


@cache
def cases_of(op_type: str, domain: str) -> tuple[OperatorCase, ...]:
    return tuple(case for case in CASES if (case.op_type, case.domain) == (op_type, domain))


ROWS = [pytest.param(spec, id=f"{spec.domain}{spec.op_type}") for spec in list_supported()]


@pytest.mark.parametrize("spec", ROWS)
def test_every_class_of_every_attribute_and_operand_is_a_slot(spec: OperatorSpec) -> None:
    slots = set(slots_of(spec.op_type, spec.domain))
    for version in versions_of(spec.op_type, spec.domain):
        schema = schema_at(spec.op_type, spec.domain, version)
        if schema is None:
            continue
        for name, attribute in schema.attributes.items():
            known = {slot.value for slot in slots if (slot.kind, slot.name) == ("attribute", name)}
            assert known >= set(attribute_classes(name, attribute))
            assert known - {"left out", "default"} or f"attribute {attribute.kind}" in NOT_DRAWN, name
        for formal in schema.inputs:
            assert {Slot("input", formal.name, value) for value in operand_classes(formal)} <= slots


@pytest.mark.parametrize("spec", ROWS)
def test_every_slot_changes_a_case(spec: OperatorSpec) -> None:
    rng = np.random.default_rng(0)
    cases, slots = cases_of(spec.op_type, spec.domain), slots_of(spec.op_type, spec.domain)
    missed = [slot for slot in slots if slot.kind != "shapes" and not _is_reached(slot, cases, rng)]
    assert not missed, ", ".join(map(str, missed))


def _is_so(case: OperatorCase, slot: Slot) -> bool:
    """Tell whether a case is as a slot says already, where that can be seen."""
    if slot.kind == "attribute":
        return slot.value == "left out" and slot.name not in case.attributes
    if slot.kind == "output":
        count = case.outputs if isinstance(case.outputs, int) else len(case.outputs)
        return (slot.value, count > 1) in (("more", True), ("fewer", False))
    schema = schema_at(case.op_type, case.domain, case.domain_opset)
    formals = [] if schema is None else [schema.formal(i) for i in range(len(case.inputs))]
    places = [i for i, f in enumerate(formals) if f is not None and f.name == slot.name and case.inputs[i] is not None]
    states = {"constant" if i in constants_of(case) else "computed" for i in places}
    states |= {"given"} if places else {"left out"}
    return slot.value in states | {f"type {np.dtype(case.inputs[i].dtype).name}" for i in places}  # type: ignore[union-attr]


def _is_reached(slot: Slot, cases: tuple[OperatorCase, ...], rng: np.random.Generator) -> bool:
    """Tell whether a slot changes a case, or one that was changed in the same place: what is given can be left out."""
    if any(_is_so(case, slot) or changed(case, slot, rng) is not None for case in cases):
        return True
    slots, place = slots_of(cases[0].op_type, cases[0].domain), (slot.kind, slot.name)
    first = [s for s in slots if s.kind == "opset" or ((s.kind, s.name) == place and s.value in _FIRST)]
    for _ in range(_TRIES):
        for case, before in itertools.product(cases[:: max(1, len(cases) // 5)], first):
            there = changed(case, before, rng)
            if there is not None and (_is_so(there, slot) or changed(there, slot, rng) is not None):
                return True
    return False
