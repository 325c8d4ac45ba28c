"""Options of `confirm`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from ranum_falsify.cli.options.shared import PropertyOptions, ReadingOptions, ReportPath, SelfCheck, Verbosity
from ranum_falsify.cli.usage import PROGRAM
from ranum_falsify.config import ConfirmConfig, TrainingConfig
from ranum_falsify.option import Argument, Group, Option, parse_size, to_mapping

__all__ = ["CONFIRM_EPILOG", "ConfirmOptions"]

CONFIRM_EPILOG = """\
For each operator that is not proved: inputs, and weights that the property leaves free, that make it invalid on ONNX
Runtime; and a span around them, a box in every point of which it is proved to be invalid.

In DIR: model.onnx, a .npz file for each test, test_PROPERTY.py, which runs them all with pytest and needs NumPy and
ONNX Runtime only, and confirm.json.

With --training: training data, within the ranges of the property, after which the model fails, trained by the
property's loss from the weights in its file.  In DIR, for each operator, a folder with training.npz, trained.npz,
model.onnx, and a test that trains by itself and needs NumPy, PyTorch and ONNX Runtime only; and training.json.

exit status: 0 every operator is proved, 1 something is triggered, 2 usage or input error,
             3 operators are not proved, and nothing is triggered
"""
_MISSING = f"confirm: no property file is given; write {PROGRAM} confirm PROPERTY --network NAME MODEL --out DIR"


@dataclass(frozen=True, kw_only=True)
class ConfirmOptions(ReadingOptions, PropertyOptions):
    """What `confirm` is asked for.

    Attributes:
        property_path: Property file (.py); it is a program, which runs with all your rights.
        config: How to make the tests.
        training: How the networks are trained.
        out: Folder for the files; created if its parent exists.
        plot: With --training, draw loss and margin of the first operator that fails over the steps here, as SVG.
        json: Write the report as JSON here, too; - is standard output.
        dims: Size of a symbolic dimension of the model's inputs; by default 1.
        self_check: Whether the installed kernels are checked before anything is proved.
        verbosity: -1 quiet, 0, 1 verbose.
    """

    property_path: Annotated[Path, Argument("PROPERTY", missing=_MISSING)]
    config: Annotated[ConfirmConfig, Group("search")] = field(default_factory=ConfirmConfig)
    training: Annotated[TrainingConfig, Group("training")] = field(default_factory=TrainingConfig)
    out: Annotated[Path | None, Option(metavar="DIR"), Group("output")] = None
    plot: Annotated[Path | None, Option(metavar="FILE"), Group("training")] = None
    json: ReportPath = None
    dims: Annotated[Mapping[str, int], Option("--dim", metavar="NAME=VALUE", parse=parse_size, gather=to_mapping)] = (
        field(default_factory=dict)
    )
    self_check: SelfCheck = True
    verbosity: Verbosity = 0
