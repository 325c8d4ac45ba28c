"""Grounds of a verdict in JSON reports; docs/json.md explains them."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
import numpy as np

from ranum_falsify.config import HalfPrecision
from ranum_falsify.errors import UsageError
from ranum_falsify.network.fingerprint import Fingerprint
from ranum_falsify.network.tensors import has_one_value
from ranum_falsify.properties.problem.problem import InputVariable
from ranum_falsify.results.counterexample import Saved
from ranum_falsify.results.plain import versions
from ranum_falsify.suite.record import InstanceRecord
from ranum_falsify.verify.prove.assumptions import Assumptions, Rewriting, Sources
from ranum_falsify.verify.search.result import Answer, Number, OperatorRecord, OperatorResult, SizeOutcome, Verdict

if TYPE_CHECKING:
    from ranum_falsify.verify.prove.precision import KeepList

_MOST_ELEMENTS = 100
"""Elements of a bound that are held one by one."""


@dataclass(frozen=True)
class Extremes:
    """What stands for a bound of many elements: the extremes, and the hash of the array."""

    least: Number
    greatest: Number
    sha256: str


Bound: TypeAlias = bool | int | Number | list[Any] | Extremes
"""One number where all elements have it, a nested list of few elements, or what stands for many."""


@dataclass(frozen=True, kw_only=True)
class ReportedInput:
    """An input, and the box that it ranges over."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    lower: Bound
    upper: Bound


@dataclass(frozen=True)
class CoveredFamily:
    """A family of kernels that proofs cover, and the version of the library that was measured."""

    family: str
    version: str


@dataclass(frozen=True, kw_only=True)
class ReportedLibrary:
    """A library: the installed version, the family of kernels on this processor, and the families covered.

    Attributes:
        version: The version.
        family: The family on this processor.
        covered: The families of x86-64 that proofs cover.
        arm64: Those of ARM64.
        obstacle: Why a proof that covers the former does not cover the latter.
        cuda: How kernels for NVIDIA's graphics processors are known that proofs cover; "" if they cover none.
    """

    version: str
    family: str
    covered: tuple[CoveredFamily, ...]
    # Keys that came later: reports without them can be read.
    arm64: tuple[CoveredFamily, ...] = ()
    obstacle: str = ""
    cuda: str = ""


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """What a verdict rests on.

    Attributes:
        property: The property file.
        parameters: Values of its parameters.
        networks: The models, by the names of the networks.
        dtype: The half precision that they were converted to.
        default_inputs: Inputs whose range users did not give.
        inputs: The inputs.
        empty: Whether no input satisfies the conditions on the inputs.
        regions: The boxes of a disjunction; else none.
        side_conditions: What else inputs must satisfy.
        dims: Sizes of symbolic dimensions, by network.
        assumed_dims: Those of them for which no size was given.
        element_types: Floating types that the networks compute in.
        libraries: The libraries, by runtime.
        rewritten: How those networks were made that passes made of the models that users gave.
    """

    property: Fingerprint | None
    parameters: Mapping[str, Any]
    networks: Mapping[str, Fingerprint]
    dtype: HalfPrecision | None
    default_inputs: tuple[str, ...]
    inputs: tuple[ReportedInput, ...]
    empty: bool
    regions: tuple[tuple[ReportedInput, ...], ...]
    side_conditions: tuple[str, ...]
    dims: Mapping[str, Mapping[str, int]]
    assumed_dims: Mapping[str, int]
    element_types: tuple[str, ...]
    libraries: Mapping[str, ReportedLibrary]
    # A key that came later: reports without it can be read.
    rewritten: Mapping[str, Rewriting] = field(default_factory=dict)


def grounds_of(assumptions: Assumptions | None) -> Grounds | None:
    """Return what reports hold of the assumptions of a verdict."""
    if assumptions is None:
        return None
    sources = assumptions.sources or Sources(property=None, parameters={}, networks={})
    regions = assumptions.regions if len(assumptions.regions) > 1 else ()
    return Grounds(
        property=sources.property,
        parameters={name: _make_plain(value) for name, value in sources.parameters.items()},
        networks=sources.networks,
        dtype=sources.dtype,
        default_inputs=assumptions.default_inputs,
        inputs=tuple(map(_input, assumptions.inputs)),
        empty=assumptions.is_empty,
        regions=tuple(tuple(map(_input, region)) for region in regions),
        side_conditions=assumptions.side_conditions,
        dims=assumptions.dims,
        assumed_dims=assumptions.assumed_dims,
        element_types=assumptions.element_types,
        libraries={
            of.runtime: ReportedLibrary(
                version=of.version,
                family=of.family,
                covered=tuple(CoveredFamily(*pair) for pair in of.covered),
                arm64=tuple(CoveredFamily(*pair) for pair in of.arm64),
                obstacle=of.obstacle,
                cuda=of.cuda,
            )
            for of in assumptions.libraries
        },
        rewritten=sources.rewritten,
    )


def _make_plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _input(variable: InputVariable) -> ReportedInput:
    return ReportedInput(
        name=variable.name,
        shape=variable.shape,
        dtype=variable.dtype.name,
        lower=_bound(variable.lower),
        upper=_bound(variable.upper),
    )


def _bound(bound: np.ndarray) -> Bound:
    if bound.size and has_one_value(bound):
        number: bool | int | float = bound.flat[0].item()
        return number
    if bound.size <= _MOST_ELEMENTS:
        elements: list[Any] = bound.tolist()
        return elements
    digest = hashlib.sha256(np.ascontiguousarray(bound).tobytes()).hexdigest()
    return Extremes(bound.min().item(), bound.max().item(), digest)


@dataclass(frozen=True)
class NodeName:
    """A node of a network."""

    network: str
    node: str


@dataclass(frozen=True, kw_only=True)
class Float32:
    """What must stay in float32, as JSON reports hold it; see `KeepList`."""

    node_block_list: tuple[NodeName, ...]
    minimal: bool
    open_regardless: tuple[NodeName, ...]


def _float32_of(found: KeepList | None) -> Float32 | None:
    """Return what reports hold of a list."""
    if found is None:
        return None
    keep, left = (tuple(NodeName(*name) for name in names) for names in (found.nodes, found.left))
    return Float32(node_block_list=keep, minimal=found.minimal, open_regardless=left)


FORMAT: Literal[1] = 1
"""Number of the form of JSON reports, which grows when a key changes its meaning or goes; see docs/json.md."""

STAGES = ("read", "reduce", "prove", "search", "replay")

Files: TypeAlias = Mapping[str, str]
"""The file of each input, relative to the report."""


@dataclass(frozen=True, kw_only=True)
class ReportedOperator(OperatorRecord[Files]):
    """What is known of one operator, with the files of the inputs that violate it."""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """What a run found, as `--json` writes it; docs/json.md explains it.

    Attributes:
        format: See `FORMAT`.
        verdict: The verdict.
        runtimes: What proofs cover; where violated, who confirmed it.
        operators: The operators in question, by names that are unique in the report.
        counterexample: Files of the first counterexample; None where none was written.
        seconds: Time by stage.
        seed: Seed of the search.
        starts: Starting points tried.
        steps: Descent steps done.
        ended_early: Why the run ended early; None where it did not.
        sizes: Where `--dim` gives ranges, the verdict of each combination.
        steep: Where the property holds and does not ask for derivatives: the operators that may have infinite ones.
        notices: What users should know.
        unconfirmed: What PyTorch saw and ONNX Runtime did not confirm.
        assumptions: What all of it rests on; None where reading took too long.
        versions: Versions of this program, Python and the packages.
        illustration: What a page draws; None where no page is asked for.
        float32: With `--dtype`, what must stay in float32.
    """

    format: Literal[1]
    verdict: Verdict
    runtimes: tuple[str, ...]
    operators: tuple[ReportedOperator, ...]
    counterexample: Files | None
    seconds: Mapping[str, float]
    seed: int
    starts: int
    steps: int
    ended_early: str | None
    steep: tuple[str, ...]
    notices: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    assumptions: Grounds | None
    versions: Mapping[str, str]
    # Keys that came later: reports without them can be read.
    sizes: tuple[SizeOutcome, ...] = ()
    illustration: Mapping[str, Any] | None = None
    float32: Float32 | None = None

    @property
    def violated(self) -> list[ReportedOperator]:
        """The operators that are violated."""
        return [operator for operator in self.operators if operator.verdict == "violated"]

    @property
    def models(self) -> Mapping[str, Fingerprint]:
        """The models, by the names of the networks."""
        return {} if self.assumptions is None else self.assumptions.networks


def make_report(
    result: Answer,
    saved: Saved,
    folder: Path,
    *,
    kept: KeepList | None = None,
    illustration: Mapping[str, Any] | None = None,
) -> RunReport:
    """Return the report of an answer."""
    several = len({operator.network for operator in result.operators}) > 1
    return RunReport(
        format=FORMAT,
        verdict=result.verdict,
        runtimes=_judges(result) if result.verdict == "violated" else result.runtimes,
        operators=tuple(_operator(operator, result, saved, folder, several) for operator in result.operators),
        counterexample=_make_relative(saved.of(result.counterexample), folder),
        seconds={stage: round(result.seconds.get(stage, 0.0), 6) for stage in STAGES},
        seed=result.seed,
        starts=result.starts,
        steps=result.steps,
        ended_early=result.interrupted or None,
        sizes=result.sizes,
        steep=result.steep,
        notices=result.notices,
        unconfirmed=result.unconfirmed,
        assumptions=grounds_of(result.assumptions),
        versions=versions(),
        illustration=illustration,
        float32=_float32_of(kept),
    )


def _judges(result: Answer) -> tuple[str, ...]:
    """Return who confirmed violations."""
    oracles = {"torch" if one.oracle == "module" else str(one.oracle) for one in result.operators if one.oracle}
    return tuple(sorted(oracles or {"onnxruntime"}))


def _operator(operator: OperatorResult, result: Answer, saved: Saved, folder: Path, several: bool) -> ReportedOperator:
    violated_on = operator.runtimes or ((operator.oracle,) if operator.oracle else ())
    changed = {
        # Names are unique within a network only.
        "node": f"{operator.network}:{operator.node}" if several else operator.node,
        "runtimes": result.runtimes if operator.verdict == "proved" else violated_on,
        "counterexample": _make_relative(saved.of(operator.counterexample), folder),
    }
    return ReportedOperator(**(vars(operator) | changed))


def _make_relative(files: Mapping[str, Path] | None, folder: Path) -> Files | None:
    if files is None:
        return None
    return {name: Path(os.path.relpath(path, folder)).as_posix() for name, path in files.items()}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of reports, which `docs/report.schema.json` holds."""
    found = msgspec.json.schema(RunReport)
    for part in found["$defs"].values():
        part["description"] = inspect.cleandoc(part["description"])
        for key in part.get("properties", {}).values():
            if key.get("default") == {}:
                del key["default"]  # some versions of msgspec do not write it
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def report_of(record: InstanceRecord) -> RunReport | None:
    """Return the report of an instance, None where it came to none.

    Raises:
        UsageError: It is no report that this version writes.
    """
    if record.report is None:
        return None
    try:
        return msgspec.convert(record.report, RunReport, strict=False)
    except ValueError as error:
        raise UsageError(
            f"the report of {record.instance.id!r} is not in format {FORMAT} ({error}); use the version that wrote it"
        ) from error
