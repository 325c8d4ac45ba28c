"""Options of `confirm`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from ranum_falsify.cli.options.shared import MemoryOptions, PropertyOptions, VerboseOptions
from ranum_falsify.config import ConfirmConfig, HalfPrecision, TrainingConfig
from ranum_falsify.option_marks import PROPERTY, Argument, Option, parse_size, to_mapping


@dataclass(frozen=True, kw_only=True)
class ConfirmOptions(VerboseOptions, TrainingConfig, ConfirmConfig, MemoryOptions, PropertyOptions):
    """Make unit tests for the operators of a network that can fail.

    Attributes:
        property_path: Property file (.py). It is a program and runs with all your rights.
        out: Folder for the tests; created if its parent exists.
        plot: With --training: draw loss and margin of the first operator that fails, step by step, as SVG.
        json: Also write the report as JSON here; - is standard output.
        dims: Size of a symbolic dimension of the model's inputs; by default 1.
        strict: Refuse models with unsupported operators; without it, ONNX Runtime evaluates these.
        dtype: Check the networks as if converted to this type.
        self_check: Before the first proof on a machine, compare the installed kernels with their measurements.
    """

    example: ClassVar[str] = "prop.py --network N model.onnx --out tests"
    epilog: ClassVar[str] = """\
For each operator that is not proved: inputs, and weights that the property frees, which make it invalid on ONNX
Runtime; and a span, a box around them in which every point is proved to do so.

DIR gets model.onnx, model.tensors (which makes it show tensors inside), a .npz file for each test, confirm.json, and
test_PROPERTY.py, which runs all tests with pytest and needs only NumPy and ONNX Runtime.

With --training: training data, within the property's ranges, after which the model fails. It is trained by the
property's loss, from the weights in its file. DIR gets training.json and, for each operator, a folder with
training.npz, trained.npz, both files of the model, and a test that trains by itself and needs only NumPy, PyTorch and
ONNX Runtime.

exit status: 0 every operator is proved, 1 something is triggered, 2 usage or input error,
3 operators are not proved, and nothing is triggered"""

    property_path: Annotated[Path, Argument("PROPERTY", reads=PROPERTY)]
    out: Annotated[Path | None, Option(metavar="DIR", group="output")] = None
    plot: Annotated[Path | None, Option(metavar="FILE", group="training")] = None
    json: Annotated[str | None, Option(metavar="PATH", group="output")] = None
    dims: Annotated[Mapping[str, int], Option("--dim", metavar="NAME=VALUE", parse=parse_size, gather=to_mapping)] = (
        field(default_factory=dict)
    )
    strict: Annotated[bool, Option()] = False
    dtype: Annotated[HalfPrecision | None, Option()] = None
    self_check: Annotated[bool, Option(off="--no-self-check")] = True
