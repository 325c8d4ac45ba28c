"""Write down what a `holds` is about, how its box was cut, and what linear bounds are about, for the checker.

A file is an archive of NumPy (.npz) without objects: `meta`, a JSON text as bytes, and the ends of each input's box,
`lower0`, `upper0` and so on, of size 1 along dimensions in which they do not differ.  The checker finds its own bounds
of all else.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ranum_falsify.config import ProveConfig, library_of
from ranum_falsify.domain.linear.declarations import Affine, form_of
from ranum_falsify.errors import UsageError
from ranum_falsify.network import Graph
from ranum_falsify.network.fingerprint import Fingerprint
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove.applications import Applications, box_of
from ranum_falsify.verify.prove.bisection import Cut, cut, is_narrow
from ranum_falsify.verify.prove.prover import Prover

_FORMAT = 4
_SECONDS = 10.0
"""How long cuts of the box are looked for."""
_MOST_CUTS = 1 << 13
_DEEPER = 4
"""How many times parts that intervals decide are cut nevertheless: the checker's own bounds are wider."""


def make_proof(problem: Problem, config: ProveConfig, source: Fingerprint, facts: Mapping[str, Any]) -> bytes:
    """Return the proof file of a problem that holds, given the file of its only network, and facts for readers.

    Raises:
        UsageError: It is no question that proof files are about.
    """
    _check_question(problem, source)
    (call,) = problem.calls
    (region,) = problem.regions
    names = {variable: name for name, variable in zip(call.graph.input_names, call.variables, strict=True) if variable}
    boxes = [variable for variable in region if variable.name in names]
    cuts = [one if one is None else (names[one[0]], *one[1:]) for one in _find_cuts(problem, config)]
    meta = {
        "format": _FORMAT,
        "model": source.sha256,
        "runtimes": [runtime for runtime in config.runtimes if runtime == library_of(runtime)],
        "inputs": [[names[one.name], one.dtype.name, list(one.shape)] for one in boxes],
        "derivatives": any(goal.gradient for goal in problem.goals),
        "cuts": cuts,
        "directions": [*_find_directions(call.graph)],
        "facts": dict(facts),
    }
    arrays = {"meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)}
    for position, one in enumerate(boxes):
        arrays |= {f"lower{position}": _merge(one.lower), f"upper{position}": _merge(one.upper)}
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def _find_directions(graph: Graph) -> Iterator[str]:
    """Yield the tensors of which linear bounds cannot say all by others: inputs, and what is not linear."""
    yield from graph.input_names
    for op in graph.nodes:
        form = form_of(op)
        if not isinstance(form, Affine) or form.factors:
            yield from filter(None, op.output_names)


def _merge(array: np.ndarray) -> np.ndarray:
    """Return an array with size 1 along the dimensions in which its elements are equal."""
    for axis, size in enumerate(array.shape):
        if size > 1 and (array == (first := array.take([0], axis))).all():
            array = first
    return array


def _find_cuts(problem: Problem, config: ProveConfig) -> list[Cut | None]:
    """Return how to cut the box so that intervals show on each part what is asked, if few cuts do."""
    prover = Prover(problem, config)
    (region,) = problem.regions
    box, cuts, depths = box_of(region), list[Cut | None](), [0]

    def decide(part: Any) -> bool:
        depth = depths.pop()  # below a part that is decided
        if not depth:
            known = Applications(problem, prover.graphs, prover.analyses_of, part, prover.tick, cells=False)
            depth = int(all(known.is_valid(goal) for goal in problem.goals))
        elif depth <= _DEEPER:
            depth += 1
        if depth > _DEEPER or (depth and not cuts) or len(cuts) >= _MOST_CUTS:
            return True
        depths.extend((depth, depth))
        return False

    done = is_narrow(box) and cut(box, decide, deadline=Deadline.after(_SECONDS), record=cuts.append)
    return cuts if done and len(cuts) < _MOST_CUTS else [None]


def _check_question(problem: Problem, source: Fingerprint) -> None:
    why = ""
    if not problem.is_pure_validity:
        why = "the property asks for more than valid operators"
    elif len(problem.calls) != 1 or len(problem.regions) != 1 or None in problem.calls[0].variables:
        why = "the property is about more than one network, or more than one box"
    elif problem.calls[0].graph.source is None or not source.in_file:
        why = "the network is no whole file"
    elif source.external_data:
        why = "its weights lie in files of their own"
    if why:
        raise UsageError(f"no proof file can be written: {why}; ask about one model and one box, as check does")
