"""What ONNX Runtime makes of a model before it runs it: the graph that its optimiser writes.

At its default level ONNX Runtime folds, merges and replaces operators, with other constants, roundings and element
types than the model has.  It does so in a child process here, because a malformed model can crash it; one child serves
all models of a process.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from ranum_falsify.errors import ModelError
from ranum_falsify.network.child import Child, ChildDeathError
from ranum_falsify.network.model_file import freed_model, load_model

if TYPE_CHECKING:
    from ranum_falsify.network.graph import Graph

__all__ = ["Optimised", "optimised"]

_WORKER = Path(__file__).with_name("optimiser_worker.py")
_SECONDS = 120.0
"""How long ONNX Runtime may take; large models take a few."""


@dataclass(frozen=True, kw_only=True)
class Optimised:
    """What ONNX Runtime runs in place of a graph.

    Attributes:
        graph: The graph, whose inputs and outputs are named as before; None if it is not known.
        refusal: What ONNX Runtime says of a model that it does not run at all.
        fault: Why the graph is not known of a model that may run, in a few words.
    """

    graph: Graph | None = None
    refusal: str = ""
    fault: str = ""


def optimised(graph: Graph) -> Optimised:
    """Return what ONNX Runtime runs in place of a graph.

    Fixed inputs are inputs to the optimiser, and constants only of what it makes: whoever runs the model gives them.
    """
    from ranum_falsify.network.reader import read

    model = graph.as_onnx() if graph.source is None else freed_model(graph.source, graph.options.free)
    try:
        rewritten = _rewritten(model)
        return Optimised(graph=read(rewritten, dims=graph.options.dims, fixed=graph.options.fixed))
    except _Refused as error:
        return Optimised(refusal=str(error))
    except ChildDeathError as error:
        _forget()
        return Optimised(fault="its optimiser takes too long" if error.late else "its optimiser crashes on the model")
    except (ModelError, ValueError, OSError) as error:
        # Models beyond what protobuf can hold are among these.
        return Optimised(fault=str(error).removeprefix("model: "))


class _Refused(Exception):
    """ONNX Runtime does not load the model."""


def _rewritten(model: onnx.ModelProto) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory(prefix="ranum-falsify-") as folder:
        source, target = Path(folder, "model.onnx"), Path(folder, "optimised.onnx")
        source.write_bytes(model.SerializeToString())
        paths = {"source": str(source), "target": str(target)}
        kind, answer = _child().ask("optimise", paths, timeout=_SECONDS)
        if kind != "ok":
            raise _Refused(" ".join(str(answer).split()))
        return load_model(target)


_children: dict[int, Child] = {}


def _child() -> Child:
    """Return the child of this process; a forked process has its own."""
    mine = os.getpid()
    if mine not in _children:
        _children.clear()
        _children[mine] = Child(_WORKER)
        atexit.register(_forget)
    return _children[mine]


def _forget() -> None:
    child = _children.pop(os.getpid(), None)
    if child is not None:
        child.close()
