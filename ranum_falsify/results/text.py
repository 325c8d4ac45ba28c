"""The report for people: the verdict first, then what violates, what stays open, and what to know."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ranum_falsify.config import RUNTIMES, ViolationKind
from ranum_falsify.network.messages import show_number, show_range
from ranum_falsify.results.assumptions import as_text, scope, steep_notice
from ranum_falsify.results.counterexample import Saved
from ranum_falsify.results.plain import list_some
from ranum_falsify.results.run_report import STAGES, ReportedOperator
from ranum_falsify.verify.search.result import KIND_NAMES, Answer, OperatorRecord, OperatorResult, SizeOutcome

if TYPE_CHECKING:
    from ranum_falsify.verify.prove.precision import KeepList

_ORACLES = {
    "onnxruntime": "ONNX Runtime",
    "reference": "the ONNX reference evaluator",
    "autograd": "autograd, at the operands that ONNX Runtime computes",
    "torch": "PyTorch",
    "module": "PyTorch, which ran the module itself",
    "autograd-torch": "autograd, at the operands that PyTorch computes",
    "autograd-flushed": "autograd, at the operands that ONNX Runtime computes with denormal numbers flushed to 0",
}
_AT_OPERANDS = "at the operands that ONNX Runtime computes"  # it is not run on them

_REACHES = {"output": "an output turns non-finite", "masked": "no output shows it"}
_NOWHERE = "no output turns non-finite with the default graph optimisations"
_OPTIMISATIONS = {
    "off": "only with ONNX Runtime's graph optimisations off",
    "default": "only with ONNX Runtime's default graph optimisations",
}
_MOST_OPERANDS = 8
_names = partial(list_some, most=3)


def report(
    result: Answer, saved: Saved, *, verbosity: int = 0, network_count: int = 1, kept: KeepList | None = None
) -> Iterator[str]:
    """Yield the lines of the report.

    Args:
        result: What was found.
        saved: The files of the counterexamples.
        verbosity: -1 the verdict, what violates and what all of it rests on, 1 every operator.
        network_count: Networks of the property; names of nodes are unique within one only.
        kept: What must stay in float32.
    """
    yield _verdict(result)
    if len({one.verdict for one in result.sizes}) > 1:
        yield _describe_sizes(result.sizes)
    yield from _write_violated(result, saved, verbosity, network_count)
    if result.counterexample is not None and not any(op.verdict == "violated" for op in result.operators):
        yield from _classic(result, saved)
    if verbosity >= 0:
        yield from _write_open(result, "proved", verbosity, network_count)
        yield from _write_open(result, "masked", verbosity, network_count)
        yield from _write_open(result, "open", verbosity, network_count)
        if result.unconfirmed:
            seen = "in a batch, not alone" if result.runtimes == ("torch",) else "by torch, not by ONNX Runtime"
            yield f"unconfirmed (seen {seen}): {len(result.unconfirmed)}"
            yield from (f"  {line}" for line in result.unconfirmed)
    yield from _grounds(result, verbosity)
    if verbosity >= 0:
        if saved.description is not None:
            yield f"details: {saved.description}"
        yield _write_timing(result)
    if kept is not None:
        yield from _list_kept(kept)


def _list_kept(found: KeepList) -> Iterator[str]:
    """Yield the list for people, in the form that converters take."""
    if not found.nodes and not found.left:
        yield "float32: no node needs to stay in float32"
        return
    shown = "proved minimal" if found.minimal else "not shown to be minimal: --prove-timeout gives more time"
    if found.nodes:
        names = json.dumps([node for _, node in found.nodes], ensure_ascii=False)
        yield f"float32: {len(found.nodes)} nodes to keep ({shown}): node_block_list = {names}"
    if found.left:
        names = ", ".join(node for _, node in found.left)
        yield f"float32: open whatever is kept in float32: {names}"


def finding_lines(
    found: OperatorRecord[Any], *, title: str = "", values: Mapping[str, float] | None = None
) -> Iterator[str]:
    """Yield what one failing operator shows; absent facts are left out."""
    kind, fused, runtimes = found.kind, found.fused, found.runtimes
    yield f"  {title or found.title}" + (f" gives {describe_kind(kind, runtimes)}" if kind else "")
    if found.source is not None:
        yield f"    {found.source}"
    if found.full_condition:
        yield f"    valid where {found.full_condition}"
    if found.operands:
        words = {} if fused else found.expressions
        operands = {words.get(name, name): extent for name, extent in found.operands.items()}
        yield f"    operands{f' of {fused}' if fused else ''}: {ranges(operands)}"
    if found.after and kind:
        yield f"    because of {_names(found.after)}"
    if values:
        shown = ", ".join(f"{name} {show_range(value, value)}" for name, value in values.items())
        yield f"    at the first offending element: {shown}"
    if found.reach:
        yield f"    reach: {found.reach} ({_write_reach(kind, found.reach, found.optimisations)})"
    if found.optimisations in _OPTIMISATIONS:
        yield f"    {_OPTIMISATIONS[found.optimisations]}" + (f" ({fused})" if fused else "")
    if found.gradients:
        yield f"    gradients that are not finite: {_names(found.gradients)}"
    if found.oracle:
        by = _AT_OPERANDS if kind == "crash" and found.oracle == "onnxruntime" else f"by {_ORACLES[found.oracle]}"
        yield f"    confirmed {by}{_beside(kind, found.oracle, runtimes)}"
    if found.mended is not None:
        place = f" line {found.mended.line}" if found.source is None or found.source.line != found.mended.line else ""
        yield f"    mended{place}: {found.mended.code}"
    if found.returned:
        low, high = found.returned
        numbers = show_number(low) if low == high else f"numbers {show_range(low, high)}"
        yield f"    instead, ONNX Runtime returns {numbers}"


def reported_lines(operator: ReportedOperator) -> Iterator[str]:
    """Yield what a report says of an operator, with the runtimes that show it in place of who confirmed it."""
    yield from finding_lines(replace(operator, oracle=None, runtimes=(), returned=None))
    if operator.verdict == "violated" and operator.runtimes:
        yield f"    on {', '.join(operator.runtimes)}"


def describe_kind(kind: ViolationKind, runtimes: Sequence[str]) -> str:
    """Return what an invalid operator gives, on all runtimes that are named; on ONNX Runtime if none is."""
    runtime = "PyTorch" if tuple(runtimes) == ("torch",) else "ONNX Runtime"
    ends = {"error": f": {runtime} refuses this input", "crash": f": this input ends the process of {runtime}"}
    return f"{KIND_NAMES[kind]}{ends.get(kind, '')}"


def _write_reach(kind: ViolationKind | None, reach: str, optimisations: str | None) -> str:
    if kind in ("error", "crash") and reach == "output":
        return "there is no output"
    return _REACHES[reach] if optimisations != "off" else _NOWHERE


def _beside(kind: ViolationKind | None, oracle: str, runtimes: Sequence[str]) -> str:
    """Return what the other runtime shows, as the end of a phrase; nothing where they were not compared."""
    if not runtimes:
        return ""
    only = "" if kind == "crash" else " only"
    other, name = ("onnxruntime", "ONNX Runtime") if oracle in ("torch", "module") else ("torch", "PyTorch")
    return f", and by {name}" if other in runtimes else f"{only}, not by {name}"


def ranges(operands: Mapping[str, tuple[float, float]]) -> str:
    """Return ranges of operands as text, at most eight of them."""
    shown = [_range(name, *limits) for name, limits in list(operands.items())[:_MOST_OPERANDS]]
    more = len(operands) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")


def plural(count: int, noun: str) -> str:
    """Return a number of things."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _range(name: str, low: float, high: float) -> str:
    if math.isnan(low):
        return f"{name} with NaN"
    return f"{name} {show_range(low, high)}"


def _verdict(result: Answer) -> str:
    ended = f" (ended early: {result.interrupted})" if result.interrupted else ""
    narrowed = result.runtimes and result.runtimes != RUNTIMES
    named = result.verdict == "holds" or (result.verdict == "unknown" and narrowed)
    runtimes = result.runtimes if named else ()
    left = [operator for operator in result.operators if operator.verdict != "proved"]
    if result.verdict == "unknown" and left and all(operator.proved_after_rewriting for operator in left):
        ended = f"; proved after rewriting{ended}"
    about = scope(runtimes, forward=_is_forward(result), assumptions=result.assumptions)
    sizes = f", for {_ranged(result.sizes)}" if result.sizes and result.verdict != "violated" else ""
    masked = sum(operator.verdict == "masked" and not operator.after for operator in left)
    shown = " on outputs" if masked and result.verdict != "violated" else ""
    beside = f"; {plural(masked, 'masked operator')}" if masked else ""
    return f"{result.verdict}{shown}{about}{sizes}{beside}{ended}"


def _is_forward(result: Answer) -> bool:
    return result.verdict == "holds" and bool(result.steep)


def _name_runtimes(result: Answer) -> str:
    """Return the runtimes that proofs cover, as the end of a phrase."""
    return f" for {', '.join(result.runtimes)}"


def _grounds(result: Answer, verbosity: int) -> Iterator[str]:
    """Yield what the verdict rests on."""
    if result.assumptions is not None:
        yield from as_text(result.assumptions, verbose=verbosity > 0)
    if _is_forward(result):
        sources = None if result.assumptions is None else result.assumptions.sources
        yield f"notice: {steep_notice(result.steep, from_file=sources is None or sources.property is not None)}"
    yield from (f"notice: {notice}" for notice in result.notices)


def _title(operator: OperatorResult, network_count: int) -> str:
    return f"{operator.network}: {operator.title}" if network_count > 1 else operator.title


def _files(files: Mapping[str, Path] | None, indent: str) -> Iterator[str]:
    if files is None:
        return
    if len(files) == 1:
        yield f"{indent}input: {next(iter(files.values()))}"
    else:
        yield f"{indent}inputs: " + ", ".join(f"{name} = {path}" for name, path in files.items())


def _write_violated(result: Answer, saved: Saved, verbosity: int, network_count: int) -> Iterator[str]:
    violated = [operator for operator in result.operators if operator.kind is not None]
    first = group_iterations((one.node, _likeness(one), one) for one in violated if not one.after)
    causes = {(one.network, one.node) for one, _ in first}
    folded: dict[tuple[str, str], list[OperatorResult]] = {}
    for one in violated if verbosity <= 0 else ():
        # The first of those before it follows from none.
        if one.after and (one.network, one.after[0]) in causes:
            folded.setdefault((one.network, one.after[0]), []).append(one)
    apart = {id(one) for ones in folded.values() for one in ones}
    entries = ((one.node, _likeness(one), one) for one in violated if id(one) not in apart)
    for operator, others in group_iterations(entries):
        yield from finding_lines(operator, title=_title(operator, network_count))
        if others:
            yield f"    {describe_iterations(others)}"
        following = folded.get((operator.network, operator.node), ())
        if following:
            fail = "fails" if len(following) == 1 else "fail"
            yield f"    {len(following)} more {fail} because of it: {_names([one.title for one in following])}"
        if operator.proved_after_rewriting:
            yield f"    {_rewriting(result, operator)}"
        yield from _files(saved.of(operator.counterexample), "    ")


def _likeness(operator: OperatorResult) -> Hashable:
    """Return what the text says of an operator, but for its operands and the inputs."""
    own = {"node", "operands", "returned", "counterexample", "after", "inside", "expressions"}
    return tuple(getattr(operator, field.name) for field in fields(operator) if field.name not in own)


def _rewriting(result: Answer, operator: OperatorResult) -> str:
    """Return after which passes an operator is proved, and the command that runs them."""
    passes = operator.proved_after_rewriting
    sources = None if result.assumptions is None else result.assumptions.sources
    source = None if sources is None else sources.networks.get(operator.network)
    how = None if sources is None else sources.rewritten.get(operator.network)
    if how is not None:
        source, passes = how.before, (*how.passes, *passes)
    path = "model.onnx" if source is None or not source.in_file else source.path
    command = f"ranum-falsify transform {shlex.quote(path)} {shlex.join(passes)} -o stable.onnx"
    return f"proved after rewriting by {', '.join(operator.proved_after_rewriting)}: `{command}`"


def _classic(result: Answer, saved: Saved) -> Iterator[str]:
    assert result.counterexample is not None
    yield "  the property is false on these inputs, with the outputs of ONNX Runtime"
    files = saved.of(result.counterexample)
    if files is not None:
        yield from _files(files, "    ")
        return
    for name, array in result.counterexample.inputs.items():
        yield f"    {name}: shape {list(array.shape)}, {_range('values', float(array.min()), float(array.max()))}"


def _write_open(result: Answer, verdict: str, verbosity: int, network_count: int) -> Iterator[str]:
    operators = [operator for operator in result.operators if operator.verdict == verdict and operator.kind is None]
    if not operators:
        return
    counts = Counter(operator.op_type for operator in operators)
    title = f"proved{_name_runtimes(result)}" if verdict == "proved" else verdict
    why = f"{_count_dependent(operators)}{_list_inside(operators)}{_count_rewritten(operators)}"
    yield f"{title}: {plural(len(operators), 'operator')} ({_counts(counts)}){why}"
    if verbosity > 0:
        yield from (f"  {_title(operator, network_count)}: {_state(operator)}" for operator in operators)
    groups: dict[tuple[str, ...], list[OperatorResult]] = {}
    for operator in operators:
        groups.setdefault((operator.network, *operator.proved_after_rewriting), []).append(operator)
    for (_, *passes), group in groups.items():
        if passes:
            titles = ", ".join(_title(operator, network_count) for operator in group)
            yield f"  {titles}: {_rewriting(result, group[0])}"


def _count_dependent(operators: Sequence[OperatorResult]) -> str:
    """Return how many operators are open only because others are."""
    dependent = [operator for operator in operators if operator.after]
    causes = tuple(dict.fromkeys(name for operator in dependent for name in operator.after))
    count = "" if len(dependent) == len(operators) else f"{len(dependent)} "
    return f", {count}only because of {_names(causes)}" if dependent else ""


def _list_inside(operators: Sequence[OperatorResult]) -> str:
    """Return which operators in subgraphs are not proved, if any."""
    inside = tuple(name for operator in operators for name in operator.inside)
    return f", because of {_names(inside)} inside" if inside else ""


def _count_rewritten(operators: Sequence[OperatorResult]) -> str:
    """Return how many operators are open only as ONNX Runtime runs them, if it does."""
    count = sum(operator.rewritten for operator in operators)
    return f", {count} only as ONNX Runtime runs the model" if count else ""


def _state(operator: OperatorResult) -> str:
    if operator.after:
        return f"open only because of {_names(operator.after)}"
    return f"open because of {_names(operator.inside)} inside it" if operator.inside else operator.constraint


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _write_timing(result: Answer) -> str:
    stages: Sequence[str] = [f"{name} {result.seconds[name]:.2f} s" for name in STAGES if name in result.seconds]
    work = f"{plural(result.starts, 'start')}, {plural(result.steps, 'step')}, seed {result.seed}"
    return f"time: {', '.join(stages)}; {work}" if stages else work


_MOST_NAMED = 6


def _ranged(outcomes: Sequence[SizeOutcome]) -> str:
    """Return all the sizes that were asked about, such as `batch = 1..2, seq = 1..64`."""
    names = list(outcomes[0].dims)
    varying = {name: sorted({one.dims[name] for one in outcomes}) for name in names}
    return ", ".join(f"{name} = {_spans(values)}" for name, values in varying.items())


def _describe_sizes(outcomes: Sequence[SizeOutcome]) -> str:
    """Return which sizes have which verdict, as one line."""
    groups: dict[str, list[Mapping[str, int]]] = {}
    for one in outcomes:
        groups.setdefault(one.verdict or "not looked at", []).append(one.dims)
    return "sizes: " + "; ".join(f"{verdict} with {_name(sizes)}" for verdict, sizes in groups.items())


def _name(sizes: Sequence[Mapping[str, int]]) -> str:
    names = list(sizes[0])
    if len(names) == 1:
        return f"{names[0]} = {_spans(sorted(one[names[0]] for one in sizes))}"
    listed = ["(" + ", ".join(f"{name} = {size}" for name, size in one.items()) + ")" for one in sizes[:_MOST_NAMED]]
    more = len(sizes) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more > 0 else "")


def _spans(values: Sequence[int]) -> str:
    """Return ascending numbers with those in a row joined: `1..17, 19`."""
    return ", ".join("..".join(run) for run in _join_runs(map(str, values)))


def _join_runs(numbers: Iterable[str]) -> list[list[str]]:
    """Return the first and the last of numbers that follow each other, or the only one; what is no number is alone."""
    runs: list[list[str]] = []
    for number in numbers:
        if runs and number.isdigit() and runs[-1][-1].isdigit() and int(number) == int(runs[-1][-1]) + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return runs


_T = TypeVar("_T")
_NUMBERED = re.compile(r"(.*/body/.*)\[(\d+(?:,\d+)*)\]")
_MOST_RUNS = 3


def group_iterations(entries: Iterable[tuple[str, Hashable, _T]]) -> list[tuple[_T, list[str]]]:
    """Return the first of those entries that are of one operator of a loop and alike, and the iterations of the others.

    Args:
        entries: The name of each, such as `loop/body/log[3]`; what those have in common that are alike; and the entry.
    """
    groups: dict[Hashable, tuple[_T, list[str]]] = {}
    for number, (name, likeness, entry) in enumerate(entries):
        match = _NUMBERED.fullmatch(name)
        key = (match[1], likeness) if match else number
        if key in groups and match:
            groups[key][1].append(match[2])
        else:
            groups[key] = (entry, [])
    return list(groups.values())


def describe_iterations(numbers: Sequence[str]) -> str:
    """Return in which further iterations an operator fails: `likewise in 3 more iterations: 4, 6 to 7`."""
    runs = _join_runs(numbers)
    shown = ", ".join(" to ".join(run) for run in runs[:_MOST_RUNS])
    more = " and others" if len(runs) > _MOST_RUNS else ""
    return f"likewise in {len(numbers)} more iteration{'s' * (len(numbers) > 1)}: {shown}{more}"
