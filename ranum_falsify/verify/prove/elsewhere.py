"""The same proof for processors of another architecture, on which libraries have other kernels."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ranum_falsify.config import ARM64, Runtime, library_of
from ranum_falsify.domain.kernels import envelope, measured_versions, sums_in_half
from ranum_falsify.network import Graph, spec_of
from ranum_falsify.network.nesting import has_subgraphs, nodes_with_branches
from ranum_falsify.network.tensors import torch_dtype
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.verify.prove.analyses import find_unknown_halves
from ranum_falsify.verify.prove.notices import name_some
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover

_MOST_NAMES = 2
_FLOATS = (torch.float32, torch.float64, torch.float16)


def find_further(prover: Prover) -> tuple[Runtime, ...]:
    """Return runtimes of ARM64 whose kernels stray further, so that a proof that covers them as well spares another."""
    left = tuple(there for there in _asked(prover).values() if there not in prover.runtimes)
    runtimes, graphs = (*prover.runtimes, *left), prover.graphs.values()
    if any(find_unknown_halves(graph, runtimes) for graph in graphs):
        return ()
    return left if any(_may_stray(graph, runtimes) for graph in graphs) else ()


def _asked(prover: Prover) -> dict[Runtime, Runtime]:
    return {lib: there for lib, there in ARM64.items() if lib in prover.runtimes and measured_versions(there)}


def prove_elsewhere(prover: Prover, seconds: float) -> Mapping[Runtime, str]:
    """Prove for ARM64 what is proved for x86-64; linear bounds and cutting may take some seconds for each library.

    The result says why there is no proof, or "" where there is one; by library that was measured there.
    """
    asked = _asked(prover)
    covered = (*prover.runtimes, *prover.further)
    left = {library: there for library, there in asked.items() if there not in covered}
    # One analysis may do for all of them.
    together = len(left) > 1 and not _find_obstacle(prover, (*left, *left.values()), 0.0)
    return {
        library: "" if together or library not in left else _find_obstacle(prover, (library, there), seconds)
        for library, there in asked.items()
    }


def _find_obstacle(prover: Prover, runtimes: tuple[Runtime, ...], seconds: float) -> str:
    graphs = list(prover.graphs.values())
    if unknown := next(filter(None, (find_unknown_halves(graph, runtimes) for graph in graphs)), ""):
        return unknown
    if not any(_may_stray(graph, runtimes) for graph in graphs):
        return ""
    prover.forget_bounds()
    again = _prove(prover, runtimes, seconds)
    if again.holds:
        return ""
    if not seconds:
        return _describe(again)
    library, there = runtimes
    failing = [f for f in measured_versions(there) if not _prove(prover, (library, f"{there}:{f}"), 0.0).holds]
    everywhere = len(failing) in (0, len(measured_versions(there)))
    return _describe(again) + ("" if everywhere else f", with {name_some(failing, _MOST_NAMES)}")


def _prove(prover: Prover, runtimes: tuple[Runtime, ...], seconds: float) -> Proof:
    again = prover.for_runtimes(runtimes)
    proof = again.analyse()
    return proof if proof.holds or not seconds else again.refine(Deadline.after(seconds))


def _describe(proof: Proof) -> str:
    left = [f"{operator.op_type} {operator.node}" for operator in proof.operators.values() if not operator.proved]
    return name_some(left, _MOST_NAMES) if left else "its bounds are wider there"


def _may_stray(graph: Graph, runtimes: tuple[Runtime, ...]) -> bool:
    """Tell whether kernels that bounds of a graph rest on stray further there: all else is rounded alike."""
    specs = [spec_of(op) for op in nodes_with_branches(graph)]
    if any(spec.domain for spec in specs):  # they may name others as parts
        return True
    dtypes = set(_FLOATS)
    if not has_subgraphs(graph):
        dtypes &= {torch_dtype(details.dtype) for details in graph.details.values()}
    if torch.float16 in dtypes and sums_in_half(runtimes):
        return True
    return any(_strays(name, dtype, runtimes) for spec in specs for name in spec.kernel for dtype in dtypes)


def _strays(kernel: str, dtype: torch.dtype, runtimes: tuple[Runtime, ...]) -> bool:
    try:
        here = envelope(kernel, dtype, tuple(dict.fromkeys(map(library_of, runtimes))))
        everywhere = envelope(kernel, dtype, runtimes)
    except KeyError:  # it has none of this type
        return False
    return here != everywhere
