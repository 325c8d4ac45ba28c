"""The command `replay`: run a counterexample on ONNX Runtime again.

A description may come from a stranger.  So it is only read: models and properties are opened where the user names them,
never where it does.  Where operators fail, the models decide, and the text of the network (`N`, `N[2:-3]`, `free(N,
'w')`) says of which part.  A property over outputs is itself what decides, so it is needed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ranum_falsify.cli.applied import build_network
from ranum_falsify.cli.arrays import check_arrays, load_array
from ranum_falsify.cli.assumptions import describe_replay
from ranum_falsify.cli.counterexample import Description, Entry, file_hash, read
from ranum_falsify.cli.loading import Loaded, check_files, load
from ranum_falsify.cli.options import ReplayOptions
from ranum_falsify.cli.output import say
from ranum_falsify.cli.streams import verdict_stands
from ranum_falsify.cli.text import finding_lines
from ranum_falsify.cli.usage import UsageError
from ranum_falsify.replay.replayer import Finding, Replayer

if TYPE_CHECKING:
    import onnx

    from ranum_falsify.network import Graph
    from ranum_falsify.properties.formula.applications import NetworkCall, ValidityGoal

__all__ = ["run"]


@dataclass(frozen=True)
class _Shown:
    """What one counterexample showed: whether it violates, the lines about it, and its files."""

    violated: bool
    lines: Sequence[str]
    title: str = ""


def run(options: ReplayOptions) -> int:
    """Run the command.

    Raises:
        RanumFalsifyError: The user's input is invalid.
    """
    check_files(options.property_path, options.networks)
    if options.inputs:
        shown = [_replay_arrays(options, options.inputs)]
        notices = _note_unread(options)
    else:
        assert options.counterexample is not None
        shown, notices = _replay_file(options, options.counterexample)
    violated = any(one.violated for one in shown)
    with verdict_stands():
        say(["violated" if violated else "not violated: nothing in question turns non-finite"])
        for one in shown:
            say([f"{one.title}:", *one.lines] if len(shown) > 1 else one.lines)
        say(describe_replay(options.networks))
        say(f"notice: {notice}" for notice in notices)
    return 1 if violated else 0


# ------------------------------------------------------------------ what to replay


def _replay_file(options: ReplayOptions, path: Path) -> tuple[list[_Shown], list[str]]:
    from ranum_falsify.network.guards import memory_limit

    found = _find_description(path)
    if found is None:
        if not path.is_file():
            raise UsageError(f"{path}: no such file; give the .npy or .json file of a counterexample")
        return [_replay_arrays(options, {"": path})], _note_unread(options)
    description, entries = found
    notices: list[str] = []
    networks = _networks(options, path, description, notices)
    is_formula = [not entry.network for entry in entries]
    loaded = _load(options, path, description) if any(is_formula) else None
    if loaded is None:
        notices += _note_unread(options)
    shown = []
    for entry in entries:
        arrays = {name: load_array(file) for name, file in entry.files.items()}
        if loaded is not None and not entry.network:
            shown.append(_replay_formula(loaded, entry, arrays, options))
        elif entry.network in networks and description.dtype is None and not _gradients(entry):
            shown.append(_replay_model(networks[entry.network], arrays, options, entry))
        else:
            with memory_limit(options.memory):
                graph = build_network(entry.network, networks, description.dims, description.dtype)
            shown.append(_replay_graph(graph, entry, arrays, options))
    return shown, notices


def _note_unread(options: ReplayOptions) -> list[str]:
    """Return a notice where the user names a property that is not needed."""
    return [f"{path}: not read, because the models alone decide"] if (path := options.property_path) else []


def _find_description(path: Path) -> tuple[Description, list[Entry]] | None:
    """Return the description that a path names or that lies beside it, and the entries meant."""
    if path.suffix == ".json":
        description = read(path)
        return description, list(description.entries)
    stem = path.name.removesuffix(".npy")
    while stem:
        candidate = path.with_name(f"{stem}.json")
        if candidate.is_file():
            try:
                description = read(candidate)
            except UsageError:
                pass  # some other JSON file that happens to lie there
            else:
                named = [e for e in description.entries if path.name in {file.name for file in e.files.values()}]
                if named:
                    return description, named
                if not path.exists() and description.entries:
                    # cex.npy stands for cex.a.npy, cex.b.npy where there are several inputs.
                    return description, [description.entries[0]]
        stem = stem.rpartition(".")[0]
    return None


def _networks(options: ReplayOptions, path: Path, description: Description, notices: list[str]) -> Mapping[str, Path]:
    """Return the model of each network, all of which the user must name; says where they are not those searched."""
    unknown = set(options.networks) - set(description.networks)
    if unknown:
        known = ", ".join(sorted(description.networks))
        raise UsageError(f"--network {min(unknown)}: the counterexample is of {known}; use this name")
    for name, (recorded, digest) in description.networks.items():
        if name not in options.networks:
            raise UsageError(
                f"{path}: give the model of {name} as --network {name} MODEL; it was {recorded}, "
                "but no path that a counterexample names is opened"
            )
        if file_hash(options.networks[name]) != digest:
            notices.append(
                f"network {name}: {options.networks[name]} is not the file that was searched (SHA-256 differs)"
            )
    return options.networks


def _load(options: ReplayOptions, path: Path, description: Description) -> Loaded:
    """Read the property that the user names, with what is recorded of its parameters unless that is text.

    A text may be a path, which the property would open.
    """
    if options.property_path is None:
        raise UsageError(
            f"{path}: a property over outputs decides here; give it as --property PATH; it was "
            f"{description.property_path}, but no path that a counterexample names is opened"
        )
    texts = {name for name, value in description.parameters.items() if not _is_plain(value)}
    missing = sorted(texts - options.parameters.keys())
    if missing:
        name = missing[0]
        raise UsageError(f"{path}: give --prop.{name}=VALUE again (it was {description.parameters[name]!r})")
    return load(
        options.property_path,
        options.networks,
        vnnlib=options.vnnlib or description.vnnlib,
        parameters={**description.parameters, **options.parameters},
        dims=description.dims,
        dtype=description.dtype,
        memory=options.memory,
    )


def _is_plain(value: str) -> bool:
    """Tell whether a parameter's value is a number or a boolean."""
    try:
        float(value)
    except ValueError:
        return value in ("True", "False")
    return True


# ------------------------------------------------------------------ replaying


def _replay_arrays(options: ReplayOptions, files: Mapping[str, Path]) -> _Shown:
    """Replay arrays on the one network given; the name "" stands for its only input."""
    if len(options.networks) != 1:
        raise UsageError("replay: give one network as --network NAME MODEL; nothing else says what to run")
    arrays = {name: load_array(path) for name, path in files.items()}
    return _replay_model(next(iter(options.networks.values())), arrays, options, None)


def _replay_model(path: Path, arrays: Mapping[str, np.ndarray], options: ReplayOptions, entry: Entry | None) -> _Shown:
    from ranum_falsify.network.guards import memory_limit
    from ranum_falsify.network.model_file import free_model, load_model

    with memory_limit(options.memory):
        model = load_model(path)
    feeds = check_arrays(model, arrays, path)
    inputs = {value.name for value in model.graph.input}
    free = [name for name in feeds if name not in inputs]
    source = free_model(model, free) if free else path
    return _show(_findings(source, feeds, options), options, entry)


def _findings(
    source: onnx.ModelProto | Path, feeds: Mapping[str, np.ndarray], options: ReplayOptions
) -> Sequence[Finding]:
    with Replayer(source, threads=options.processors or 1) as replayer:
        return replayer.run(feeds).findings


def _replay_graph(graph: Graph, entry: Entry, arrays: Mapping[str, np.ndarray], options: ReplayOptions) -> _Shown:
    if _gradients(entry):
        return _replay_gradients(graph, entry, arrays, options)
    return _show(
        _findings(graph.model, check_arrays(graph.model, arrays, Path(entry.network)), options), options, entry
    )


def _gradients(entry: Entry) -> list[str]:
    """Return the nodes whose derivatives were not finite."""
    return [str(violation["node"]) for violation in entry.violations if violation.get("kind") == "gradient"]


def _replay_gradients(graph: Graph, entry: Entry, arrays: Mapping[str, np.ndarray], options: ReplayOptions) -> _Shown:
    """Differentiate the nodes in question at the operands that ONNX Runtime computes."""
    from ranum_falsify.replay.confirmer import Confirmer
    from ranum_falsify.replay.gradients import operand_ranges, steep_point

    operations = {op.name: op for op in graph.nodes}
    lines: list[str] = []
    gone = sorted(set(_gradients(entry)) - set(operations))
    if gone:
        raise UsageError(f"{entry.network}: there is no node {gone[0]!r}; give the model that was searched")
    with Confirmer([graph], threads=options.processors or 1) as confirmer:
        for name in _gradients(entry):
            op = operations[name]
            found = steep_point(confirmer, graph, op, arrays)
            if found is None:
                continue
            title, ranges = f"{name} ({type(op).__name__})", operand_ranges(op, found.operands)
            lines += finding_lines(
                title=title, kind="gradient", operands=ranges, values={}, reach=None, oracle=found.oracle
            )
    return _Shown(bool(lines), lines, _files(entry))


def _replay_formula(loaded: Loaded, entry: Entry, arrays: Mapping[str, np.ndarray], options: ReplayOptions) -> _Shown:
    """Evaluate the property with the outputs of ONNX Runtime."""
    from ranum_falsify.replay.confirmer import Confirmer, is_in_question

    problem = loaded.problem
    outputs: list[str] = []
    for variable in problem.inputs:
        array = arrays.get(variable.name)
        if array is None or array.shape != variable.shape or array.dtype != variable.dtype:
            raise UsageError(
                f"input {variable.name!r} of the property is {variable.dtype} {list(variable.shape)}, "
                f"the counterexample has {'none' if array is None else f'{array.dtype} {list(array.shape)}'}"
            )
    with Confirmer([call.graph for call in problem.calls], threads=options.processors or 1) as confirmer:

        def feeds(call: NetworkCall, arguments: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
            return dict(zip(call.graph.input_names, arguments, strict=True))

        def outputs_of(call: NetworkCall, arguments: tuple[np.ndarray, ...]) -> Sequence[np.ndarray]:
            values = confirmer.outputs(call.graph, feeds(call, arguments))
            outputs.extend(_output_lines(call, values))
            return values

        def is_valid(goal: ValidityGoal, arguments: tuple[np.ndarray, ...]) -> bool:
            found = confirmer.run(goal.call.graph, feeds(goal.call, arguments)).findings
            return not any(
                options.reach in (None, finding.reach) and is_in_question(goal, finding, confirmer) for finding in found
            )

        violated = not problem.holds(arrays, outputs_of, is_valid)
    verdict = f"  the property is {'false' if violated else 'true'} on these inputs"
    return _Shown(violated, [verdict, *outputs], _files(entry))


def _output_lines(call: NetworkCall, values: Sequence[np.ndarray]) -> Iterator[str]:
    for name, value in zip(call.graph.output_names, values, strict=True):
        if 0 < value.size <= 10:
            text = ", ".join(f"{element:.9g}" for element in value.reshape(-1).tolist())
        else:
            text = f"shape {list(value.shape)}"
        yield f"    {call.network}: {name} = {text}"


# ------------------------------------------------------------------ what came out


def _show(findings: Sequence[Finding], options: ReplayOptions, entry: Entry | None) -> _Shown:
    counted = [finding for finding in findings if options.reach in (None, finding.reach)]
    lines: list[str] = []
    for finding in counted:
        lines += finding_lines(
            title=f"{_node(finding)} ({finding.op_type})",
            kind=finding.kind,
            operands=finding.operands,
            values=finding.values,
            reach=finding.reach,
            oracle=finding.oracle,
            optimisations=finding.optimisations,
            fused=finding.fused,
        )
    if len(counted) < len(findings):
        lines.append(f"  {len(findings) - len(counted)} of another reach left out")
    seen = {finding.op_type for finding in findings}
    for violation in entry.violations if entry is not None else ():
        if violation.get("op_type") not in seen:
            lines.append(f"  not seen again: {violation.get('node')} ({violation.get('op_type')})")
    return _Shown(bool(counted), lines, _files(entry))


def _files(entry: Entry | None) -> str:
    return "" if entry is None else ", ".join(str(path) for path in entry.files.values())


def _node(finding: Finding) -> str:
    """Return the node's name as graphs have it."""
    return finding.node or f"{finding.op_type}_{finding.output}"
