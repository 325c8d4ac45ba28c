"""JSON reports as values: what other forms of a report are made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ranum_falsify.config import Optimisations, Reach, ViolationKind
from ranum_falsify.errors import UsageError
from ranum_falsify.network.source import Source
from ranum_falsify.report.json_report import FORMAT
from ranum_falsify.report.text import finding_lines
from ranum_falsify.search.result import Verdict
from ranum_falsify.suite.record import InstanceRecord

__all__ = ["ReportedModel", "ReportedOperator", "RunReport", "parse_report", "report_of"]


@dataclass(frozen=True, kw_only=True)
class ReportedOperator:
    """What a report says of an operator in question.

    Attributes:
        network: Name of its network.
        node: Its name, unique in the report.
        op_type: ONNX operator.
        verdict: `proved`, `violated` or `open`.
        constraint: The condition on its operands, in words.
        reason: Why a violation is invalid.
        kind: What came out on violation; None where that is not said.
        reach: Whether that shows at an output; None where that is not said.
        optimisations: Which graph optimisations of ONNX Runtime it shows with; None where that is not said.
        fused: The operator that these put in its place, if it shows with them alone.
        runtimes: Runtimes that the verdict is about.
        operands: Least and greatest value of each operand at the counterexample.
        gradients: Parameters and inputs whose gradients an exported module made non-finite.
        source: The line of Python that it comes from, in an exported module.
        files: Files of the counterexample by input.
    """

    network: str
    node: str
    op_type: str
    verdict: Literal["proved", "violated", "open"]
    constraint: str
    reason: str
    kind: ViolationKind | None
    reach: Reach | None
    optimisations: Optimisations | None
    fused: str
    runtimes: Sequence[str]
    operands: Mapping[str, tuple[float, float]]
    gradients: Sequence[str]
    source: Source | None
    files: Mapping[str, str]

    @property
    def title(self) -> str:
        """What stands for it."""
        return f"{self.node} ({self.op_type})"

    @property
    def condition(self) -> str:
        """Where its operands are valid, and what they are otherwise."""
        return f"{self.constraint} (else: {self.reason})" if self.constraint and self.reason else self.constraint

    def describe(self) -> Iterator[str]:
        """Yield what is known of it, as the text report says it."""
        yield from finding_lines(
            title=self.title,
            kind=self.kind,
            operands=self.operands,
            reach=self.reach,
            oracle=None,
            condition=self.condition,
            optimisations=self.optimisations,
            fused=self.fused,
            source=self.source,
            gradients=self.gradients,
        )
        if self.verdict == "violated" and self.runtimes:
            yield f"    on {', '.join(self.runtimes)}"


@dataclass(frozen=True)
class ReportedModel:
    """A model of a report: its file as the user named it, `<name>` where it was in memory, and its SHA-256 hash."""

    path: str
    sha256: str

    @property
    def in_file(self) -> bool:
        """Whether it was read from a file."""
        return not self.path.startswith("<")


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """What a JSON report says.

    Attributes:
        verdict: `holds`, `violated` or `unknown`.
        operators: The operators in question.
        files: Files of the first counterexample by input; empty where none was written.
        ended_early: Why the run ended early; "" where it did not.
        notices: What users should know.
        models: The models, by the names of the networks.
        property_path: The property file; "" where there is none.
        versions: Versions of this program and the packages.
        whole: The report itself.
    """

    verdict: Verdict
    operators: Sequence[ReportedOperator]
    files: Mapping[str, str]
    ended_early: str
    notices: Sequence[str]
    models: Mapping[str, ReportedModel]
    property_path: str
    versions: Mapping[str, str]
    whole: Mapping[str, Any]

    @property
    def violated(self) -> Sequence[ReportedOperator]:
        """The operators that are violated."""
        return [operator for operator in self.operators if operator.verdict == "violated"]


def report_of(record: InstanceRecord) -> RunReport | None:
    """Return the report of an instance, None where it came to none.

    Raises:
        UsageError: It is no report that this version writes.
    """
    if record.report is None:
        return None
    try:
        return parse_report(record.report)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UsageError(
            f"the report of {record.instance.id!r} is not in format {FORMAT}; use the version that wrote it"
        ) from error


def parse_report(data: Mapping[str, Any]) -> RunReport:
    """Return what a JSON report says.

    Raises:
        KeyError: A key is missing.
        TypeError: A value has another type.
        ValueError: It is of another format, or a value is none of those that there are.
    """
    if data["format"] != FORMAT:
        raise ValueError(f"is in format {data['format']}, not {FORMAT}")
    grounds = data["assumptions"] or {}
    prop = grounds.get("property")
    return RunReport(
        verdict=_one_of(data["verdict"], get_args(Verdict)),
        operators=[_operator(one) for one in data["operators"]],
        files=_texts(data["counterexample"]),
        ended_early=_text(data["ended_early"]),
        notices=[_text(notice) for notice in data["notices"]],
        models={
            name: ReportedModel(_text(model["path"]), _text(model["sha256"]))
            for name, model in dict(grounds.get("networks") or {}).items()
        },
        property_path="" if prop is None else _text(prop["path"]),
        versions=_texts(data["versions"]),
        whole=data,
    )


def _operator(data: Mapping[str, Any]) -> ReportedOperator:
    return ReportedOperator(
        network=_text(data.get("network")),
        node=_text(data["node"]),
        op_type=_text(data["op_type"]),
        verdict=_one_of(data["verdict"], ("proved", "violated", "open")),
        constraint=_text(data["constraint"]),
        reason=_text(data.get("reason")),
        kind=_one_of(data.get("kind"), (None, *get_args(ViolationKind))),
        reach=_one_of(data["reach"], (None, *get_args(Reach))),
        optimisations=_one_of(data["optimisations"], (None, *get_args(Optimisations))),
        fused=_text(data["fused"]),
        runtimes=[_text(runtime) for runtime in data["runtimes"]],
        operands={_text(name): _pair(limits) for name, limits in dict(data.get("operands") or {}).items()},
        gradients=[_text(name) for name in data["gradients"]],
        source=None if data["source"] is None else _source(data["source"]),
        files=_texts(data["counterexample"]),
    )


def _source(data: Mapping[str, Any]) -> Source:
    return Source(
        file=_text(data["file"]),
        line=int(data["line"]),
        code=_text(data["code"]),
        module_path=_text(data["module_path"]),
        backward=bool(data["backward"]),
    )


def _pair(limits: Sequence[Any]) -> tuple[float, float]:
    low, high = (limit if type(limit) is int else float(limit) for limit in limits)
    return low, high


def _one_of(value: Any, known: Sequence[Any]) -> Any:
    if value not in known:
        raise ValueError(f"{value!r} is none of {', '.join(known)}")
    return value


def _text(value: Any) -> str:
    """Return a text, "" for null."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value or ""


def _texts(value: Any) -> Mapping[str, str]:
    return {_text(name): _text(text) for name, text in dict(value or {}).items()}
