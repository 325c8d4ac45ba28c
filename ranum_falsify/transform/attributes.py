"""Attributes of nodes other than single integers, which a local function may give as parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ranum_falsify.transform.operands import given_attribute

__all__ = ["float_attribute", "integers_attribute", "text_attribute"]


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    """Return a float attribute of a node; a default is the float32 number that it would be.

    Raises:
        RefusedError: It is a parameter of a local function.
    """
    found = given_attribute(node, name)
    return float(np.float32(default if found is None else found.as_float()))


def text_attribute(node: ir.Node, name: str, default: str) -> str:
    """Return a text attribute of a node.

    Raises:
        RefusedError: It is a parameter of a local function.
    """
    found = given_attribute(node, name)
    return default if found is None else found.as_string()


def integers_attribute(node: ir.Node, name: str, default: Sequence[int]) -> list[int]:
    """Return an attribute of a node that holds integers.

    Raises:
        RefusedError: It is a parameter of a local function.
    """
    found = given_attribute(node, name)
    return list(default) if found is None else [int(value) for value in found.as_ints()]
