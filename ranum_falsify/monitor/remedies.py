"""What to write in place of the lines by which a step failed, as `check` proves it around the step's batch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ranum_falsify.api.checking import check
from ranum_falsify.api.result import Mended
from ranum_falsify.monitor.repeating import Repeatable

_MOST_WEIGHTS = 20_000_000
"""Modules with more weights would take too long to export."""

_STARTS = 100


def find_remedies(model: torch.nn.Module, call: Repeatable | None, seconds: float) -> Iterator[str]:
    """Yield the mended lines of a module that failed, and what `check` says of it with them.

    The question is about the weights as they are, and a batch whose numbers are not beyond those of this one.

    Args:
        model: The module.
        call: The call of it that failed.
        seconds: How long to look.
    """
    if call is None or call.function is not model or sum(x.numel() for x in model.parameters()) > _MOST_WEIGHTS:
        return
    try:
        mended = _mend(model, call, seconds)
    except Exception:  # whatever the exporter, or the user's code, raises must not hide what failed
        return
    for change in mended.changes if mended is not None else ():
        yield f"mended line {change.source.line}: {change.mended}{change.loss}"
    if mended is not None and mended.changes:
        yield f"with that, `check` answers for such batches and these weights: {mended.result.verdict}"


def _mend(model: torch.nn.Module, call: Repeatable, seconds: float) -> Mended | None:
    given = inspect.signature(model.forward).bind(*call.args, **call.kwargs).arguments
    box = {name: _range(x) for name, x in given.items() if isinstance(x, Tensor) and x.is_floating_point()}
    if not all(math.isfinite(end) for ends in box.values() for end in ends):
        return None
    args = tuple(x.detach() if isinstance(x, Tensor) else x for x in call.args)
    kwargs = {name: x.detach() if isinstance(x, Tensor) else x for name, x in call.kwargs.items()}
    autocast = call.autocast[0][1] if call.autocast else None
    return check(
        model,
        args,
        kwargs,
        box=box,
        gradient=True,
        autocast=autocast,
        mend=seconds,
        timeout=2 * seconds,
        n_starts=_STARTS,
        self_check=False,
    ).mended


def _range(x: Tensor) -> tuple[float, float]:
    return float(x.detach().min()), float(x.detach().max())
