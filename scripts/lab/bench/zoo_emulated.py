"""The zoo on processors that QEMU emulates: counterexamples that were found here, and repaired twins."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from lab.kernels.emulator import MACHINES, Emulator
from ranum_falsify.config import ConfirmConfig
from ranum_falsify.network.optimised import model_with_all_inputs
from ranum_falsify.properties.formula.terms import Variable
from ranum_falsify.witness.exposed import Watched, expose_operators, make_repeatable, watch_operator
from ranum_falsify.witness.maker import TestMaker
from ranum_falsify.witness.unit_test import Trigger
from ranum_falsify.zoo.detect import problem_of
from ranum_falsify.zoo.model import ZooModel
from tests.domain.boxes import Box, points
from tests.domain.search import Search, Tally
from tests.domain.subjects import Setting, Subject

__all__ = ["emulated"]

_NEAR = (2.0**-20, 2.0**-14, 2.0**-8)
"""How far beside an input, as a share of it, another one is tried where the first leaves the operator valid."""

_SECONDS = 10.0
"""After how long a twin runs on no further input of a family; emulated, the largest take seconds for each."""

_Run = Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]


def emulated(model: ZooModel, families: Sequence[str], *, config: ConfirmConfig, inputs: int) -> dict[str, Any]:
    """Return, for each family of processors, what happens there to the defects of a model and to its twin.

    Args:
        model: The model.
        families: The families.
        config: How to look for inputs and weights at which operators fail here.
        inputs: On how many inputs and weights the twin runs at most.
    """
    measured: dict[str, Any] = {}
    with TestMaker(problem_of(model, model.architecture()), config) as maker:
        found = [(question, maker.tests_of(question).tests) for question in maker.questions()]
    for family in families:
        emulator = Emulator(MACHINES[family])
        try:
            known = measured[family] = {"defects": {}, "twin": _run_twin(model, family, emulator, inputs)}
            for question, tests in found:
                watched = watch_operator(question.call.graph, question.op, question.targets)
                run = emulator.load(b"".join(expose_operators(question.call.graph, [watched])), False)
                (defect,) = (of.id for of in model.defects if of.node == question.op.name)
                known["defects"][defect] = _replay(run, watched, tests)
        finally:
            emulator.close()
    return measured


# counterexamples ------------------------------------------------------------------------------------------------------


def _replay(run: _Run, watched: Watched, tests: Sequence[Trigger]) -> dict[str, int]:
    """Return how many counterexamples fail there, too, and how many of the others do so beside."""
    there = [_fails(run, watched, test, test.feeds) for test in tests]
    others = [test for test, fails in zip(tests, there, strict=True) if not fails]
    beside = sum(any(_fails(run, watched, test, feeds) for feeds in _beside(test.feeds)) for test in others)
    return {"tests": len(tests), "fail": sum(there), "beside": beside}


def _fails(run: _Run, watched: Watched, test: Trigger, feeds: Mapping[str, np.ndarray]) -> bool:
    """Tell whether an operator reads good operands, and its output or its derivative is not finite."""
    try:
        tensors = {**feeds, **run(dict(feeds))}
    except RuntimeError as error:
        return watched.is_integer and "zero" in str(error).lower()
    if test.flushed:
        tensors = {name: _flush(x) for name, x in tensors.items()}
    reads = [tensors[name] for name in watched.reads]
    if not watched.is_elementwise:
        reads = [np.abs(x).max() for x in reads if x.size]
    if test.kind == "gradient":
        is_finite = all(np.isfinite(x).all() for x in reads)
        return is_finite and any(_is_steep(tensors[name], side, bound) for name, side, bound in watched.limits)
    return any(_is_invalid(tensors[name], reads) for name in watched.writes)


def _flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, 0, x) if x.dtype.kind == "f" else x


def _is_steep(tensor: np.ndarray, side: str, bound: float) -> bool:
    return bool((tensor <= bound if side == "at most" else tensor >= bound).any())


def _is_invalid(output: np.ndarray, reads: Sequence[np.ndarray]) -> bool:
    clean = np.all(np.broadcast_arrays(True, *(~np.isnan(x) for x in reads)), axis=0)
    finite = np.all(np.broadcast_arrays(True, *(np.isfinite(x) for x in reads)), axis=0)
    return bool(((np.isnan(output) & clean) | (np.isinf(output) & finite)).any())


def _beside(feeds: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    for seed, share in enumerate(_NEAR):
        rng = np.random.default_rng(seed)
        yield {
            name: np.asarray(x * (1 + share * rng.uniform(-1, 1, x.shape)), x.dtype) if x.dtype.kind == "f" else x
            for name, x in feeds.items()
        }


# twins ----------------------------------------------------------------------------------------------------------------


def _run_twin(model: ZooModel, family: str, emulator: Emulator, inputs: int) -> dict[str, Any]:
    """Return on how many inputs a twin ran there, and where it left what is proved of it."""
    machine, library = MACHINES[family], "onnxruntime"
    problem = make_repeatable(problem_of(model, model.architecture(safe=True), safe=True))
    (call,) = problem.calls
    subject = Subject(model_with_all_inputs(call.graph), {library: emulator.load})
    boxes = {variable.name: variable for variable in problem.regions[0]}
    bounds: Box = ({}, {})
    for name, argument in zip(call.graph.input_names, call.arguments, strict=True):
        assert isinstance(argument, Variable)
        bounds[0][name], bounds[1][name] = boxes[argument.name].lower, boxes[argument.name].upper
    setting = Setting(runtimes=(library, machine.runtime_of(library)))
    rng = np.random.default_rng(0)
    verdict = subject.analyse(*bounds, setting)
    search = Search(subject, verdict, *bounds, rng, setting, Tally())
    end = time.monotonic() + _SECONDS
    for feeds in takewhile(lambda _: time.monotonic() < end, points(*bounds, inputs, rng)):
        search.run(feeds)
        search.tried.clear()  # nothing looks at it, and the tensors of all inputs are large
    proved = len(subject.proved(verdict)) == len(subject.graph.output_names)
    ran = min(search.tally.runs.values(), default=0)
    return {"proved": proved, "inputs": ran, "faults": search.tally.faults}
