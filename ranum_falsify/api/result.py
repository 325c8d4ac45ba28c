"""What the functions of the Python API return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ranum_falsify.api.loading import Loaded
from ranum_falsify.api.statement import Statement
from ranum_falsify.config import Optimisations, Reach, Runtime, SearchConfig, ViolationKind
from ranum_falsify.escaping import escape
from ranum_falsify.lazy import cached_property
from ranum_falsify.network.source import Source
from ranum_falsify.prove.assumptions import Assumptions
from ranum_falsify.prove.explaining import histories, list_varying
from ranum_falsify.prove.operand_bounds import OperandBounds, operand_bounds
from ranum_falsify.report import json_report, precision, text
from ranum_falsify.report.counterexample import Saved, arrays_of, save
from ranum_falsify.report.explanation import explanation
from ranum_falsify.report.html import as_html
from ranum_falsify.report.places import base_of
from ranum_falsify.search.result import Answer, Counterexample, OperatorResult, Verdict

if TYPE_CHECKING:
    from ranum_falsify.prove.precision import KeepList

__all__ = ["OperatorReport", "Result"]


@dataclass(frozen=True, kw_only=True)
class OperatorReport:
    """What is known of one operator.

    Attributes:
        network: Name of its network in the property; `N` without one.
        node: Its name: the ONNX name where that is unique.
        op_type: ONNX operator.
        verdict: `open` says that no counterexample was found and no proof either; `proved`, that no input makes it
            invalid, whatever other operators do.
        condition: Where its operands are valid, in words.
        reason: What they are otherwise.
        kind: What came out on violation; `error` where ONNX Runtime refuses to go on, `crash` where its process ends,
            `gradient` for a derivative that is not finite.
        reach: Whether the violation shows at an output of the network.
        runtimes: Runtimes that it occurs on, where violated.
        optimisations: Which graph optimisations of ONNX Runtime it shows with.
        fused: Of what shows with these alone, the operator that they put in its place.
        counterexample: One array per input, by ONNX name, that violates it; None where none was found.
        operands: Least and greatest value of each operand at the counterexample.
        returned: Where only the reference evaluator shows NaN: least and greatest number that ONNX Runtime returns in
            its place.
        after: Of an open operator whose own conditions are proved: the open operators before it that may break it.
        inside: Of an open operator with branches or a body: the operators in these that are not proved.
        source: Where an exported module's Python code makes it, if that is known.
        gradients: Parameters and inputs whose gradients the exported module itself made non-finite there.
        proved_after_rewriting: With `try_rewrites`, of an operator that is not proved: passes of `transform`, equal in
            real arithmetic, that make a model in which it is.
    """

    network: str
    node: str
    op_type: str
    verdict: Literal["proved", "violated", "open"]
    condition: str
    reason: str = ""
    kind: ViolationKind | None = None
    reach: Reach | None = None
    runtimes: tuple[Runtime, ...] = ()
    optimisations: Optimisations | None = None
    fused: str = ""
    counterexample: Mapping[str, np.ndarray] | None = None
    operands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    returned: tuple[float, float] | None = None
    after: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    source: Source | None = None
    gradients: tuple[str, ...] = ()
    proved_after_rewriting: tuple[str, ...] = ()
    _bounds: Callable[[], OperandBounds] = field(default=dict, repr=False, compare=False)

    @property
    def constraint(self) -> str:
        """The condition."""
        return self.condition

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """Bounds of each operand over the whole box, as the interval analysis knows them; made when first asked."""
        return self._bounds().get((self.network, self.node), {})


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """The answer to a question about models.

    Attributes:
        answer: What proof and search found.
        loaded: What was asked.
        config: How it was answered.
        kept: What must stay in float32, where networks were converted to half precision.
        statement: What `check` asked; None where a property was given.
    """

    answer: Answer
    loaded: Loaded
    config: SearchConfig
    kept: KeepList | None = None
    statement: Statement | None = None

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
        return _arrays(self.answer.counterexample)

    @cached_property
    def operators(self) -> tuple[OperatorReport, ...]:
        """Every operator in question, in topological order; empty for a property over outputs."""
        return tuple(map(self._operator, self.answer.operators))

    def _operator(self, found: OperatorResult) -> OperatorReport:
        return OperatorReport(
            network=found.network,
            node=found.node,
            op_type=found.op_type,
            verdict=found.verdict,
            condition=found.constraint,
            reason=found.reason,
            kind=found.kind,
            reach=found.reach,
            runtimes=found.runtimes,
            optimisations=found.optimisations,
            fused=found.fused,
            counterexample=_arrays(found.counterexample),
            operands=found.operands,
            returned=found.returned,
            after=found.after,
            inside=found.inside,
            source=found.source,
            gradients=found.gradients,
            proved_after_rewriting=found.proved_after_rewriting,
            _bounds=lambda: self._operand_bounds,
        )

    @cached_property
    def _operand_bounds(self) -> OperandBounds:
        return operand_bounds(self.loaded.problem, self.config)

    def to_json(self) -> dict[str, Any]:
        """Return the report as `--json` writes it; docs/json.md explains it. `save` first writes the files."""
        found = json_report.report(self.answer, Saved(), Path.cwd())
        return found | {"float32": precision.as_json(self.kept)}

    def explain(self, node: str) -> str:
        """Return how the operands of a node came to their bounds, as `--explain` shows it.

        Raises:
            PropertyError: There is no such node.
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
        in_memory = {name: model.data() for name, model in self.loaded.models.items() if model.path is None}
        return save(self.answer, self.loaded.origin, base_of(Path(path)), in_memory)

    def report(self, *, verbosity: int = 0, saved: Saved | None = None) -> str:
        """Return the report as the command shows it.

        Args:
            verbosity: -1 the verdict, what violates and what all of it rests on; 1 every operator.
            saved: What `save` returned, so that the report names the files.
        """
        count = len({call.network for call in self.loaded.problem.calls})
        kept = () if self.kept is None else precision.as_text(self.kept)
        return _join_lines(
            (*text.report(self.answer, saved or Saved(), verbosity=verbosity, network_count=count), *kept)
        )

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return self.report(verbosity=-1)

    def _repr_html_(self) -> str:
        """Return the report as notebooks show it."""
        return as_html(self.answer, self.report().splitlines())


def _arrays(example: Counterexample | None) -> Mapping[str, np.ndarray] | None:
    return None if example is None else arrays_of(example)


def _join_lines(lines: tuple[str, ...] | Iterator[str]) -> str:
    return "\n".join(map(escape, lines))
