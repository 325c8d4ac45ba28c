"""The attack on bounds for ONNX Runtime at its default level and without optimisations, and for PyTorch.

A job draws a model that the optimiser rewrites, checks it over a box, and again with operators after one of its
outputs that the bounds just prove.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import onnx
import torch

from ranum_falsify.config import Runtime
from ranum_falsify.verify.prove.analyses import find_unknown_halves
from tests.domain.attack.models import random_target, recipe
from tests.domain.attack.tails import tailed
from tests.domain.boxes import Box, box
from tests.domain.search import Tally, faults_in
from tests.domain.subjects import SessionOf, Setting, Subject

__all__ = ["rng_of", "subjects_of", "sweep_attack"]

_TAILS = 3
_TAILED = (torch.float16, torch.float32, torch.float64)


def sweep_attack(
    seed: int,
    *,
    samples: int = 10,
    rounds: int = 3,
    tails: int = _TAILS,
    sessions: Mapping[Runtime, SessionOf] = MappingProxyType({}),
    further: Sequence[Runtime] = (),
) -> Tally:
    """Attack one random model.

    Args:
        seed: Seed of the model, the box and the points.
        samples: See :func:`tests.domain.search.faults_in`.
        rounds: See :func:`tests.domain.search.faults_in`.
        tails: How many models with operators after an output are checked too.
        sessions: See :class:`tests.domain.subjects.Subject`.
        further: See :meth:`tests.domain.subjects.Setting.drawn`.
    """
    rng, tally = rng_of(seed), Tally()
    for model, bounds, setting, text in subjects_of(rng, tails, further):
        subject = Subject(model, sessions)
        if further and find_unknown_halves(subject.graph, further):
            continue  # nothing is proved of it there
        found = faults_in(subject, bounds, samples=samples, rounds=rounds, rng=rng, setting=setting)
        found.faults = [f"{text}: {fault}" for fault in found.faults[:2]]
        tally.add(found)
    return tally


def rng_of(seed: int) -> np.random.Generator:
    """Return a job's random number generator."""
    return np.random.default_rng([seed, 0xA77])


def subjects_of(
    rng: np.random.Generator, tails: int = _TAILS, further: Sequence[Runtime] = ()
) -> Iterator[tuple[onnx.ModelProto, Box, Setting, str]]:
    """Yield the models of a job, each with its box, its setting and its name in messages."""
    target = random_target(rng)
    bounds = box(target.feeds, {name: recipe(x, rng) for name, x in target.feeds.items()}, rng)
    setting = replace(Setting.drawn(rng, further), keep=True)
    title = f"{target.family} ({target.text})"
    yield target.model, bounds, setting, title
    subject = Subject(target.model)
    verdict = subject.analyse(*bounds, setting)
    final = subject.final(verdict)
    known = [
        name
        for name in subject.proved(verdict)
        if (y := final[name]) is not None and y.dtype in _TAILED and y.size and not y.may_be_infinite
    ]
    for _ in range(tails if known else 0):
        output = str(rng.choice(known))
        bound = final[output]
        assert bound is not None
        for model in tailed(target.model, output, bound, rng):
            last = Subject(model)
            if model.graph.output[-1].name in last.proved(last.analyse(*bounds, setting)):
                added = " ".join(node.op_type for node in model.graph.node[len(target.model.graph.node) :])
                yield model, bounds, setting, f"{title} + {added}"
                break
