"""Walks over the forms of an operator: from its cases, by changes that its schemas allow.

Forms drawn freely are nearly always refused.  So a walk starts from the cases of the tables, changes a form in one to
a few slots, and goes on from the forms that ONNX Runtime runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tests.operators.forms.attributes import attribute_classes, with_attribute
from tests.operators.forms.crashes import crashes
from tests.operators.forms.operands import SHAPE_CLASSES, operand_classes, with_operand, with_shapes
from tests.operators.forms.schemas import Schema, schema_at, versions_of
from tests.operators.harness import OperatorCase, constants_of

__all__ = ["Form", "Slot", "Walk", "changed", "slots_of"]

_MOST_CHANGES = 6
"""Changes between a case and a form, at most: further ones hide each other."""
_MOST_KEPT = 40


@dataclass(frozen=True, order=True)
class Slot:
    """What a change is about.

    Attributes:
        kind: `attribute`, `input`, `output`, `shapes` or `opset`.
        name: Name of the attribute or the input.
        value: The class of the new value.
    """

    kind: str
    name: str
    value: str

    def __str__(self) -> str:
        return " ".join(part for part in (self.kind, self.name, self.value) if part)


@dataclass(frozen=True)
class Form:
    """A case, the slots in which it differs from that of a table, and what it is called."""

    case: OperatorCase
    slots: tuple[Slot, ...] = ()


@cache
def slots_of(op_type: str, domain: str) -> tuple[Slot, ...]:
    """Return all slots of an operator, over all of its versions."""
    found: dict[Slot, None] = {}
    versions = versions_of(op_type, domain)
    for version in versions:
        schema = schema_at(op_type, domain, version)
        if schema is not None:
            found |= dict.fromkeys(_slots(schema))
    found |= {Slot("opset", "", str(version)): None for version in versions if len(versions) > 1}
    return tuple(found)


def _slots(schema: Schema) -> Iterator[Slot]:
    for name, attribute in schema.attributes.items():
        yield from (Slot("attribute", name, value) for value in attribute_classes(name, attribute))
    for formal in schema.inputs:
        yield from (Slot("input", formal.name, value) for value in operand_classes(formal))
    if schema.inputs:
        yield from (Slot("shapes", "", value) for value in SHAPE_CLASSES)
    if len(schema.outputs) > schema.least_outputs or any(formal.option != "Single" for formal in schema.outputs):
        yield from (Slot("output", "", value) for value in ("more", "fewer", "left out"))


def changed(case: OperatorCase, slot: Slot, rng: np.random.Generator) -> OperatorCase | None:
    """Return a case changed in a slot; None if it is so already, or its opset has no such slot."""
    if slot.kind == "opset":
        return _moved(case, int(slot.value))
    schema = _schema(case)
    if schema is None:
        return None
    if slot.kind == "shapes":
        return with_shapes(case, slot.value, rng)
    if slot.kind == "output":
        return _with_outputs(case, schema, slot.value)
    if slot.kind == "attribute":
        formal = schema.attributes.get(slot.name)
        return None if formal is None else with_attribute(case, slot.name, formal, slot.value, rng)
    formals = [formal for formal in schema.inputs if formal.name == slot.name]
    return with_operand(case, schema, formals[0], slot.value, rng) if formals else None


def _schema(case: OperatorCase) -> Schema | None:
    return schema_at(case.op_type, case.domain, case.domain_opset)


def _with_outputs(case: OperatorCase, schema: Schema, kind: str) -> OperatorCase | None:
    names = [f"y_{i}" for i in range(case.outputs)] if isinstance(case.outputs, int) else list(case.outputs)
    most = len(schema.outputs) if schema.outputs and schema.outputs[-1].option != "Variadic" else len(names) + 1
    if kind == "more":
        return replace(case, outputs=(*names, f"y_{len(names)}")) if len(names) < most else None
    if len(names) < 2:
        return None
    return replace(case, outputs=tuple(names[:-1] if kind == "fewer" else ["", *names[1:]]))


def _moved(case: OperatorCase, opset: int) -> OperatorCase | None:
    """Return a case in a model of another opset: what is an attribute there becomes one, and what is an input."""
    if case.domain_opset == opset:
        return None
    moved = replace(case, own_opset=opset) if case.domain else replace(case, opset=opset)
    here, there = _schema(case), schema_at(case.op_type, case.domain, opset)
    if there is None or here is None:
        return None
    inputs, constants = list(case.inputs), set(constants_of(case))
    attributes: dict[str, Any] = dict(case.attributes)
    for i in range(len(inputs) - 1, -1, -1):
        formal = here.formal(i)
        if formal is not None and i >= len(there.inputs) and there.formal(i) is None:
            value = inputs.pop()
            constants.discard(i)
            if formal.name in there.attributes and isinstance(value, np.ndarray):
                listed = there.attributes[formal.name].kind in ("INTS", "FLOATS")
                attributes[formal.name] = value.reshape(-1).tolist() if listed else value.reshape(-1)[:1].sum().item()
    for i, formal in enumerate(there.inputs):
        if formal.name in attributes and formal.name not in there.attributes:
            inputs += [None] * (i + 1 - len(inputs))
            inputs[i] = np.array(attributes.pop(formal.name))
            constants.add(i)
    attributes = {name: value for name, value in attributes.items() if name in there.attributes}
    return replace(moved, inputs=inputs, constants=frozenset(constants), attributes=attributes)


class Walk:
    """A walk over the forms of one operator."""

    def __init__(self, cases: Sequence[OperatorCase], rng: np.random.Generator) -> None:
        self._rng = rng
        self._slots = _grouped(cases[0].op_type, cases[0].domain)
        self._cases = list(cases)
        self._kept: list[Form] = []

    def step(self) -> Form:
        """Return the next form: the case of a table, or one changed in one to three slots."""
        for _ in range(20):
            form = self._start()
            wanted = int(self._rng.choice((1, 2, 3, 4), p=(0.5, 0.25, 0.15, 0.1)))
            for _ in range(3 * wanted):
                if len(form.slots) >= _MOST_CHANGES:
                    break
                slot = self._slot()
                case = changed(form.case, slot, self._rng)
                if case is not None:
                    form = Form(case, (*form.slots, slot))
                    wanted -= 1
                if not wanted:
                    return form
        return self._start()

    def keep(self, form: Form) -> None:
        """Note a form that ONNX Runtime runs: the walk may go on from it."""
        if len(form.slots) < _MOST_CHANGES:
            self._kept = [*self._kept[-_MOST_KEPT:], form]

    def _start(self) -> Form:
        if self._kept and self._rng.random() < 0.6:
            return self._kept[int(self._rng.integers(len(self._kept)))]
        return Form(self._cases[int(self._rng.integers(len(self._cases)))])

    def _slot(self) -> Slot:
        """Draw a slot: each attribute, and each input, is as likely as each other."""
        group = self._slots[int(self._rng.integers(len(self._slots)))]
        return group[int(self._rng.integers(len(group)))]


@cache
def _grouped(op_type: str, domain: str) -> tuple[tuple[Slot, ...], ...]:
    groups: dict[tuple[str, str], list[Slot]] = {}
    for slot in slots_of(op_type, domain):
        if crashes(op_type, slot.kind, slot.name, slot.value):
            continue
        groups.setdefault((slot.kind, slot.name), []).append(slot)
    return tuple(tuple(group) for group in groups.values())
