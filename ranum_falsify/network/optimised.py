"""The graph that ONNX Runtime's optimiser writes, and which runs in place of a model.

At its default level ONNX Runtime folds, merges and replaces operators, with other constants, roundings and element
types than the model has.  It does so in a child process here, because a malformed model can crash it; one child serves
all models that a process reads one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np
import onnx
from dnnv.nn.utils import TensorDetails
from google.protobuf.message import EncodeError

from ranum_falsify.errors import ModelError, is_out_of_memory
from ranum_falsify.network.graph import Graph
from ranum_falsify.network.model_file import free_model, load_model
from ranum_falsify.network.reader import read
from ranum_falsify.process.child import Child, ChildDeathError, SharedChild

_WORKER = Path(__file__).with_name("optimiser_worker.py")
_SECONDS = 120.0
"""How long ONNX Runtime may take; large models take a few."""
_MEMORY, _FACTOR = 2**30, 16
"""Bytes of memory that it may take for a small model, and for a large one as a multiple of its size.

Folded constants can take any amount.
"""
_HALVES = frozenset((np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)))


@dataclass(frozen=True, kw_only=True)
class Optimised:
    """What ONNX Runtime runs in place of a graph.

    Attributes:
        graph: The graph, whose inputs and outputs are named as before; None if it is not known.
        refusal: ONNX Runtime's message about a model that it does not run at all.
        fault: Why the graph of a model that may run is not known, in a few words.
    """

    graph: Graph | None = None
    refusal: str = ""
    fault: str = ""


_found: WeakKeyDictionary[Graph, Optimised] = WeakKeyDictionary()
optimiser = SharedChild(_WORKER)
"""The child process that optimises all models of this process."""


def optimise(graph: Graph) -> Optimised:
    """Return what ONNX Runtime runs in place of a graph at its default level; each graph is optimised once.

    The optimiser sees fixed inputs as inputs, because whoever runs the model gives them.  Its result has them as
    constants.
    """
    if graph not in _found:
        found = _optimise(graph)
        return _found.setdefault(graph, found)  # where another thread was faster, its answer is everybody's
    return _found[graph]


def optimise_model(model: onnx.ModelProto) -> tuple[onnx.ModelProto | None, str]:
    """Return the model that ONNX Runtime makes of another at its default level; None, and why, if it is not known."""
    try:
        return _rewrite(model)[0], ""
    except _Refused as error:
        return None, f"ONNX Runtime does not run the model ({error})"
    except ChildDeathError as error:
        return None, _death(error)
    except (ModelError, EncodeError, ValueError, OSError) as error:
        return None, str(error).removeprefix("model: ")


def _optimise(graph: Graph) -> Optimised:
    try:
        rewritten, room = _rewrite(model_with_all_inputs(graph))
        options = graph.options
        found = read(
            rewritten,
            dims=options.dims,
            assumed=options.assumed,
            fixed=options.fixed,
            sample=options.sample,
            known=find_known_details(graph),
        )
        left = sum(array.nbytes for _, arrays in found.folded for array in arrays)
        if left > room:
            # On a machine with more memory it might fold these constants, and then fuse what reads them.
            return Optimised(fault="its constants take more memory than the optimiser is given")
        return Optimised(graph=found)
    except _Refused as error:
        return Optimised(refusal=str(error))
    except ChildDeathError as error:
        return Optimised(fault=_death(error))
    except (ModelError, EncodeError, ValueError, OSError) as error:
        # Models beyond what protobuf can hold are among these.
        return Optimised(fault=str(error).removeprefix("model: "))


def find_known_details(graph: Graph) -> Mapping[str, TensorDetails]:
    """Return shape and dtype of tensors of a model that the optimised one has, too, where it has their names.

    What replaces a node takes over the names of its results.  Bounds that do not fit, should there be any, are not
    used.  Around half precision, types change.
    """
    if graph.source is None or _HALVES & {np.dtype(details.dtype) for details in graph.shapes.values()}:
        return {}
    # Names that reading adds may stand for parts of other operators there.
    names = (name for node in graph.source.graph.node for name in node.output)
    return {name: graph.shapes[name] for name in names if name in graph.shapes}


def model_with_all_inputs(graph: Graph) -> onnx.ModelProto:
    """Return the model that runs in place of a graph, in which fixed inputs are inputs."""
    return graph.as_onnx() if graph.source is None else free_model(graph.source, graph.options.free)


def _death(error: ChildDeathError) -> str:
    if error.full:
        return "its optimiser needs too much memory"
    return "its optimiser takes too long" if error.late else "its optimiser crashes on the model"


class _Refused(Exception):
    """ONNX Runtime does not load the model, optimised or not."""


def _rewrite(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """Return what the optimiser makes of a model, and how many bytes of constants it had memory to fold."""
    with optimiser.use() as child:
        return _rewrite_in(child, model)


def _rewrite_in(child: Child, model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    source, target = child.folder / "model.onnx", child.folder / "optimised.onnx"
    try:
        source.write_bytes(model.SerializeToString())
        memory = max(_MEMORY, _FACTOR * source.stat().st_size)
        request = {"source": str(source), "target": str(target)}
        kind, answer = child.ask("optimise", request, timeout=_SECONDS, memory=memory)
        outcome, reason = answer if kind == "ok" else ("unoptimised", answer)
        if outcome == "refused" and not is_out_of_memory(RuntimeError(reason)):
            raise _Refused(reason)
        if outcome in ("refused", "unoptimised"):
            raise OSError(f"its optimiser fails ({reason})")
        if outcome == "unwritten":
            raise OSError(f"it cannot be written ({reason})")
        return load_model(target), memory // 2 - target.stat().st_size
    finally:
        for path in (source, target):
            with suppress(OSError):
                path.unlink(missing_ok=True)
