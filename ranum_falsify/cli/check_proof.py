"""The command `check-proof`: whether a proof file holds of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ranum_falsify.cli.options.check_proof import CheckProofOptions
from ranum_falsify.cli.output import say
from ranum_falsify.errors import UsageError, reason_of
from ranum_falsify.network.messages import show_range

if TYPE_CHECKING:
    from ranum_falsify.checker.check import CheckedProof
    from ranum_falsify.checker.proof import ProofFile

__all__ = ["run"]


def run(options: CheckProofOptions) -> int:
    """Run the command.

    Raises:
        RanumFalsifyError: A file cannot be read.
    """
    from ranum_falsify.checker.check import check_proof  # imports onnx
    from ranum_falsify.checker.proof import ProofFile, ProofRejectedError
    from ranum_falsify.network.guards import memory_limit

    (model,) = options.networks.values()
    try:
        with memory_limit(options.memory):
            proof = ProofFile.read(options.proof)
            say(_describe(check_proof(proof, model), proof))
    except ProofRejectedError as error:
        say([f"rejected: {error}"])
        return 1
    except OSError as error:
        raise UsageError(f"{error.filename or options.proof}: cannot be read ({reason_of(error)})") from error
    return 0


def _describe(checked: CheckedProof, proof: ProofFile) -> Iterator[str]:
    total = checked.checked + len(checked.valid) + len(checked.trusted)
    trusting = f", with {len(checked.trusted)} of {total} operators trusted" if checked.trusted else ""
    runtimes = tuple(map(str, proof.facts.get("runtimes", ())))
    yield f"accepted for {', '.join(runtimes)}{trusting}"
    yield f"computed again: {checked.checked} of {total} operators"
    yield from _list("valid, but with bounds that are trusted", checked.valid)
    yield from _list("trusted", checked.trusted)
    yield "trusted: the measured errors of kernels, and what ONNX Runtime's optimiser makes of the model"
    if "onnxruntime" in runtimes:
        yield "trusted: that ONNX Runtime runs the model"
    if proof.facts.get("derivatives"):
        yield "trusted: that derivatives are finite"
    for name in proof.inputs:
        box = proof.bounds[name]
        if box.lower.size:
            yield f"box: {name} {show_range(box.lower.min().item(), box.upper.max().item())}"


def _list(label: str, found: Mapping[str, str]) -> Iterator[str]:
    if found:
        yield f"{label}: {len(found)}"
        yield from (f"  {title}: {why}" for title, why in found.items())
