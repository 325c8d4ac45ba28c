"""Detection: what one interval analysis flags in the models of the zoo, and proves about their repaired twins."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.config import RUNTIMES, ProveConfig, Runtime
from ranum_falsify.model_builder import BoxedVariable
from ranum_falsify.network import read
from ranum_falsify.network.tensors import torch_threads
from ranum_falsify.properties.language.parse import parse_dnnp
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.properties.problem.reduce import reduce
from ranum_falsify.verify.prove.proof import Proof
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.model import Defect, ZooModel

_SLOW = 1.0
"""A run that takes this many seconds is not repeated."""

_PART = 0.125
"""Share of a range, around its middle, that plausible inputs fill."""


def draw_plausible_inputs(architecture: Architecture, seed: int = 0) -> dict[str, np.ndarray]:
    """Return inputs on which no program should fail: floats drawn near the middle of their range, integers anywhere.

    Returns:
        An array of its shape and dtype for each input.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    return {v.name: _draw(rng, v) for v in architecture.inputs}


def _draw(rng: np.random.Generator, variable: BoxedVariable) -> np.ndarray:
    dtype = np.dtype(variable.dtype)
    if dtype.kind != "f":
        return rng.integers(int(variable.low), int(variable.high), variable.shape, endpoint=True).astype(dtype)
    middle, reach = (variable.low + variable.high) / 2, _PART * (variable.high - variable.low)
    return np.asarray(rng.uniform(middle - reach, middle + reach, variable.shape), dtype=dtype)


def inference_seconds(architecture: Architecture, *, threads: int = 1, rounds: int = 3) -> float:
    """Return how long ONNX Runtime takes for one inference on the CPU, with its default optimisations.

    Args:
        architecture: The model, weights as initialised.
        threads: Threads of one operator.
        rounds: Number of runs, after one to warm up, whose median counts; a run of seconds is not repeated.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        architecture.model.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"]
    )
    inputs = draw_plausible_inputs(architecture)

    def run() -> float:
        began = time.perf_counter()
        session.run(None, inputs)
        return time.perf_counter() - began

    first = run()
    return first if first > _SLOW else statistics.median(run() for _ in range(rounds))


Verdict = Literal["detected", "after", "missed"]
"""Whether the documented operator has a condition of its own that is not proved, is only unproved because another
operator before it is, or is proved or absent."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """An operator that is not proved valid.

    Attributes:
        node: Its name.
        op_type: ONNX operator.
        conditions: Those of its conditions that the bounds do not prove; none if it is flagged only because of others.
        after: The first open operators before it.
    """

    node: str
    op_type: str
    conditions: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """How long one model took; 0 for steps that were done before.

    Attributes:
        analyses: Each of several equal analyses; the first one also fills the caches of the graph.
        build: Building it, initial weights included.
        read: Reading the ONNX model as a graph.
        reduce: Turning its property into a problem, which reads the graph again with its weights as inputs.
        inference: One inference on ONNX Runtime, None if it was not asked for.
        one_shot: The first analysis and the steps before it, in seconds of this process's processor time.
    """

    analyses: tuple[float, ...]
    one_shot: float
    build: float = 0.0
    read: float = 0.0
    reduce: float = 0.0
    inference: float | None = None

    @property
    def analysis(self) -> float:
        """The median of the analyses."""
        return statistics.median(self.analyses)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What one interval analysis says about one model.

    Attributes:
        model: The model.
        safe: Whether its repaired twin was analysed.
        operators: How many operators are in question.
        flags: Those that are not proved, in topological order.
        seconds: How long it took.
    """

    model: ZooModel
    safe: bool
    operators: int
    flags: tuple[Flag, ...]
    seconds: Seconds

    @property
    def open(self) -> tuple[Flag, ...]:
        """The operators with conditions of their own that are not proved."""
        return tuple(flag for flag in self.flags if flag.conditions)

    @property
    def dependent(self) -> tuple[Flag, ...]:
        """The operators that are unproved only because of others."""
        return tuple(flag for flag in self.flags if not flag.conditions)

    def verdict(self, defect: Defect) -> Verdict:
        """Tell whether a documented operator is flagged."""
        for flag in self.flags:
            if (flag.node, flag.op_type) == (defect.node, defect.operator):
                return "detected" if flag.conditions else "after"
        return "missed"


@dataclass(frozen=True, kw_only=True)
class Detection:
    """A model and its repaired twin, both analysed."""

    faulty: Analysis
    repaired: Analysis

    @property
    def model(self) -> ZooModel:
        """The model."""
        return self.faulty.model


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Results over several models.

    Attributes:
        verdicts: Number of defects by verdict.
        models: Number of models, and so of twins.
        models_proved: Number of twins with every operator proved.
        programs: Number of programs.
        programs_proved: Number of programs with every twin proved.
        operators: Number of operators of all twins.
        operators_open: Number of those with conditions of their own that are not proved.
        operators_flagged: Number of those that are not proved, for whatever reason.
    """

    verdicts: dict[Verdict, int]
    models: int
    models_proved: int
    programs: int
    programs_proved: int
    operators: int
    operators_open: int
    operators_flagged: int


def problem_of(model: ZooModel, architecture: Architecture, *, safe: bool = False) -> Problem:
    """Return the problem that the model's own property states."""
    return _problem(model, architecture, safe)[0]


def analyse(
    model: ZooModel,
    *,
    safe: bool = False,
    batch: int = 1,
    documented: bool = False,
    rounds: int = 1,
    threads: int = 1,
    inference: bool = False,
) -> Analysis:
    """Build a model and analyse it over the ranges of its inputs and weights.

    Args:
        model: The model.
        safe: Whether to analyse its repaired twin.
        batch: Samples of a batch.
        documented: Whether inputs range over the program's data alone.
        rounds: Number of equal analyses, to time one.
        threads: Threads of torch, and of ONNX Runtime.
        inference: Whether to time an inference on ONNX Runtime too.
    """
    with torch_threads(threads):
        clock, began = time.process_time(), time.perf_counter()
        architecture = model.architecture(safe=safe, batch=batch, documented=documented, drawn=inference)
        built = time.perf_counter()
        problem, reading = _problem(model, architecture, safe)
        prepared, reduced = time.process_time() - clock, time.perf_counter()
        analysis = analysis_of(model, problem, safe=safe, rounds=rounds)
        seconds = replace(
            analysis.seconds,
            build=built - began,
            read=reading,
            reduce=reduced - built - reading,
            inference=inference_seconds(architecture, threads=threads) if inference else None,
            one_shot=prepared + analysis.seconds.one_shot,
        )
    return replace(analysis, seconds=seconds)


def analysis_of(
    model: ZooModel,
    problem: Problem,
    *,
    safe: bool = False,
    rounds: int = 1,
    runtimes: tuple[Runtime, ...] = RUNTIMES,
) -> Analysis:
    """Analyse a problem of :func:`problem_of` for some runtimes, and time nothing else."""
    analyses, used = list[float](), list[float]()
    for _ in range(rounds):
        clock, began = time.process_time(), time.perf_counter()
        proof = Prover(problem, ProveConfig(prove_timeout=0.0, runtime=runtimes)).analyse()
        analyses.append(time.perf_counter() - began)
        used.append(time.process_time() - clock)
    return Analysis(
        model=model,
        safe=safe,
        operators=len(proof.operators),
        flags=tuple(_flags(proof)),
        seconds=Seconds(analyses=tuple(analyses), one_shot=used[0]),
    )


def detect(model: ZooModel, **options: Any) -> Detection:
    """Analyse a model and its twin; options are those of :func:`analyse`."""
    faulty, repaired = (analyse(model, safe=safe, **options) for safe in (False, True))
    return Detection(faulty=faulty, repaired=repaired)


def totals(detections: Sequence[Detection], defects: Sequence[Defect] | None = None) -> Totals:
    """Count defects, models, programs and operators.

    Args:
        detections: Detections of different models.
        defects: Those of the models' defects that count; all if not given.
    """
    verdicts: dict[Verdict, int] = {"detected": 0, "after": 0, "missed": 0}
    for detection in detections:
        for defect in detection.model.defects:
            if defects is None or defect in defects:
                verdicts[detection.faulty.verdict(defect)] += 1
    unproved = [d.model for d in detections if d.repaired.flags]
    programs = {d.model.program for d in detections}
    return Totals(
        verdicts=verdicts,
        models=len(detections),
        models_proved=len(detections) - len(unproved),
        programs=len(programs),
        programs_proved=len(programs - {model.program for model in unproved}),
        operators=sum(d.repaired.operators for d in detections),
        operators_open=sum(len(d.repaired.open) for d in detections),
        operators_flagged=sum(len(d.repaired.flags) for d in detections),
    )


def _problem(model: ZooModel, architecture: Architecture, safe: bool) -> tuple[Problem, float]:
    """Return the problem, and how many seconds of making it went into reading the model."""
    began = time.perf_counter()
    graph = read(architecture.model, known=architecture.details)
    seconds = time.perf_counter() - began
    text = model.property_text(architecture, safe=safe)
    phi = parse_dnnp(text, Path(f"{model.file_name(safe=safe)}.py"))
    return reduce(phi, {"N": graph}), seconds


def _flags(proof: Proof) -> Iterator[Flag]:
    for operator in proof.operators.values():
        if not operator.proved:
            yield Flag(
                node=operator.node,
                op_type=operator.op_type,
                conditions=tuple(condition.describe() for condition in operator.open),
                after=operator.after,
            )
