"""Answers to a suite's instances, each in a process of its own: a module for `ranum_falsify.suite.worker`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np
import torch

from ranum_falsify.api.assignments import assignment_of
from ranum_falsify.api.check_request import ValidityQuestion, load_statement
from ranum_falsify.api.entry_points import answer_loaded, ask_all_sizes, take, take_time
from ranum_falsify.api.loading import BoundProblem, load, load_networks, sample_box
from ranum_falsify.api.models import Model, Runnable, load_model
from ranum_falsify.api.properties import Property, load_property, network_of
from ranum_falsify.api.replayed import ReplaySettings
from ranum_falsify.api.replaying import ReplayRequest
from ranum_falsify.api.result import ILLUSTRATION_SECONDS, Result, illustrate
from ranum_falsify.config import Options, defaults_of_check
from ranum_falsify.errors import RanumFalsifyError, SaveError
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.network.optimised import optimiser
from ranum_falsify.network.resource_limits import memory_limit
from ranum_falsify.results.places import SUFFIX, base_of
from ranum_falsify.results.plain import as_json
from ranum_falsify.results.run_report import make_report
from ranum_falsify.suite.planning import plan
from ranum_falsify.suite.record import Instance, Status
from ranum_falsify.suite.worker import Answered, Task

_STATUS: Mapping[str, Status] = {"violated": "sat", "holds": "unsat", "unknown": "unknown"}
_LEAST_PATIENCE = 0.5
"""Seconds in which a page's drawing is tried where the time is up: its process has some more before it is ended."""
_PROOFS = 0.75
"""Share of the time that finer proofs may take where the search goes on until it is up."""
_WARM = """(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(assert (>= X_0 -1))
(assert (<= X_0 1))
(assert (>= X_1 -1))
(assert (<= X_1 1))
(assert (>= Y_0 {limit}))
"""
_WARM_LIMITS = (3.0, 8.5)
"""One that is exceeded, and one that bounds without relations do not exclude."""


def warm_up() -> None:
    """Do what every instance would do: import what is imported late, and check the kernels."""
    torch.set_num_threads(1)  # no pool of threads, which a forked process would lack
    m = ModelBuilder("warm")
    x = m.input("X", [1, 2])
    hidden = m.Relu(m.MatMul(x, np.array([[1.0, -1.0], [1.0, 1.0]], dtype=np.float32)))
    m.output(m.ReduceSum(m.Exp(hidden), np.array([1])), [1, 1])
    model = load_model(m.build())
    options = Options(n_starts=4, n_steps=2, prove_timeout=0.1, processors=1)
    instance = Instance(id="warm", category="", model="", property="", networks={})
    _write(
        Answered(status="unknown"),
        ValidityQuestion(box=(-1.0, 1.0)).ask(lambda: model, options),
        Task(instance=instance, stem="warm/warm"),
        _LEAST_PATIENCE,
    )
    for limit in _WARM_LIMITS:
        answer_loaded(load(load_property(_WARM.format(limit=limit)), {"N": model}), options)


def prepare(*, clean: bool) -> None:
    """Have what optimises models ready for the next instance: one process for all, as long as they leave it idle."""
    if not clean:
        optimiser.forget()
    optimiser.lend()


def answer(task: Task) -> Answered:
    """Answer an instance."""
    began = time.monotonic()
    optimiser.borrow()
    places = _Places(task.places, Path(task.folder))
    preparation = 0.0

    def ask(options: Options) -> Result:
        nonlocal preparation
        started = time.monotonic()
        loaded = _load(task, places, options)
        spent = time.monotonic() - started
        preparation += spent
        return answer_loaded(loaded, take_time(options, spent))

    try:
        options = _options_of(task)
        limit = options.timeout
        result = ask_all_sizes(options, ask)
    except RanumFalsifyError as error:
        raise type(error)(places.name(str(error))) from error
    seconds = time.monotonic() - began - preparation
    status = _STATUS[result.verdict]
    if status == "unknown" and result.answer.interrupted.startswith("timeout"):
        status = "timeout"
    patience = ILLUSTRATION_SECONDS if limit is None else max(limit - preparation - seconds, _LEAST_PATIENCE)
    return _write(Answered(status=status, preparation=preparation, seconds=seconds), result, task, patience)


@dataclass(frozen=True)
class _Places:
    """Where files are on this machine, by their path in the instance, and the folder that these are seen from."""

    places: Mapping[str, str]
    folder: Path

    def find(self, path: str) -> Path:
        return Path(self.places.get(path, path))

    def name(self, text: str) -> str:
        """Return a text about files here as one about those of the instance."""
        for path, place in self.places.items():
            text = text.replace(place, path)
        return text

    def rename(self, model: Model, path: str) -> Model:
        """Return a model that was read here as the one at a path of the instance."""
        if model.rewriting is None:
            return replace(model, path=self.folder / path, source=replace(model.source, path=path))
        how = replace(model.rewriting, before=replace(model.rewriting.before, path=path))
        return replace(model, source=replace(model.source, path=how.title), rewriting=how)

    def load_property(self, instance: Instance) -> Property:
        assert instance.property_path is not None
        found = load_property(
            self.find(instance.property_path),
            parameters={name: self.places.get(value, value) for name, value in instance.parameters.items()},
            vnnlib=instance.vnnlib or None,
        )
        path = instance.property_path
        source = None if found.source is None else replace(found.source, path=path)
        return replace(found, name=path, path=self.folder / path, source=source, parameters=instance.parameters)


def _options_of(task: Task) -> Options:
    instance = task.instance
    options = {"processors": task.processors, **instance.options, "timeout": instance.timeout}
    if options.get("n_starts", 0) < 0 and instance.timeout is not None:
        options.setdefault("prove_timeout", _PROOFS * instance.timeout)
    if isinstance(options.get("dims"), Mapping):
        options["dims"] = {name: _size_of(size) for name, size in options["dims"].items()}
    return take(options) if instance.property_path is not None else take(options, **defaults_of_check())


def _size_of(size: Any) -> Any:
    """Return a size, or the range from the least to the greatest of a pair."""
    return range(size[0], size[1] + 1) if isinstance(size, list) else size


def _load(task: Task, places: _Places, options: Options) -> BoundProblem:
    instance = task.instance
    if instance.property_path is not None:
        with memory_limit(task.memory):
            return _load_property(instance, places, options)
    (path,) = instance.networks.values()
    question = _question(instance.question)
    find_samples = partial(sample_box, box=question.box)
    with memory_limit(task.memory):
        found = load_model(places.find(path), dims=options.sizes, strict=options.strict, find_samples=find_samples)
    # What verifies passes is more than the files explain.
    question, made = question.rewrite(found, options)
    with memory_limit(task.memory):
        model = places.rename(made, path)
        return load_statement(question.make_statement(model), model, dtype=options.dtype)


def _load_property(instance: Instance, places: _Places, options: Options) -> BoundProblem:
    prop = places.load_property(instance)
    paths = {name or network_of(prop): path for name, path in instance.networks.items()}
    given = {name: places.find(path) for name, path in paths.items()}
    models = load_networks(prop, given, {name: options.sizes for name in given}, strict=options.strict)
    return load(prop, {name: places.rename(one, paths[name]) for name, one in models.items()}, dtype=options.dtype)


def _question(given: Mapping[str, Any]) -> ValidityQuestion:
    """Return a question as `check` asks it; in its box, "" stands for all inputs that are not named."""
    fields = dict(given)
    box = fields.get("box")
    if isinstance(box, Mapping):
        ranges: dict[str | EllipsisType, Any] = {}
        for name, bounds in box.items():
            ranges[name or ...] = tuple(bounds) if isinstance(bounds, list) else bounds
        fields["box"] = ranges
    if isinstance(fields.get("weights"), list):
        fields["weights"] = tuple(fields["weights"])
    return ValidityQuestion(**fields)


def _write(answered: Answered, result: Result, task: Task, patience: float) -> Answered:
    """Return an answer with its report, and with the files of the counterexample as they will lie by the results."""
    with tempfile.TemporaryDirectory(prefix="ranum-falsify-") as name:
        folder = Path(name)
        base = base_of(folder / f"{task.stem}.npy")
        base.folder.mkdir(parents=True, exist_ok=True)
        saved = result.save(base.array)
        shown = illustrate(result.answer, result.loaded, result.config, min(patience, ILLUSTRATION_SECONDS))
        report = make_report(result.answer, saved, folder, kept=result.kept, illustration=shown)
        files = {} if saved.description is None else {"description": f"{task.stem}.json"}
        if result.answer.counterexample is not None:
            text = base.folder / f"{base.stem}{SUFFIX}"
            with suppress(SaveError):  # the format cannot say it
                text.write_bytes(assignment_of(result.loaded, result.answer.counterexample, text))
                files["vnnlib"] = text.relative_to(folder).as_posix()
        contents = {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
    return replace(answered, report=as_json(report), files=files, contents=contents)


_NETWORK = "N"
"""What boxes and VNN-LIB call the only network."""
_DATA = ".vnnlib"
"""How the names of properties end that are no programs."""


def replay_claim(instance: Instance, fingerprint: str, counterexample: Path) -> tuple[bool | None, str]:
    """Replay the counterexample of an instance on ONNX Runtime.

    Args:
        instance: The instance.
        fingerprint: What its record says that it was of.
        counterexample: The description of the counterexample.

    Returns:
        Whether it shows a violation, and ""; or None, and why that could not be tried.
    """
    if plan([instance])[0].fingerprint != fingerprint:
        return None, "its files are not here, or not what they were; compare in the folder that the suite ran in"
    if passes := instance.question.get("passes"):
        return None, f"its model is what transform makes by {' '.join(passes)}; run replay on that"
    prop = instance.property_path
    if prop is not None and not (instance.vnnlib or prop.removesuffix(".gz").endswith(_DATA)):
        return None, f"{prop} is a program; run replay if you trust it"
    request = ReplayRequest(
        networks={name or _NETWORK: Runnable(Path(path)) for name, path in instance.networks.items()},
        property=None if prop is None else Path(prop),
        vnnlib=True,
        settings=ReplaySettings(threads=1, reading=memory_limit),
    )
    try:
        return request.replay_file(counterexample).violated, ""
    except RanumFalsifyError as error:
        return None, " ".join(str(error).split())
