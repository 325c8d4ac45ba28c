"""Options of `check-proof`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from ranum_falsify.cli.options.check import Box
from ranum_falsify.cli.options.shared import Memory, PropertyOptions, Sizes
from ranum_falsify.config import Runtimes
from ranum_falsify.errors import UsageError
from ranum_falsify.option import Argument, Option, to_names

__all__ = ["CHECK_PROOF_EPILOG", "CheckProofOptions"]

CHECK_PROOF_EPILOG = """\
The question is what the options, or the property, say; the file has to be about that. A checker that shares nothing
with what made the proof bounds each operator again, of the model and of what ONNX Runtime's optimiser makes of it.

exit status: 0 accepted, 1 rejected, 2 usage or input error, 3 not checked: an operator that can fail was not shown
not to
"""
_MISSING = "check-proof: no proof is given; write ranum-falsify check-proof PROOF --network N MODEL --box LO HI"


@dataclass(frozen=True, kw_only=True)
class CheckProofOptions(PropertyOptions):
    """What `check-proof` is asked for.

    Attributes:
        proof: The proof, which --proof wrote.
        property_path: The property that it is about, in place of --box.
        box: What all inputs range over; --box NAME=LO,HI for one of them; may be repeated.
        free: The weight of this ONNX name ranges too, as --box NAME=LO,HI says; may be repeated.
        dims: Size of a symbolic dimension of the model's inputs; by default 1.
        runtimes: Runtimes that the proof must cover, of onnxruntime, torch, exact; repeat, or separate by commas.
        memory: Memory that checking may use beyond what the file sizes explain; by default 0.35.
    """

    proof: Annotated[Path, Argument("PROOF", missing=_MISSING)]
    property_path: Annotated[Path | None, Argument("PROPERTY")] = None
    box: Box = None
    free: Annotated[tuple[str, ...], Option(metavar="NAME", gather=to_names)] = ()
    dims: Sizes = field(default_factory=dict)
    runtimes: Runtimes = ("onnxruntime",)
    memory: Memory = None

    def __post_init__(self) -> None:
        """Check that there is one model and one question."""
        if len(self.networks) != 1:
            raise UsageError("check-proof: a proof is about one model; give it once, as --network N MODEL")
        if self.box is None and self.property_path is None:
            raise UsageError("check-proof: nothing says what the inputs range over; give --box LO HI, or a property")
        if (self.box is not None or self.free) and self.property_path is not None:
            raise UsageError("check-proof: the property says what the inputs range over; leave out --box and --free")
        if ranges := [name for name, size in self.dims.items() if isinstance(size, range)]:
            raise UsageError(f"check-proof: a proof is about one size; give --dim {ranges[0]}=SIZE")

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of each symbolic dimension."""
        return {name: size for name, size in self.dims.items() if isinstance(size, int)}
