"""The commands: what each does, an example, and the class of its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from ranum_falsify.cli.options.shared import CommonOptions

__all__ = ["COMMANDS", "MAIN", "CommandForm"]

MAIN = "falsify"
"""The main command, whose name may be left out."""


@dataclass(frozen=True)
class CommandForm:
    """A command.

    Attributes:
        options: The class of its options, as `module:class`; imported when it is needed.
        summary: What it does.
        example: Arguments for it.
        runner: The module that runs it.
    """

    options: str
    summary: str
    example: str
    runner: str

    def load(self) -> type[CommonOptions]:
        """Return the class of its options."""
        module, _, name = self.options.partition(":")
        found: type[CommonOptions] = getattr(import_module(f"ranum_falsify.cli.options.{module}"), name)
        return found


COMMANDS: Mapping[str, CommandForm] = {
    MAIN: CommandForm(
        "search:FalsifyOptions",
        "Find inputs on which an operator of an ONNX network produces NaN or infinity, or prove that there are none.",
        "prop.py --network N model.onnx",
        "falsify",
    ),
    "check": CommandForm(
        "check:CheckOptions",
        "Find inputs of a model on which one of its operators produces NaN or infinity, or prove that there are none.",
        "model.onnx --box 0 1",
        "check",
    ),
    "confirm": CommandForm(
        "confirm:ConfirmOptions",
        "Make unit tests for the operators of a network that can fail.",
        "prop.py --network N model.onnx --out tests",
        "confirm",
    ),
    "fix": CommandForm(
        "fix:FixOptions",
        "Repair a model so that a property of it is proved.",
        "prop.py --network N model.onnx -o fixed.onnx",
        "fix",
    ),
    "replay": CommandForm(
        "replay:ReplayOptions",
        "Run a counterexample on ONNX Runtime again and name the operators that fail.",
        "cex.npy --network N model.onnx",
        "replay",
    ),
    "check-proof": CommandForm(
        "check_proof:CheckProofOptions",
        "Check a proof file of a model, step by step.",
        "proof.json --network N model.onnx --box 0 1",
        "check_proof",
    ),
    "transform": CommandForm(
        "transform:TransformOptions",
        "Rewrite a model by passes, and verify each.",
        "model.onnx stable -o new.onnx",
        "transform",
    ),
    "simplify": CommandForm(
        "transform:SimplifyOptions",
        "Rewrite a model by the passes that a file lists, and verify each.",
        "-i model.onnx -s passes.txt -o new.onnx",
        "transform",
    ),
    "suite": CommandForm(
        "suite:SuiteOptions", "Ask about many models: benchmark suites, or all that a folder holds.", "FOLDER", "suite"
    ),
    "suite compare": CommandForm(
        "suite:CompareOptions",
        "Compare the results of two runs of a suite, or two tools.",
        "results.jsonl expected.csv",
        "suite_compare",
    ),
    "report": CommandForm(
        "report:ReportOptions",
        "Show the results of a suite as a page, or as CI systems read them.",
        "results.jsonl -o report.html",
        "report",
    ),
    "operators": CommandForm(
        "operators:OperatorsOptions",
        "List the supported operators with what makes their operands valid.",
        "--json",
        "operators",
    ),
    "doctor": CommandForm(
        "doctor:DoctorOptions",
        "Show what proofs depend on here: the processor, the libraries and what was measured of their kernels.",
        "",
        "doctor",
    ),
    "examples": CommandForm(
        "examples:ExamplesOptions", "Write small models and properties to try.", "FOLDER", "examples"
    ),
    "zoo list": CommandForm("zoo:ZooList", "List real defects of published programs, rebuilt as models.", "", "zoo"),
    "zoo show": CommandForm(
        "zoo:ZooShow", "Show inputs, weights, documented operators and property of one model.", "2b", "zoo"
    ),
    "zoo build": CommandForm(
        "zoo:ZooBuild",
        "Write models and their properties: ID.onnx, ID.py, ID.safe.onnx, ID.safe.py.",
        "2b --out FOLDER",
        "zoo",
    ),
    "zoo detect": CommandForm(
        "zoo:ZooDetect", "Analyse models and compare the result with the documented defects.", "2b 3", "zoo"
    ),
    "zoo train": CommandForm(
        "zoo:ZooTrain", "Search for training data that lead training into the documented defects.", "2b", "zoo"
    ),
    "completion": CommandForm(
        "completion:CompletionOptions",
        "Print what completes commands and options in a shell.",
        "bash",
        "completion",
    ),
}
