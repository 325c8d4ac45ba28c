"""Attributes of nodes, which a local function may give as parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ranum_falsify.transform.rewrite import RefusedError

__all__ = ["float_attribute", "given_attribute", "integer_attribute", "integers_attribute", "text_attribute"]


def integer_attribute(node: ir.Node, name: str, default: int) -> int:
    """Return an integer attribute of a node.

    Raises:
        RefusedError: It is a parameter of a local function.
    """
    found = given_attribute(node, name)
    return default if found is None else int(found.as_int())


def given_attribute(node: ir.Node, name: str) -> ir.Attr | None:
    """Return an attribute of a node, None where it does not have it.

    Raises:
        RefusedError: It is a parameter of a local function.
    """
    found = node.attributes.get(name)
    if found is not None and found.is_ref():
        raise RefusedError(f"attribute {name!r} is a parameter of a local function; inline it first")
    return found


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
