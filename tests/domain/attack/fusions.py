"""ONNX Runtime at its default level against ONNX Runtime without optimisations, and what is proved where they differ.

Two runs of one model differ if only one is refused or only one has numbers that are not finite, if shapes differ, or if
the default run leaves the bounds of the written graph at that very input.  A difference is no fault of the analysis as
long as nothing that is proved there excludes what the default run gives.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper

from ranum_falsify.config import ProveConfig
from ranum_falsify.errors import ModelError
from ranum_falsify.network import read
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.verify.prove.prover import Prover
from tests.domain.attack.models import random_target
from tests.domain.attack.sweep import rng_of
from tests.domain.boxes import Array, is_float
from tests.domain.subjects import Setting, Subject, Verdict
from tests.network.building import session
from tests.verify.search.search_kit import valid_in_box

__all__ = ["Comparison", "Difference", "compare", "compare_at", "inputs_of", "types_as_run"]

Feeds = Mapping[str, Array]
Run = Callable[[Feeds], dict[str, Array] | str]
"""Runs a model; returns its outputs, or why it is refused."""

_ULPS = 64
"""Units in the last place of the largest number of an output by which runs may differ with no further question."""
_LOOKED_AT = 20
"""One model in this many is analysed although its runs agree."""
_SETTING = Setting(keep=False, runtimes=("onnxruntime",))


@dataclass(frozen=True)
class Difference:
    """A model that runs differently with and without optimisations.

    Attributes:
        kind: `shape`, `refused`, `refused without`, `not finite` or `values`; `none` where runs agree and a proof is
            wrong all the same.
        rewritten: Types of the operators that the optimiser removes from, and adds to, the smallest part that differs;
            or why a model is refused.
        output: The output that differs, and how.
        fault: What is proved although it is wrong; empty if nothing is.
    """

    kind: str
    rewritten: str
    output: str
    fault: str


@dataclass
class Comparison:
    """What was seen of a model.

    Attributes:
        runs: Inputs on which it ran at the default level.
        difference: The first difference.
        types: Types of the operators that run at the default level, where they were looked at.
    """

    runs: int = 0
    difference: Difference | None = None
    types: Counter[str] = field(default_factory=Counter)


def compare(seed: int) -> Comparison:
    """Compare the runs of one random model on a few inputs."""
    rng = rng_of(seed)
    target = random_target(rng)
    looked_at = bool(rng.random() < 1 / _LOOKED_AT)
    return compare_at(target.model, inputs_of(target.feeds, rng), looked_at=looked_at)


def compare_at(model: onnx.ModelProto, inputs: Iterator[Feeds], *, looked_at: bool = False) -> Comparison:
    """Compare the runs of a model.

    Args:
        model: The model.
        inputs: The inputs on which it runs.
        looked_at: Whether to analyse it also if its runs agree.
    """
    found, pair = Comparison(), _Pair(model)
    if looked_at:
        found.types.update(types_as_run(model))
    for number, feeds in enumerate(inputs):
        kind, output = pair.differ(feeds)
        found.runs += pair.has_run
        if kind or (looked_at and not number):
            fault = pair.find_fault(feeds, kind)
            if found.difference is None and (kind or fault):
                rewritten = _name_rewriting(model, feeds, kind, output)
                found.difference = Difference(kind or "none", rewritten, output, fault)
            elif found.difference is not None and fault:
                found.difference = replace(found.difference, fault=fault)
    return found


def describe_crash(seed: int) -> Difference:
    """Describe a model whose comparison ended the process, which ONNX Runtime does not do to a proof."""
    target = random_target(rng_of(seed))
    fault = find_wrong_proof(target.model, target.feeds)
    types = " ".join(sorted({_type_of(node) for node in target.model.graph.node}))
    return Difference("crash", "a crash of ONNX Runtime", f"with {types}", fault)


def find_wrong_proof(model: onnx.ModelProto, feeds: Feeds) -> str:
    """Return what is proved of a model that ONNX Runtime does not run; empty if nothing is."""
    bounds = [(float(x.reshape(-1)[0]), float(x.reshape(-1)[0])) for x in feeds.values()]
    holds = Prover(valid_in_box(read(model), bounds), ProveConfig(runtime=("onnxruntime",))).analyse().holds
    return "a proof of what ONNX Runtime refuses" if holds else ""


def inputs_of(feeds: Feeds, rng: np.random.Generator, count: int = 4) -> Iterator[dict[str, Array]]:
    """Yield the inputs of a model, then others: other signs and sizes, zeros, equal and large numbers."""
    yield dict(feeds)
    for number in range(1, count):
        yield {name: _varied(x, number, rng) for name, x in feeds.items()}


def _varied(x: Array, number: int, rng: np.random.Generator) -> Array:
    if number % 3 == 1:
        factors = rng.choice((1.0, -1.0, 0.0, 1e-3, 30.0), x.shape)
    elif number % 3 == 2:
        return rng.choice(np.array((0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -100.0)), x.shape).astype(x.dtype)
    else:
        factors = np.full(x.shape, float(rng.choice((-1.0, 1e3, 1e-4))))
    with np.errstate(all="ignore"):
        scaled = (x.astype(np.float64) * factors).astype(x.dtype)
    return np.where(np.isfinite(scaled), scaled, x)


# one model ----------------------------------------------------------------------------------------------------------


class _Pair:
    """A model that is run with and without optimisations, and analysed if need be."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.has_run = False
        self._default, self._plain = _runner(model, optimised=True), _runner(model, optimised=False)
        self._subject: Subject | None = None
        self._known: tuple[Feeds, Verdict] | None = None

    def differ(self, feeds: Feeds) -> tuple[str, str]:
        """Return the kind of a difference and the output that has it; empty if there is none."""
        default, plain = self._default(feeds), self._plain(feeds)
        self.has_run = not isinstance(default, str)
        if isinstance(default, str):
            return ("", "") if isinstance(plain, str) else ("refused", default)
        if isinstance(plain, str):
            return "refused without", plain
        names = {name: _compare(y, plain[name]) for name, y in default.items()}
        for name, kind in names.items():
            if kind and (kind != "values" or not self._may_round_to(feeds, name, default[name])):
                return kind, f"{name}: {_few(default[name])} for {_few(plain[name])}"
        return "", ""

    def find_fault(self, feeds: Feeds, kind: str) -> str:
        """Return what is proved at an input although the default run gives something else; empty if nothing is."""
        default = self._default(feeds)
        if isinstance(default, str):
            return find_wrong_proof(self.model, feeds) if kind else ""
        try:
            verdict = self._analyse(feeds)
        except ModelError:
            return ""
        subject = self._subject
        assert subject is not None
        final, proved = subject.final(verdict), subject.proved(verdict)
        for name, y in default.items():
            bound = final[name]
            if name not in proved or bound is None:
                continue
            value = to_torch(np.asarray(y))
            if tuple(value.shape) != bound.shape or not bool(bound.encloses(value).all()):
                return f"{name} is {_few(y)}, not within {bound}"
        return ""

    def _may_round_to(self, feeds: Feeds, name: str, y: Array) -> bool:
        """Tell whether the graph as written may give a value at a point, however sums are ordered and rounded."""
        try:
            bound = self._analyse(feeds).bounds[name]
        except ModelError:  # nothing can be proved of a model that is not read
            return False
        value = to_torch(np.asarray(y))
        return bound is not None and tuple(value.shape) == bound.shape and bool(bound.encloses(value).all())

    def _analyse(self, feeds: Feeds) -> Verdict:
        self._subject = self._subject or Subject(self.model)
        if self._known is None or self._known[0] is not feeds:
            self._known = feeds, self._subject.analyse(feeds, feeds, _SETTING)
        return self._known[1]


def _runner(model: onnx.ModelProto, *, optimised: bool) -> Run:
    try:
        made = session(model, optimised=optimised)
    except Exception as error:  # no kernel for a type, or a fault of the optimiser
        refusal = _words(error)
        return lambda feeds: refusal
    names = [output.name for output in made.get_outputs()]

    def run(feeds: Feeds) -> dict[str, Array] | str:
        try:
            return dict(zip(names, made.run(None, dict(feeds)), strict=True))
        except Exception as error:  # an index out of range, a division of integers by zero
            return _words(error)

    return run


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _compare(a: Array, b: Array) -> str:
    """Return how two results differ by more than roundings of few operations; empty if they do not."""
    if not isinstance(a, np.ndarray) or a.shape != b.shape or a.dtype != b.dtype:
        return "shape"
    if not is_float(a):
        return "" if np.array_equal(a, b) else "values"
    limits = torch.finfo(to_torch(a).dtype)
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(np.isnan(a), np.isnan(b)):
        return "not finite"
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "not finite"
    a, b = a[finite], b[finite]
    size = max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0))
    return "values" if (np.abs(a - b) > _ULPS * (limits.eps * size + limits.tiny)).any() else ""


def _few(y: Array) -> str:
    return f"{y.shape} {np.asarray(y).reshape(-1)[:4].tolist()}"


# what the optimiser did ---------------------------------------------------------------------------------------------


def types_as_run(model: onnx.ModelProto) -> list[str]:
    """Return the types of the operators that run at the default level, with domain; none if it refuses the model."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.onnx"
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(target)
        options.log_severity_level = 4
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception:
            return []
        return [_type_of(node) for node in onnx.load(target).graph.node]


def _type_of(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}".removeprefix("ai.onnx.").removeprefix(".")


def _name_rewriting(model: onnx.ModelProto, feeds: Feeds, kind: str, output: str) -> str:
    """Return what the optimiser makes of the smallest part of a model that differs, or why it is refused."""
    if kind.startswith("refused"):
        text = re.sub(r"[\"'(].*?[\"')]|\S*(?=_q\b)", "_", output)
        return f"{kind}: " + re.sub(r"\[ONNX.* : [A-Z_]+ : |Exception during initialization: |\S*/", "", text)
    part = _smallest_part(model, feeds)
    written = Counter(_type_of(node) for node in part.graph.node if node.op_type != "Constant")
    run = Counter(types_as_run(part))
    added, gone = (" ".join(sorted(types)) or "nothing" for types in (run - written, written - run))
    return f"{gone} -> {added}" if run != written else f"the same operators ({' '.join(sorted(written))})"


def _smallest_part(model: onnx.ModelProto, feeds: Feeds) -> onnx.ModelProto:
    """Return the first nodes of a model that differ, without those before them that make no difference."""
    values = _values_of(model, feeds)
    end = next((n for n in range(1, len(model.graph.node)) if _differs(_part(model, values, 0, n), values)), None)
    end = end or len(model.graph.node)
    parts = (_part(model, values, start, end) for start in reversed(range(1, end)))
    return next((part for part in parts if _differs(part, values)), _part(model, values, 0, end))


def _differs(part: onnx.ModelProto, values: Feeds) -> bool:
    return bool(_Pair(part).differ({info.name: values[info.name] for info in part.graph.input})[0])


def _values_of(model: onnx.ModelProto, feeds: Feeds) -> dict[str, Array]:
    """Return all tensors of a model without optimisations; the inputs alone if it is refused."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    known = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in known]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    found = _runner(shown, optimised=False)(feeds)
    return dict(feeds) if isinstance(found, str) else {**feeds, **found}


def _part(model: onnx.ModelProto, values: Feeds, start: int, end: int) -> onnx.ModelProto:
    """Return a model of some nodes, whose outputs are all that none of them reads and whose inputs are known."""
    part = onnx.ModelProto()
    part.CopyFrom(model)
    nodes = [node for n, node in enumerate(model.graph.node) if start <= n < end or node.op_type == "Constant"]
    made = {name for node in nodes for name in node.output}
    taken = {name: None for node in nodes for name in node.input}
    stored = made | {tensor.name for tensor in model.graph.initializer}
    ends = [name for node in nodes for name in node.output if name and name not in taken]
    del part.graph.node[:], part.graph.input[:], part.graph.output[:]
    part.graph.node.extend(nodes)
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ends)
    for name in taken:
        if name in values and name not in stored:
            element = helper.np_dtype_to_tensor_dtype(values[name].dtype)
            part.graph.input.append(helper.make_tensor_value_info(name, element, values[name].shape))
    return part
