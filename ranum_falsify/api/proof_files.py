"""Proof files of answers."""

from __future__ import annotations

from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.config import SearchConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.results.plain import as_json, versions
from ranum_falsify.results.run_report import grounds_of
from ranum_falsify.verify.prove.proof_file import make_proof
from ranum_falsify.verify.search.result import Answer


def proof_of(answer: Answer, loaded: BoundProblem, config: SearchConfig) -> bytes:
    """Return the proof file of an answer.

    Raises:
        UsageError: The verdict is not `holds`, or the question is none that proof files are about.
    """
    if answer.verdict != "holds" or not config.prove:
        raise UsageError(f"no proof file is written: the verdict is {answer.verdict}")
    if any(operator.verdict != "proved" for operator in answer.operators):
        raise UsageError("no proof file is written: the verdict is about outputs alone; ask with --fail-on any")
    if loaded.sources.dtype is not None:
        raise UsageError("no proof file can be written: the network is converted; ask about the model as it is")
    grounds = as_json(grounds_of(answer.assumptions)) or {}
    facts = {
        "libraries": grounds.get("libraries", {}),
        "dims": grounds.get("dims", {}),
        "forward_pass_only": list(answer.steep),
        "versions": versions(),
    }
    source = next(iter(loaded.sources.networks.values()))
    return make_proof(loaded.problem, config, source, facts)
