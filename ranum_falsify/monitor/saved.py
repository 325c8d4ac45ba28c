"""A step of training as a file: what it read, and the operators that it ran, which run again without its program."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ranum_falsify.errors import ReplayError, reason_of
from ranum_falsify.monitor.findings import find_cause
from ranum_falsify.monitor.recorder import RecordedCall, Recorder, Slot, Trace
from ranum_falsify.saving import save_together

_FORMAT = 1
_REFUSED = ("from_file", "set_", "resize_")
"""Operators that reach beyond tensors."""


def save_step(path: Path, trace: Trace, report: Sequence[str]) -> None:
    """Write a step: batch and weights by name, the state of the generators, and every operator.

    Raises:
        SaveError: The file cannot be written.
    """
    calls = [
        [str(call.func), _pack(call.args), _pack(call.kwargs), call.outputs, call.written, call.line]
        for call in trace.calls
    ]
    content = {
        "format": _FORMAT,
        "torch": str(torch.__version__),
        "report": list(report),
        "tensors": {trace.names[place]: x for place, x in trace.leaves.items()},
        "places": {trace.names[place]: place for place in trace.leaves},
        "random": dict(trace.random),
        "calls": json.dumps(calls),
    }
    save_together({path: lambda stream: torch.save(content, stream)})


def _pack(value: Any) -> Any:
    """Return an argument as JSON can hold it."""
    if type(value) is Slot:
        return {"tensor": value.place}
    if isinstance(value, list | tuple):
        return [_pack(part) for part in value]
    if isinstance(value, dict):
        return {"named": {name: _pack(part) for name, part in value.items()}}
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    return value if isinstance(value, str | int | float | bool | None) else None


def _unpack(value: Any, tensors: Mapping[int, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(part, tensors) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "tensor":
        return tensors[held]
    if kind == "named":
        return {name: _unpack(part, tensors) for name, part in held.items()}
    return torch.device(held) if kind == "device" else getattr(torch, held)


def replay_step(path: Path) -> tuple[list[str], bool]:
    """Run a saved step again.

    PyTorch's own operators run on what the file holds; no code of the program that wrote it is needed, or run.

    Returns:
        A report, and whether an operator made NaN or infinity, or read it, again.

    Raises:
        ReplayError: The file is no saved step, or this machine cannot run it.
    """
    try:
        content = torch.load(path, weights_only=True)
        tensors = {content["places"][name]: x for name, x in content["tensors"].items()}
        calls, random, format_ = json.loads(content["calls"]), content["random"], content["format"]
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read ({reason_of(error)}); give a file that rf.watch wrote") from error
    except Exception as error:
        raise ReplayError(
            f"{path}: no step that can be run here ({type(error).__name__}); give a file that rf.watch wrote, on a"
            " machine with the devices of the run"
        ) from error
    if format_ != _FORMAT:
        raise ReplayError(f"{path}: its format is {format_}, not {_FORMAT}; replay it with the version that wrote it")
    names = {place: name for name, place in content["places"].items()}
    trace = _run(path, calls, tensors, random)
    finding = find_cause(trace)
    again = [*dict.fromkeys(map(str, finding.causes))] + [
        f"{names.get(_leaf_of(trace, place, tensors), 'a tensor')} is not finite" for place in finding.leaves
    ]
    return ["saved: " + content["report"][0], *(again or ["nothing fails"])], bool(again)


def _leaf_of(trace: Trace, place: int, tensors: Mapping[int, Tensor]) -> int:
    memory = trace.leaves[place].data_ptr()
    return next((saved for saved, x in tensors.items() if x.data_ptr() == memory), -1)


def _run(path: Path, calls: Sequence[Any], tensors: dict[int, Tensor], random: Mapping[str, Tensor]) -> Trace:
    lines = []
    recorder = Recorder()
    with torch.random.fork_rng(), torch.no_grad():
        torch.set_rng_state(random["cpu"])
        if "cuda" in random:
            torch.cuda.set_rng_state(random["cuda"])
        for number, (name, args, kwargs, outputs, written, line) in enumerate(calls):
            func = _operator(path, name)
            try:
                with recorder:
                    result = func(*_unpack(args, tensors), **_unpack(kwargs, tensors))
            except (RuntimeError, TypeError, KeyError, IndexError, AttributeError, ValueError) as error:
                detail = str(error).partition("\n")[0]
                raise ReplayError(f"{path}: call {number}, {name}, cannot be run ({detail}); save it again") from error
            tensors |= {new: tensors[old] for old, new in written}
            made = [x for x in (result if isinstance(result, list | tuple) else (result,)) if isinstance(x, Tensor)]
            tensors |= dict(zip(outputs, made, strict=False))
            lines.append((str(line[0]), int(line[1]), bool(line[2])))
    trace = recorder.finish()
    trace.calls = [RecordedCall(*call[:5], line, call.sizes) for call, line in zip(trace.calls, lines, strict=True)]
    return trace


def _operator(path: Path, name: str) -> Any:
    """Return an operator of PyTorch."""
    space, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    if space != "aten" or packet in _REFUSED:
        raise ReplayError(f"{path}: {name} is none of the operators of PyTorch that are replayed; use the program")
    try:
        return getattr(getattr(torch.ops.aten, packet), overload)
    except AttributeError as error:
        raise ReplayError(f"{path}: this PyTorch has no operator {name}; use the one that wrote the file") from error
