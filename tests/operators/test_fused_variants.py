"""What ONNX Runtime makes of small models by each of its fusions is enclosed, at points and over boxes."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest

from ranum_falsify.network import read, spec_of
from ranum_falsify.network.optimised import optimise
from tests.domain.attack.fusions import types_as_run
from tests.domain.attack.models import random_target
from tests.domain.attack.sweep import rng_of
from tests.domain.boxes import Array, Recipe, box
from tests.domain.search import Tally, faults_in
from tests.domain.subjects import Setting, Subject
from tests.operators.fused_variants import VARIANTS, variant

_BLOCKED = "com.microsoft.nchwc."
"""Operators on blocks of channels, which run on some processors only."""
_LOOKED_AT = 300
"""Random models of which the types of operators are taken."""

_RECIPES = {
    "points": Recipe(width="none"),
    "points far from 1": Recipe(centre="scaled", width="none"),
    "denormal points": Recipe(centre="denormal", width="none"),
    "narrow": Recipe(width="tiny"),
    "wide": Recipe(width="wide"),
}


@cache
def _types(name: str) -> frozenset[str]:
    """Return the types of operators that run in place of a variant, whatever the processor."""
    model = variant(name)[1]
    graph = optimise(read(model)).graph
    specs = [] if graph is None else [spec_of(op) for op in graph.nodes]
    return frozenset(f"{spec.domain}.{spec.op_type}".removeprefix(".") for spec in specs).union(types_as_run(model))


def _feeds(model: onnx.ModelProto) -> dict[str, Array]:
    rng, feeds = np.random.default_rng(len(model.graph.node)), {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[info.name] = rng.normal(size=[dim.dim_value for dim in tensor.shape.dim]).astype(dtype)
    return feeds


@pytest.mark.few(50)
@pytest.mark.parametrize("name", VARIANTS)
def test_what_runs_is_enclosed(name: str) -> None:
    types, model = variant(name)
    missing = types - _types(name)
    assert all(one.startswith(_BLOCKED) for one in missing), missing
    subject, tally = Subject(model), Tally()
    feeds, rng = _feeds(model), np.random.default_rng(1)
    for kind, recipe in _RECIPES.items():
        bounds = box(feeds, dict.fromkeys(feeds, recipe), rng)
        samples = 1 if "points" in kind else 5
        setting = Setting(keep=False, runtimes=("onnxruntime",))
        found = faults_in(subject, bounds, samples=samples, rounds=0, rng=rng, setting=setting)
        found.faults = [f"{kind}: {fault}" for fault in found.faults]
        tally.add(found)
    assert not tally.faults, "\n".join(tally.faults)
    assert tally.proved and tally.runs["onnxruntime-optimised"]


@pytest.mark.slow
def test_every_operator_that_random_models_get_is_in_a_variant() -> None:
    seen = {name for seed in range(_LOOKED_AT) for name in types_as_run(random_target(rng_of(seed)).model)}
    covered = {name for one in VARIANTS for name in _types(one)}
    own = {name for name in seen if "." in name}
    assert len(own) > 12
    assert own <= covered, own - covered
