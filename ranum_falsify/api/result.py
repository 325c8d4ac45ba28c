"""Results of the Python API's functions, with their drawings and proof files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ranum_falsify.api.generated_property import Statement
from ranum_falsify.api.loading import BoundProblem
from ranum_falsify.api.plain_torch import PlainTorch
from ranum_falsify.config import ProveConfig, Runtime, SearchConfig
from ranum_falsify.errors import UsageError, is_out_of_memory
from ranum_falsify.escaping import escape
from ranum_falsify.lazy import cached_property
from ranum_falsify.network.source import Source
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.results import text
from ranum_falsify.results.counterexample import Saved, save
from ranum_falsify.results.explanation import explanation
from ranum_falsify.results.forms import RUN_MAKERS, record_of
from ranum_falsify.results.illustration import draw
from ranum_falsify.results.notebook import as_html, draw_layers
from ranum_falsify.results.places import base_of
from ranum_falsify.results.plain import as_json, versions
from ranum_falsify.results.run_report import grounds_of, make_report
from ranum_falsify.suite.record import Instance, InstanceRecord
from ranum_falsify.verify.prove.assumptions import Assumptions
from ranum_falsify.verify.prove.explaining import (
    NodeSurroundings,
    OperandBounds,
    OperandRanges,
    histories,
    list_layers,
    list_varying,
    operand_bounds,
    surroundings,
)
from ranum_falsify.verify.prove.proof_file import make_proof
from ranum_falsify.verify.search.result import Answer, Counterexample, OperatorRecord, OperatorResult, Verdict

if TYPE_CHECKING:
    from ranum_falsify.verify.prove.precision import KeepList

_MOST_OPERATORS = 12
ILLUSTRATION_SECONDS = 4.0
"""How long the analysis for a page may take."""


def illustrate(
    answer: Answer, loaded: BoundProblem, config: SearchConfig, patience: float = ILLUSTRATION_SECONDS
) -> dict[str, Any]:
    """Return what a page draws of an answer, as `illustration` of its JSON report.

    That is about the operators that are violated, and then about those that are open, as far as they are few; it takes
    one interval analysis of their networks. Where there is not the time or the memory for it, only counterexamples are
    drawn.

    Args:
        answer: The answer.
        loaded: What was asked.
        config: How it was answered.
        patience: Seconds for the analysis.
    """
    left = [operator for operator in answer.operators if operator.verdict != "proved"]
    ranked = sorted(left, key=lambda operator: (operator.verdict != "violated", bool(operator.after)))
    nodes = [(operator.network, operator.node) for operator in ranked[:_MOST_OPERATORS]]
    return draw(answer, _look_around(nodes, loaded, config, patience) if nodes else ())


def _look_around(
    nodes: Sequence[tuple[str, str]], loaded: BoundProblem, config: ProveConfig, patience: float
) -> Sequence[NodeSurroundings]:
    try:
        return surroundings(loaded.problem, nodes, config, deadline=Deadline.after(patience))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return ()


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


@dataclass(frozen=True, kw_only=True)
class OperatorReport(OperatorRecord[Counterexample]):
    """What is known of one operator: the fields of `OperatorRecord`, and bounds of its operands."""

    _bounds: Callable[[], OperandBounds] = field(default=dict, repr=False, compare=False)

    @property
    def condition(self) -> str:
        """Where its operands are valid: `constraint`."""
        return self.constraint

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """Bounds of each operand over the whole box, as the interval analysis knows them; made when first asked."""
        return self._ranges.bounds

    @property
    def margin(self) -> float | None:
        """How far these bounds are from where `condition` fails; negative where they reach beyond, None if not known.

        Finer bounds may prove an operator whose margin is negative.
        """
        return self._ranges.margins.get(self.condition)

    @property
    def _ranges(self) -> OperandRanges:
        return self._bounds().get((self.network, self.node), OperandRanges())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """The answer to a question about models.

    Attributes:
        answer: What proof and search found.
        read: What was asked; None where there was no time to read it.
        config: How it was answered.
        kept: What must stay in float32, where networks were converted to half precision.
        statement: What `check` asked; None where a property was given.
        mended: Of a module that fails: what to write in place of its lines; None where that was not looked for.
    """

    answer: Answer
    read: BoundProblem | None
    config: SearchConfig
    kept: KeepList | None = None
    statement: Statement | None = None
    mended: Mended | None = None

    @property
    def loaded(self) -> BoundProblem:
        """What was asked.

        Raises:
            UsageError: There was no time to read it.
        """
        if self.read is None:
            raise UsageError(f"timeout={self.config.timeout:g}: was up before all was read; give more time")
        return self.read

    @property
    def verdict(self) -> Verdict:
        """`violated` only with a counterexample that replays, `holds` only with a proof."""
        return self.answer.verdict

    @property
    def notices(self) -> tuple[str, ...]:
        """What a user should know, one sentence each."""
        return self.answer.notices

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        """Runtimes that proofs cover; none where no proof was tried."""
        return self.answer.runtimes

    @property
    def assumptions(self) -> Assumptions:
        """What the verdict rests on: box, files, sizes, element types, kernels."""
        assert self.answer.assumptions is not None
        return self.answer.assumptions

    @property
    def property_text(self) -> str | None:
        """The DNNP property that `check` stands for; None where a property was given.

        Raises:
            UsageError: It holds arrays that are too large to write down.
        """
        return None if self.statement is None else self.statement.text()

    @property
    def counterexample(self) -> Mapping[str, np.ndarray] | None:
        """One array per input, by ONNX name, of the first violation; by variable for a property over outputs."""
        return self.answer.counterexample

    @cached_property
    def operators(self) -> tuple[OperatorReport, ...]:
        """Every operator in question, in topological order; empty for a property over outputs."""
        return tuple(map(self._operator, self.answer.operators))

    def _operator(self, found: OperatorResult) -> OperatorReport:
        return OperatorReport(**vars(found), _bounds=lambda: self._operand_bounds)

    @cached_property
    @PlainTorch()
    def _operand_bounds(self) -> OperandBounds:
        return operand_bounds(self.loaded.problem, self.config)

    def to_json(self) -> dict[str, Any]:
        """Return the report as `--json` writes it; docs/json.md explains it. `save` first writes the files."""
        report: dict[str, Any] = as_json(make_report(self.answer, Saved(), Path.cwd(), kept=self.kept))
        return report

    def to_html(self) -> str:
        """Return the page that `--report` writes."""
        return self._make("report").decode()

    def to_junit(self) -> str:
        """Return the JUnit XML that `--junit` writes."""
        return self._make("junit").decode()

    def to_sarif(self) -> str:
        """Return the SARIF log that `--sarif` writes."""
        return self._make("sarif").decode()

    def _make(self, form: str) -> bytes:
        """Return a report of this run as other programs read it; counterexamples are in no file."""
        return RUN_MAKERS[form]([self.record(illustrated=form == "report")])

    def record(self, name: str | None = None, *, illustrated: bool = False) -> InstanceRecord:
        """Return what a suite would write of this run, from which all reports are made.

        Args:
            name: Names the run; its models by default.
            illustrated: Whether the page of it has graphs and arrays, which takes an analysis.
        """
        networks: dict[str, str] = {}
        if self.read is not None:
            sources = self.read.sources
            networks = {name: one.path for name, one in sources.networks.items()}
            networks |= {name: how.before.path for name, how in sources.rewritten.items()}
        path = None if self.read is None else self.read.origin.property_path
        asked = Instance(
            id=name or " ".join(networks.values()),
            category="",
            model=" ".join(networks.values()),
            property="" if path is None else str(path),
            networks=networks,
            property_path=None if path is None else str(path),
        )
        drawn = self._illustration if illustrated else None
        report = as_json(make_report(self.answer, Saved(), Path.cwd(), kept=self.kept, illustration=drawn))
        return record_of(asked, report, Saved(), sum(self.answer.seconds.values()))

    @cached_property
    @PlainTorch()
    def _illustration(self) -> Mapping[str, Any] | None:
        return None if self.read is None else illustrate(self.answer, self.read, self.config)

    @PlainTorch()
    def explain(self, node: str) -> str:
        """Return how the operands of a node came to their bounds, as `--explain` shows it.

        Raises:
            PropertyError: There is no such node.
            UsageError: There was no time to read the model.
        """
        asked = self.loaded.problem, node, self.config
        return _join_lines(explanation(histories(*asked), list_varying(*asked)))

    def save(self, path: str | Path) -> Saved:
        """Write the counterexamples: `<path>.npy`, or one file per input, and `<path>.json`, which replay.

        A model that is in no file goes beside them, as `<path>.onnx`.

        Returns:
            The files; none where there is no counterexample.

        Raises:
            SaveError: They cannot be written.
        """
        if self.read is None:
            return Saved()
        return save(self.answer, self.loaded.origin, base_of(Path(path)), self.loaded.in_memory)

    def report(self, *, verbosity: int = 0, saved: Saved | None = None) -> str:
        """Return the report as the command shows it.

        Args:
            verbosity: -1 the verdict, what violates and what all of it rests on; 1 every operator.
            saved: What `save` returned, so that the report names the files.
        """
        count = 0 if self.read is None else len({call.network for call in self.read.problem.calls})
        return _join_lines(
            text.report(self.answer, saved or Saved(), verbosity=verbosity, network_count=count, kept=self.kept)
        )

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return self.report(verbosity=-1)

    def _repr_html_(self) -> str:
        """Return the report as notebooks show it."""
        patience = Deadline.after(ILLUSTRATION_SECONDS)
        known = {} if self.read is None else operand_bounds(self.read.problem, self.config, deadline=patience)
        left = any(operator.verdict != "proved" for operator in self.answer.operators)
        return as_html(self.answer, self.report().splitlines(), known, self.to_html() if left else "")

    def plot(self, axes: Any = None) -> Any:
        """Draw the bounds of what every operator makes, in the order of the model, on a logarithmic scale.

        Lines show where float16 ends, and where its numbers lose digits.

        Args:
            axes: Axes of matplotlib to draw on; new ones by default.

        Returns:
            The axes.

        Raises:
            UsageError: matplotlib is not installed, or there was no time to read the model.
        """
        verdicts = {(one.network, one.node): one.verdict for one in self.answer.operators}
        return draw_layers(list_layers(self.loaded.problem, self.config), verdicts, axes)


@dataclass(frozen=True, kw_only=True)
class LineChange:
    """A line that was changed.

    Attributes:
        source: The line.
        mended: What to write in its place.
        cause: Why it fails.
        failing: The operators that fail because of it, by their ONNX names: its own first, then those that get what it
            makes.
        changed: The share of the numbers that were finite before, on random inputs, and are now further from what they
            were than by one in a thousand.
    """

    source: Source
    mended: str
    cause: str
    failing: tuple[str, ...]
    changed: float = 0.0

    def __str__(self) -> str:
        more = f"; {len(self.failing) - 1} more fail because of it" if len(self.failing) > 1 else ""
        place = replace(self.source, code="")
        return f"{place}: {self.cause}{more}\n  - {self.source.code}\n  + {self.mended}{self.loss}"

    @property
    def loss(self) -> str:
        """What it costs, as the end of a line."""
        percent = f"{100 * self.changed:.0f} %" if self.changed >= 0.01 else "less than 1 %"
        return f"  # changes {percent} of valid results" if self.changed else ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mended:
    """What became of a module.

    Attributes:
        changes: The lines that were changed, in the order in which they fail.
        result: What `check` says of the module with these lines.
        diff: The changes as a unified diff.
        unmended: Lines for which nothing better was found, with why.
    """

    changes: tuple[LineChange, ...]
    result: Result
    diff: str
    unmended: tuple[str, ...] = ()

    @property
    def is_proved(self) -> bool:
        """Whether no operator of the module with these lines fails."""
        return self.result.verdict == "holds"

    def __str__(self) -> str:
        verdict = "proved with these lines" if self.is_proved else f"{self.result.verdict} with these lines"
        return "\n".join([verdict, *map(str, self.changes), *self.unmended])


def _join_lines(lines: tuple[str, ...] | Iterator[str]) -> str:
    return "\n".join(map(escape, lines))
