"""What was changed, in words: of ONNX, of PyTorch and of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from torch import finfo

from ranum_falsify.network.nesting import nested_nodes
from ranum_falsify.repair.abstraction.ranges import KeptRange
from ranum_falsify.repair.guards import OperandGuard
from ranum_falsify.repair.repair import Change, Kind
from ranum_falsify.rewrite.catalogue import find_pass


def rewrite_changes(steps: Sequence[tuple[str, onnx.ModelProto]], original: onnx.ModelProto) -> Iterator[Change]:
    """Yield what each of several passes did.

    Args:
        steps: The passes, each with the model that it made.
        original: The model before the first.
    """
    before = original
    for name, model in steps:
        spec = find_pass(name).spec
        counterpart = spec.stands_for
        yield Change(
            kind="rewrite",
            place="graph",
            node=", ".join(_replaced(before, model, spec.takes)),
            text=name,
            torch="" if counterpart is None else counterpart.pytorch,
            tensorflow="" if counterpart is None else counterpart.tensorflow,
        )
        before = model


def _replaced(before: onnx.ModelProto, after: onnx.ModelProto, kinds: Sequence[str]) -> list[str]:
    """Return the names of the nodes of some operators that are gone; of the others, if there are none of these."""
    left = {node.name for node in nested_nodes(after.graph)}
    nodes = [node for node in nested_nodes(before.graph) if node.name not in left]
    return [node.name for node in nodes if node.op_type in kinds] or [node.name for node in nodes]


def guard_change(guard: OperandGuard, tensor: str, kind: Kind) -> Change:
    """Return what a guard changes."""
    text, torch, tensorflow, unchanged = _describe(guard, tensor)
    return Change(
        kind=kind,
        place="attribute" if guard.attribute else "operand",
        node=guard.site.name,
        tensor=tensor,
        text=text,
        kept=guard.kept(),
        unchanged=unchanged,
        keeps_gradient=guard.adds or bool(guard.attribute),
        torch=torch,
        tensorflow=tensorflow,
    )


def clip_change(part: KeptRange) -> Change:
    """Return what a clip of a tensor changes."""
    ends = [number_text(float(end.flat[0])) if part.is_uniform else name for end, name in _ends(part)]
    x, (low, high) = part.tensor, ends
    each = "" if part.is_uniform else ", a range for each element"
    return Change(
        kind="clip",
        place=part.place,
        node="",
        tensor=x,
        text=f"Clip({x}, {low}, {high}){each}",
        kept=(part.kept, part.least),
        unchanged=f"{low} <= {x} <= {high}",
        keeps_gradient=False,
        torch=f"x = x.clamp({low}, {high})",
        tensorflow=f"x = tf.clip_by_value(x, {low}, {high})",
    )


def _ends(part: KeptRange) -> Iterator[tuple[np.ndarray, str]]:
    return iter(((part.lower, "lower"), (part.upper, "upper")))


def _describe(guard: OperandGuard, x: str) -> tuple[str, str, str, str]:
    """Return a guard as ONNX, PyTorch, TensorFlow, and where it changes nothing."""
    if guard.halvings:
        return _describe_scaling(guard, x)
    step = number_text(guard.step)
    if guard.attribute:
        large = number_text(guard.step * 4 / finfo(guard.dtype).eps)
        text = f"{guard.attribute} = {step}"
        return text, f"eps={step}", text, f"{guard.attribute} is added to {large} or more"
    if guard.gap:
        return (
            f"Where({x} < 0, Min({x}, -{step}), Max({x}, {step}))",
            f"x = torch.where(x < 0, x.clamp(max=-{step}), x.clamp(min={step}))",
            f"x = tf.where(x < 0, tf.minimum(x, -{step}), tf.maximum(x, {step}))",
            f"|{x}| >= {step}",
        )
    if guard.adds:
        large = number_text(guard.step * 4 / finfo(guard.dtype).eps)
        return f"{x} + {step}", f"x = x + {step}", f"x = x + {step}", f"{x} >= {large}"
    low = None if guard.low is None else number_text(guard.low)
    high = None if guard.high is None else number_text(guard.high)
    if low is not None and high is not None:
        clip, torch, tensorflow = f"({x}, {low}, {high})", f"min={low}, max={high}", f"x, {low}, {high}"
        return (
            f"Clip{clip}",
            f"x = x.clamp({torch})",
            f"x = tf.clip_by_value({tensorflow})",
            f"{low} <= {x} <= {high}",
        )
    if low is not None:
        name = f"Clip({x}, min={low})" if guard.is_clip else f"Max({x}, {low})"
        return name, f"x = x.clamp(min={low})", f"x = tf.maximum(x, {low})", f"{x} >= {low}"
    name = f"Clip({x}, max={high})" if guard.is_clip else f"Min({x}, {high})"
    return name, f"x = x.clamp(max={high})", f"x = tf.minimum(x, {high})", f"{x} <= {high}"


def _describe_scaling(guard: OperandGuard, x: str) -> tuple[str, str, str, str]:
    factor, info = 2**guard.halvings, finfo(guard.dtype)
    most, least = number_text(info.max / factor), number_text(info.tiny * factor)
    return (
        f"{x} / {factor}, and Clip(result, -{most}, {most}) * {factor}, instead of {x}",
        f"y = f(x / {factor}).clamp(-{most}, {most}) * {factor}",
        f"y = tf.clip_by_value(f(x / {factor}), -{most}, {most}) * {factor}",
        f"the result is finite, and terms are 0 or at least {least}",
    )


def number_text(number: float) -> str:
    """Return a number with as many digits as float32 has."""
    return f"{number:.9g}"
