"""Options of `check-proof`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from ranum_falsify.cli.options.check import Box, box_option
from ranum_falsify.cli.options.shared import MemoryOptions, PropertyOptions
from ranum_falsify.config import Runtime, runtime_option
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import PROPERTY, Argument, Option, parse_sizes, to_mapping, to_names


@dataclass(frozen=True, kw_only=True)
class CheckProofOptions(MemoryOptions, PropertyOptions):
    """Check the proof file of a model, with a checker of its own.

    Attributes:
        proof: Proof file, as --proof writes it.
        property_path: The property that it proves, in place of --box.
        box: Range of all inputs; --box NAME=LO,HI for that of one; may be repeated.
        free: Let the weight of this name vary in its --box NAME=LO,HI; may be repeated.
        dims: Size of a symbolic dimension of the model's inputs; by default 1.
        runtimes: Runtimes that the proof must cover: onnxruntime, torch, exact; repeat, or separate by commas.
    """

    example: ClassVar[str] = "proof.npz --network N model.onnx --box 0 1"
    epilog: ClassVar[str] = """\
The options, or the property, say what is asked, and the file must prove that. The checker shares nothing with the
prover: it bounds each operator again, in the model and in what ONNX Runtime's optimiser makes of it.

exit status: 0 accepted, 1 rejected, 2 usage or input error, 3 not checked: an operator that can fail was not shown
not to"""

    proof: Annotated[Path, Argument("PROOF", reads="a proof file")]
    property_path: Annotated[Path | None, Argument("PROPERTY", reads=PROPERTY)] = None
    box: Annotated[Box, box_option("options")] = None
    free: Annotated[tuple[str, ...], Option(metavar="NAME", gather=to_names)] = ()
    dims: Annotated[
        Mapping[str, int | range], Option("--dim", metavar="NAME=VALUE", parse=parse_sizes, gather=to_mapping)
    ] = field(default_factory=dict)
    runtimes: Annotated[tuple[Runtime, ...], runtime_option()] = ("onnxruntime",)

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
