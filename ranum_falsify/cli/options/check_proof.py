"""Options of `check-proof`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from ranum_falsify.cli.options.shared import CommonOptions, Memory
from ranum_falsify.errors import UsageError
from ranum_falsify.option import Argument, Option, to_paths

__all__ = ["CHECK_PROOF_EPILOG", "CheckProofOptions"]

CHECK_PROOF_EPILOG = """\
Each operator is bounded again from its operands' bounds, by a checker that shares nothing with what made the proof.
What it has no rule for is listed as trusted.

exit status: 0 accepted, 1 rejected, 2 usage or input error
"""
_MISSING = "check-proof: no proof is given; write ranum-falsify check-proof PROOF --network N MODEL"


@dataclass(frozen=True, kw_only=True)
class CheckProofOptions(CommonOptions):
    """What `check-proof` is asked for.

    Attributes:
        proof: The proof, which --proof wrote.
        networks: The ONNX model that it is about.
        memory: Memory that checking may use beyond what the file sizes explain; by default 0.35.
    """

    proof: Annotated[Path, Argument("PROOF", missing=_MISSING)]
    networks: Annotated[Mapping[str, Path], Option("-N --network", metavar=("NAME", "PATH"), gather=to_paths)] = field(
        default_factory=dict
    )
    memory: Memory = None

    def __post_init__(self) -> None:
        """Check that there is one model."""
        if len(self.networks) != 1:
            raise UsageError("check-proof: a proof is about one model; give it once, as --network N MODEL")
