#!/usr/bin/env python3
"""Print a line for everything on which an answer rests, to compare before and after a refactoring.

    scripts/fingerprint_answers.py > before.txt
    ... a change that must not change any answer ...
    scripts/fingerprint_answers.py > after.txt && diff before.txt after.txt

The subjects are our networks in the boxes that they name, the models of the zoo and their repaired twins over their own
ranges, the fetched models, the case tables of the operators, and, if `--instances` names a folder of VNN-COMP
benchmarks, its instances.  A line describes one subject for one runtime: the operators that are not proved, and a hash
of all bounds, bit by bit, plain and linear; or, for the search: how samples are batched, the verdict of each operator,
and a hash of the counterexamples of a short search with a fixed seed.  Another line of an instance says whether an
interval analysis proves it.  Nothing depends on how long it takes.

For a subject that cannot be read or analysed, the line is the error.  `--seconds` adds the processor time of each line,
best of three, and the total; then diff finds differences everywhere.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lab.bench.vnncomp import Instance, choose_instances, spread_over_families  # noqa: E402
from ranum_falsify.config import RUNTIMES, ProveConfig, Runtime, SearchConfig  # noqa: E402
from ranum_falsify.domain import Interval, IntervalAnalysis  # noqa: E402
from ranum_falsify.domain.linear.bounds import LinearAnalysis  # noqa: E402
from ranum_falsify.network import Graph, read  # noqa: E402
from ranum_falsify.properties.problem.problem import Problem  # noqa: E402
from ranum_falsify.verify.decide import falsify  # noqa: E402
from ranum_falsify.verify.prove.applications import box_of  # noqa: E402
from ranum_falsify.verify.prove.checked import check  # noqa: E402
from ranum_falsify.verify.prove.prover import Prover  # noqa: E402
from ranum_falsify.verify.search.batching import BatchedModel  # noqa: E402
from ranum_falsify.verify.search.converter import convert  # noqa: E402
from ranum_falsify.verify.search.result import Counterexample, OperatorResult  # noqa: E402
from ranum_falsify.zoo.catalogue import MODELS as ZOO  # noqa: E402
from ranum_falsify.zoo.detect import problem_of  # noqa: E402
from ranum_falsify.zoo.model import ZooModel  # noqa: E402
from tests.models.test_models import FIXED, MODELS, NATURAL  # noqa: E402
from tests.operators.harness import OperatorCase, Spread, model_of  # noqa: E402
from tests.operators.test_operators import CASES  # noqa: E402
from tests.verify.search.search_kit import natural, valid_in_box  # noqa: E402

__all__ = ["main"]

_SEARCH = SearchConfig(n_starts=8, n_steps=4, seed=0, timeout=None, processors=1, prove=False)
_LONGER_SEARCH = replace(_SEARCH, n_starts=40, n_steps=40)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A subject of analysis and search.

    Attributes:
        name: The start of its lines.
        problem: Makes the problem, which includes the box.
        linear: Whether linear bounds are hashed too.
        search: How to search it for a counterexample; None for not at all.
    """

    name: str
    problem: Callable[[], Problem]
    linear: bool = True
    search: SearchConfig | None = _SEARCH


def networks() -> Iterator[Subject]:
    """Yield our own networks."""
    for path in sorted((ROOT / "networks").glob("*.onnx")):
        yield Subject(name=f"networks/{path.stem}", problem=partial(natural, path.stem))


def zoo() -> Iterator[Subject]:
    """Yield the models of the zoo and their twins."""
    for model in ZOO:
        for safe in (False, True):
            name = f"zoo/{model.file_name(safe=safe)}"
            yield Subject(name=name, problem=partial(_of_zoo, model, safe), linear=False)


def _of_zoo(model: ZooModel, safe: bool) -> Problem:
    return problem_of(model, model.architecture(safe=safe), safe=safe)


def models() -> Iterator[Subject]:
    """Yield the fetched models: signals in [-1, 1], bytes, and rates and bands that make sense."""
    for key in MODELS:
        if _path(key).is_file():
            yield Subject(name=f"models/{'/'.join(key)}", problem=partial(_of_model, key), linear=False, search=None)


def _path(key: tuple[str, str]) -> Path:
    return ROOT / "models" / key[0] / key[1]


def _of_model(key: tuple[str, str]) -> Problem:
    graph = read(_path(key), dims=MODELS[key], fixed=FIXED.get(key))
    bounds = []
    for name, details in zip(graph.input_names, graph.input_details, strict=True):
        ends = (-1.0, 1.0) if details.dtype.kind == "f" else (0, 255)
        bounds.append((NATURAL[name], NATURAL[name]) if name in NATURAL else ends)
    return valid_in_box(graph, bounds)


def cases() -> Iterator[Subject]:
    """Yield one node for each row of the operators' case tables, over the ranges of its operands."""
    for number, case in enumerate(CASES):
        yield Subject(name=f"cases/{number}-{case.id}", problem=partial(_of_case, case))


def _of_case(case: OperatorCase) -> Problem:
    graph = read(model_of(case, case.arrays())[0])
    bounds = []
    for name in graph.input_names:
        operand = case.inputs[int(name.removeprefix("x_"))]
        bounds.append((operand.low, operand.high) if isinstance(operand, Spread) else (0, 1))
    return valid_in_box(graph, bounds)


def instances(found: Sequence[Instance]) -> Iterator[Subject]:
    """Yield instances of VNN-COMP."""
    for instance in found:
        name = f"instances/{instance.family}/{instance.name}"
        yield Subject(name=name, problem=instance.problem, search=_LONGER_SEARCH)


GROUPS = {"networks": networks, "zoo": zoo, "models": models, "cases": cases}


# lines ----------------------------------------------------------------------------------------------------------


def lines(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the start of each line of a subject, and a function that makes the rest."""
    problem = subject.problem()
    (call,) = problem.calls
    boxes = box_of(problem.inputs)
    box = [boxes[v] for v in call.variables if v is not None]
    for runtime in RUNTIMES:
        yield f"{subject.name} {runtime}", partial(_bounds, call.graph, box, runtime, subject.linear)
    if not problem.is_pure_validity:
        yield f"{subject.name} proof", partial(_describe_proof, problem)
    if subject.search is not None:
        yield f"{subject.name} search", partial(_describe_search, problem, subject.search)


def _bounds(graph: Graph, box: Sequence[Interval], runtime: Runtime, linear: bool) -> str:
    with torch.no_grad():
        plain = IntervalAnalysis(graph, runtimes=(runtime,), keep=True)
        checked = check(plain, box)
        left = [op.name for op in graph.nodes if id(op) in checked.open]
        gradient = [op.name for op in graph.nodes if id(op) in checked.open_gradient]
        text = f"open={left} gradient={gradient} bounds={_hash_of_bounds(plain)}"
        if linear:
            better = LinearAnalysis(graph, runtimes=(runtime,))
            better.run(box)
            text += f" linear={_hash_of_bounds(better)}"
    return text


def _hash_of_bounds(analysis: IntervalAnalysis) -> str:
    digest = hashlib.sha256()
    for op in analysis.graph.order:
        bounds = analysis.bounds_of(op)
        if bounds is None:
            digest.update(b"unknown")
            continue
        digest.update(repr((bounds.shape, bounds.dtype, bounds.nan, bounds.overflows, bounds.gap)).encode())
        for bound in (bounds.lower, bounds.upper):
            stored = torch.empty(bound.numel(), dtype=bound.dtype).copy_(bound.reshape(-1))
            digest.update(stored.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _describe_proof(problem: Problem) -> str:
    return f"holds={Prover(problem, ProveConfig(prove_timeout=0.0)).analyse().holds}"


def _describe_search(problem: Problem, config: SearchConfig) -> str:
    mode = BatchedModel(convert(problem.calls[0].graph)).mode
    result = falsify(problem, config)
    digest = hashlib.sha256()
    for operator in result.operators:
        _add(digest, operator)
    if not result.operators:
        _add_inputs(digest, result.counterexample)
    verdicts = [f"{o.node}:{o.verdict}:{o.reach}:{o.kind}" for o in result.operators if o.verdict != "open"]
    return (
        f"mode={mode} {result.verdict} {verdicts} steps={result.steps} unconfirmed={len(result.unconfirmed)} "
        f"found={digest.hexdigest()[:16]}"
    )


def _add(digest: hashlib._Hash, operator: OperatorResult) -> None:
    said = (operator.node, operator.verdict, operator.kind, operator.reach, operator.optimisations, operator.fused)
    digest.update(repr((*said, operator.oracle, sorted(operator.operands.items()))).encode())
    _add_inputs(digest, operator.counterexample)


def _add_inputs(digest: hashlib._Hash, counterexample: Counterexample | None) -> None:
    if counterexample is not None:
        for name, array in sorted(counterexample.inputs.items()):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())


def _line(start: str, make: Callable[[], str]) -> str:
    try:
        return f"{start} {make()}"
    except Exception as error:
        return f"{start} {type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"


def _list_lines(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    try:
        yield from lines(subject)
    except Exception as error:
        said = f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
        yield subject.name, lambda: said


def main(argv: Sequence[str] | None = None) -> int:
    """Print all lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=sorted(GROUPS), default=list(GROUPS), help="groups of subjects")
    parser.add_argument("--instances", type=Path, metavar="FOLDER", help="and instances of VNN-COMP")
    parser.add_argument("--count", type=int, default=60, help="how many of them (default: %(default)s)")
    parser.add_argument("--match", default="", help="only subjects whose name contains this")
    parser.add_argument("--no-search", action="store_true", help="bounds only")
    parser.add_argument("--seconds", action="store_true", help="add processor times")
    options = parser.parse_args(argv)
    groups = [GROUPS[name] for name in options.only]
    if options.instances is not None:
        try:
            found = choose_instances(options.instances, None, "all")
        except LookupError as error:
            print(error, file=sys.stderr)
            return 2
        groups.append(partial(instances, spread_over_families(found, options.count)))
    torch.set_num_threads(1)
    seconds = sum(
        _print_line(start, make, options) for group in groups for start, make in _choose_lines(group, options)
    )
    if options.seconds:
        print(f"total {seconds:.2f} s")
    return 0


def _choose_lines(
    group: Callable[[], Iterator[Subject]], options: argparse.Namespace
) -> Iterator[tuple[str, Callable[[], str]]]:
    for subject in group():
        if options.match in subject.name:
            for start, make in _list_lines(subject):
                if not (options.no_search and start.endswith(" search")):
                    yield start, make


def _print_line(start: str, make: Callable[[], str], options: argparse.Namespace) -> float:
    """Print one line; return the least of three processor times, if they are asked for."""
    text, times = _line(start, make), []
    for _ in range(3 if options.seconds else 0):
        began = time.process_time()
        _line(start, make)
        times.append(time.process_time() - began)
    print(text + (f" {min(times):.4f} s" if times else ""), flush=True)
    return min(times, default=0.0)


if __name__ == "__main__":
    sys.exit(main())
