"""Errors while a node runs on the example input, with messages that name the node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import onnx

from ranum_falsify.errors import ModelError, ShapesError, is_out_of_memory
from ranum_falsify.network.functions import first_line
from ranum_falsify.network.resource_limits import TOO_MUCH_MEMORY
from ranum_falsify.network.trace import Traced

_RUN_ERRORS = (
    *(RuntimeError, ValueError, IndexError, TypeError, AssertionError, KeyError, ZeroDivisionError, OverflowError),
    MemoryError,
)


@contextmanager
def explain_errors(node: onnx.NodeProto, operands: Sequence[Traced | None]) -> Iterator[None]:
    """Name the node in any error that is raised while it runs.

    Raises:
        ModelError: The node cannot run on its operands.
    """
    title = f"node {node.name or node.output[0]!r} ({node.op_type})"
    try:
        yield
    except ModelError as error:
        raise type(error)(f"{title}: {error}") from error
    except _RUN_ERRORS as error:
        if is_out_of_memory(error):
            raise ModelError(f"{title} {TOO_MUCH_MEMORY}") from error
        shapes = [None if t is None else tuple(t.details.shape) for t in operands]
        raise ShapesError(
            f"{title} cannot run on operands of shapes {shapes}: {first_line(error)[:160]}; "
            "if an input has symbolic dimensions, set them with --dim NAME=VALUE"
        ) from error
