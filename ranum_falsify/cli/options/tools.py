"""Options of commands that ask nothing of a model of the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from ranum_falsify.cli.options.shared import CommonOptions, VerboseOptions
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import Argument, Option, parse_seconds


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CommonOptions):
    """Make a page of the results of a suite or of pytest, or a report for CI systems.

    Attributes:
        results: Results (.jsonl) of a suite, of its parts, or of pytest --ranum-falsify-results.
        output_format: What to print: JUnit XML, SARIF, annotations of GitHub Actions, or a code quality report of
            GitLab.
        output: Write an HTML page here.
        junit: Write JUnit XML here, with a test for each instance.
        sarif: Write SARIF 2.1.0 here, with a result for each violated operator.
    """

    example: ClassVar[str] = "results.jsonl -o report.html"
    epilog: ClassVar[str] = """\
The main command and `check` write the same about a single run: --report PATH, --junit PATH, --sarif PATH,
--output-format FORM."""

    results: Annotated[tuple[Path, ...], Argument("RESULTS", many=True, reads="the results of a suite")]
    output_format: Annotated[Literal["junit", "sarif", "github", "gitlab"] | None, Option(group="output")] = None
    output: Annotated[Path | None, Option("-o --output", metavar="PATH", in_files=False, group="output")] = None
    junit: Annotated[Path | None, Option(metavar="PATH", group="output")] = None
    sarif: Annotated[Path | None, Option(metavar="PATH", group="output")] = None


@dataclass(frozen=True, kw_only=True)
class OperatorsOptions(CommonOptions):
    """List the supported operators and the conditions on their operands.

    Attributes:
        json: Print JSON.
        markdown: Print Markdown.
    """

    example: ClassVar[str] = "--json"

    json: Annotated[bool, Option()] = False
    markdown: Annotated[bool, Option()] = False

    def __post_init__(self) -> None:
        """Check that there is at most one form."""
        if self.json and self.markdown:
            raise UsageError("--json and --markdown contradict each other; give one of them")


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(CommonOptions):
    """Show what proofs rest on here: processor, libraries, and the measurements of their kernels.

    Attributes:
        self_check: Compare the installed kernels with their measurements.
        measure: Measure the kernels of installed versions that have no measurements on this family of processors (about
            2 minutes each, once per machine).
    """

    self_check: Annotated[bool, Option(off="--no-self-check")] = True
    measure: Annotated[bool, Option(in_files=False)] = False


@dataclass(frozen=True, kw_only=True)
class ExamplesOptions(CommonOptions):
    """Write small models and properties to try.

    Attributes:
        folder: Folder for networks/ and properties/; created if its parent exists.
    """

    example: ClassVar[str] = "FOLDER"

    folder: Annotated[Path, Argument("DIR")]


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(CommonOptions):
    """Print a script that completes commands and options in your shell.

    Attributes:
        shell: The shell: bash, zsh or fish.
    """

    example: ClassVar[str] = "bash"
    epilog: ClassVar[str] = 'Write into ~/.bashrc: eval "$(ranum-falsify completion bash)"'

    shell: Annotated[Literal["bash", "zsh", "fish"], Argument("SHELL")]


_Batch = Annotated[int, Option(least=1)]
_Documented = Annotated[bool, Option()]
_Ids = Annotated[tuple[str, ...], Argument("ID", many=True)]


@dataclass(frozen=True, kw_only=True)
class ZooList(CommonOptions):
    """List real defects of published programs, rebuilt as models.

    Attributes:
        json: Print JSON.
    """

    json: Annotated[bool, Option()] = False


@dataclass(frozen=True, kw_only=True)
class ZooShow(CommonOptions):
    """Show inputs, weights, documented operators and property of one model.

    Attributes:
        id: A defect or a model, such as 2b.
        safe: Show the repaired twin.
        batch: Batch size, where the program leaves it open.
        documented: Let inputs range over the program's data alone, also where the zoo widens that.
        json: Print JSON.
    """

    example: ClassVar[str] = "2b"

    id: Annotated[str, Argument("ID")]
    safe: Annotated[bool, Option()] = False
    batch: _Batch = 1
    documented: _Documented = False
    json: Annotated[bool, Option()] = False


@dataclass(frozen=True, kw_only=True)
class ZooBuild(CommonOptions):
    """Write models and their properties: ID.onnx, ID.py, ID.safe.onnx, ID.safe.py.

    Attributes:
        ids: Defects or models, by default the 79 defects; saf means the 14 programs of the Soft Assertion Fuzzer.
        out: The folder; created if its parent exists; by default ranum-falsify/zoo in the user's cache.
        batch: Batch size, where the program leaves it open.
        documented: Let inputs range over the program's data alone, also where the zoo widens that.
    """

    example: ClassVar[str] = "2b --out FOLDER"

    ids: _Ids = ()
    out: Annotated[Path | None, Option(metavar="DIR", group="output")] = None
    batch: _Batch = 1
    documented: _Documented = False


@dataclass(frozen=True, kw_only=True)
class ZooDetect(VerboseOptions, CommonOptions):
    """Analyse models and compare the result with the documented defects.

    Attributes:
        ids: Defects or models, by default the 79 defects; saf means the 14 programs of the Soft Assertion Fuzzer.
        batch: Batch size, where the program leaves it open.
        documented: Let inputs range over the program's data alone, also where the zoo widens that.
        inference: Also measure an ONNX Runtime inference of each model.
        processors: Threads of PyTorch and ONNX Runtime.
        json: Write a report as JSON here; - is standard output.
    """

    example: ClassVar[str] = "2b 3"
    epilog: ClassVar[str] = """\
An operator is flagged if the interval analysis does not prove it valid for all inputs and weights in their ranges.
With --inference, seconds are medians of three analyses.

exit status: 0 every documented operator is flagged and every repaired model proved, 1 otherwise,
2 usage or input error"""

    ids: _Ids = ()
    batch: _Batch = 1
    documented: _Documented = False
    inference: Annotated[bool, Option()] = False
    processors: Annotated[int, Option("-p --processors --n_proc", least=1)] = 1
    json: Annotated[str | None, Option(metavar="PATH", group="output")] = None


@dataclass(frozen=True, kw_only=True)
class ZooTrain(VerboseOptions, CommonOptions):
    """Search for training data that trigger the documented defects.

    Attributes:
        ids: Defects or models, by default all.
        level: Which training counts; see below.
        runs: Runs of each defect, each with its own seed, one of RANUM's; at most 10.
        timeout: Seconds of one run.
        descend: Let gradients lead the search; --random draws data instead, for comparison.
        out: Folder for what the runs found; created if its parent exists.
        processors: Threads of PyTorch.
        json: Write a report as JSON here; - is standard output.
    """

    example: ClassVar[str] = "2b"
    epilog: ClassVar[str] = """\
ranum: one step of gradient descent, learning rate 1, on one sample, from the program's own initial weights; then
weights are put back into their ranges, and an inference input drawn beforehand must fail; inputs range over [-50, 50]
at least. So RANUM's own runs go.

drawn: the same, from weights drawn in their ranges, of which most fail without training.

strict: drawn, in the zoo's ranges, but weights stay as the step leaves them, and any inference input may fail.

initial: strict, from the program's own initial weights.

real: the program's optimiser, learning rate, batch and initial weights, at most 1000 steps, one-hot labels.

exit status: 0 every run leads into its defect or needs no training, 1 otherwise, 2 usage or input error"""

    ids: _Ids = ()
    level: Annotated[Literal["ranum", "drawn", "strict", "initial", "real"], Option()] = "strict"
    runs: Annotated[int, Option(least=1)] = 10
    timeout: Annotated[float, Option(metavar="SECONDS", parse=parse_seconds)] = 10.0
    descend: Annotated[bool, Option(off="--random")] = True
    out: Annotated[Path | None, Option(metavar="DIR", group="output")] = None
    processors: Annotated[int, Option("-p --processors --n_proc", least=1)] = 1
    json: Annotated[str | None, Option(metavar="PATH", group="output")] = None
