"""Networks as properties write them, such as `N[2:-3]`, made from that text as data: nothing of it runs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ranum_falsify.api.assignments import differences, read_assignment, split_inputs
from ranum_falsify.api.loading import BoundProblem, load, load_networks
from ranum_falsify.api.models import ModelLike, Runnable, share_dims
from ranum_falsify.api.plain_torch import PlainTorch
from ranum_falsify.api.properties import Property, PropertyLike, load_property
from ranum_falsify.api.replayed import ReplayCase, ReplayOutcome, ReplaySettings
from ranum_falsify.api.result import Result
from ranum_falsify.errors import UsageError
from ranum_falsify.escaping import escape
from ranum_falsify.network import Graph
from ranum_falsify.network.nesting import attribute_graphs
from ranum_falsify.network.precision import convert_precision
from ranum_falsify.results.arrays import load_array
from ranum_falsify.results.assumptions import describe_replay
from ranum_falsify.results.counterexample import Description, Entry, Origin, describe_groups, read
from ranum_falsify.results.places import is_assignment
from ranum_falsify.verify.replay.replayer import Finding

_LONGEST, _SHOWN = 1000, 100


def _build_network(text: str, names: Collection[str], load: Callable[[str], Graph]) -> Graph:
    """Return the network that a text means."""

    def build(node: ast.expr) -> Graph:
        match node:
            case ast.Name(id=name) if name in names:
                return load(name)
            case ast.Subscript(value=inner, slice=index):
                return build(inner)[_index(index)]
            case ast.Call(func=ast.Name(id="free"), args=[inner, *freed], keywords=[]):
                return build(inner).free([str(ast.literal_eval(name)) for name in freed])
            case ast.Call(func=ast.Attribute(value=outer, attr="compose"), args=[inner], keywords=[]):
                return build(outer).compose(build(inner))
        raise ValueError(ast.dump(node))

    try:
        if text in names:
            return load(text)
        if len(text) > _LONGEST:
            raise ValueError(text)
        return build(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        known = ", ".join(sorted(names))
        raise UsageError(f"network {text[:_SHOWN]!r}: is not part of {known}; search again") from error


def _index(node: ast.expr) -> Any:
    """Return what is between brackets: integers, slices of them, and tuples of both."""
    match node:
        case ast.Slice(lower=lower, upper=upper, step=None):
            return slice(*(None if end is None else ast.literal_eval(end) for end in (lower, upper)))
        case ast.Tuple(elts=parts):
            return tuple(_index(part) for part in parts)
    return ast.literal_eval(node)


Inputs = Mapping[str, np.ndarray | Path]
"""Arrays or their files by ONNX input name; the name "" stands for the only input."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReplayReport:
    """What a replay showed.

    Attributes:
        violated: Whether something in question turned non-finite, or a property over outputs was false.
        findings: The operators that failed on ONNX Runtime, in topological order for each counterexample.
        shown: What each counterexample showed.
        networks: What ran.
        notices: What a user should know, one sentence each.
    """

    violated: bool
    findings: tuple[Finding, ...]
    shown: Sequence[ReplayOutcome] = ()
    networks: Mapping[str, Runnable] = field(default_factory=dict)
    notices: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        yield "violated" if self.violated else "not violated: nothing in question turns non-finite"
        for one in self.shown:
            if len(self.shown) > 1:
                yield f"{one.title}:"
            yield from one.lines
        yield from describe_replay({name: model.fingerprint() for name, model in self.networks.items()})
        yield from (f"notice: {notice}" for notice in self.notices)

    def __str__(self) -> str:
        return "\n".join(map(escape, self.lines()))

    def __repr__(self) -> str:
        return str(self)


@PlainTorch()
def replay(
    model: ModelLike | Mapping[str, ModelLike] | None,
    inputs: Mapping[str, np.ndarray] | np.ndarray | Result | str | Path,
    *,
    property: PropertyLike | None = None,
    parameters: Mapping[str, object] | None = None,
    fail_on: Literal["output", "any"] = "any",
    processors: int | None = None,
) -> ReplayReport:
    """Run inputs on ONNX Runtime, and say which operators fail; of what PyTorch showed, PyTorch says it again.

    Args:
        model: The model, or models by the names that the property gives them; None for those of a result.
        inputs: Arrays by input; an array, for the only input; a result, of whose counterexamples the models decide; or
            the file of a counterexample, `cex.npy` or `cex.json`.
        property: The property, where it is about outputs: it then decides.
        parameters: Values of its parameters that the file does not hold.
        fail_on: `output` to count only violations that an output shows.
        processors: Threads of ONNX Runtime.

    Raises:
        RanumFalsifyError: A model, the inputs or the file is invalid; one line says what to do.
    """
    counterexample = Path(inputs) if isinstance(inputs, str | Path) else None
    request = ReplayRequest(
        networks={name: Runnable(one) for name, one in _name_models(model, inputs).items()},
        property=property,
        parameters={name: str(value) for name, value in (parameters or {}).items()},
        settings=ReplaySettings(outputs_alone=fail_on == "output", threads=processors or 1, reading=nullcontext),
    )
    if counterexample is not None:
        return request.replay_file(counterexample)
    if isinstance(inputs, Result):
        return request.replay_result(inputs)
    assert not isinstance(inputs, str | Path)
    return request.replay_arrays({"": np.asarray(inputs)} if not isinstance(inputs, Mapping) else dict(inputs))


def _name_models(model: ModelLike | Mapping[str, ModelLike] | None, inputs: object) -> Mapping[str, ModelLike]:
    """Return the models by the names that the counterexample gives them."""
    if isinstance(model, Mapping):
        return model
    if model is None:
        if not isinstance(inputs, Result):
            raise UsageError("model: give what the inputs are for; only a result knows its models")
        return inputs.loaded.models
    known: Sequence[str] = ()
    if isinstance(inputs, Result):
        known = list(inputs.loaded.models)
    elif isinstance(inputs, str | Path) and (found := _find_description(Path(inputs))) is not None:
        known = list(found[0].networks)
    if len(known) > 1:
        raise UsageError(f"model: the counterexample is of {', '.join(known)}; give models by these names")
    return {known[0] if known else "N": model}


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """What to replay on.

    Attributes:
        networks: Models by name.
        property: The property, for what the models alone do not decide.
        vnnlib: Whether it is VNN-LIB even if its suffix does not say so.
        parameters: Values of its parameters, as text, by name.
        settings: How to replay.
    """

    networks: Mapping[str, Runnable]
    property: PropertyLike | None = None
    vnnlib: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    settings: ReplaySettings

    def replay_arrays(self, inputs: Inputs) -> ReplayReport:
        """Replay arrays on the one network given."""
        if len(self.networks) != 1:
            raise UsageError("replay: give one network as --network NAME MODEL; nothing else says what to run")
        case = ReplayCase(network="", load=partial(_load_arrays, inputs))
        return self._report([self.settings.replay_model(next(iter(self.networks.values())), case)], self._note_unread())

    def replay_file(self, path: Path) -> ReplayReport:
        """Replay the array of a file, what a description says, or a counterexample in VNN-COMP's format."""
        if is_assignment(path):
            return self._replay_assignment(path)
        found = _find_description(path)
        if found is None:
            if not path.is_file():
                raise UsageError(f"{path}: no such file; give the .npy or .json file of a counterexample")
            return self.replay_arrays({"": path})
        description, entries = found
        notices = self._check_networks(path, description)
        cases = [
            ReplayCase(
                network=entry.network,
                load=partial(_load_arrays, entry.files),
                violations=entry.violations,
                title=", ".join(str(file) for file in entry.files.values()),
            )
            for entry in entries
        ]
        loaded = self._load(path, description) if any(not case.network for case in cases) else None
        if loaded is None:
            notices += self._note_unread()
        return self._report([self._replay_case(case, description, loaded) for case in cases], notices)

    def _replay_assignment(self, path: Path) -> ReplayReport:
        """Replay a counterexample in VNN-COMP's format: the property decides if there is one, else the model."""
        if len(self.networks) != 1:
            raise UsageError(f"{path}: is of one model; give it as --network NAME MODEL")
        ((name, runnable),) = self.networks.items()
        with self.settings.reading():
            if self.property is None:
                loaded, model = None, runnable.read({}, find_samples=lambda inputs: [_split_by_input(path, inputs)])
            else:
                prop = self._load_property(Origin())
                model = load_networks(prop, {name: runnable.given}, {name: {}})[name]
                loaded = load(prop, {name: model})
        graph = model.graph
        feeds = _split_by_input(path, graph)
        notices = differences(path, read_assignment(path), graph, feeds)
        if loaded is None:
            return self._report(
                [self.settings.replay_model(runnable, ReplayCase(network="", load=lambda: feeds))], notices
            )
        variables = [(one.name, one.shape, one.dtype) for one in loaded.problem.inputs]
        case = ReplayCase(network="", load=partial(split_inputs, path, variables))
        return self._report([self.settings.replay_formula(loaded, case)], notices)

    def _load_property(self, origin: Origin) -> Property:
        """Return the property that the user names, with the values that a counterexample has of its parameters."""
        if isinstance(self.property, Property):
            return self.property
        assert self.property is not None
        parameters = {**origin.parameters, **self.parameters}
        return load_property(self.property, parameters=parameters, vnnlib=self.vnnlib or origin.vnnlib or None)

    def replay_result(self, result: Result) -> ReplayReport:
        """Replay the counterexamples of a result."""
        groups = describe_groups(result.answer)
        if not groups:
            raise UsageError(f"replay: the result, {result.verdict}, has no counterexample; give inputs")
        cases = [
            ReplayCase(
                network=network, load=partial(dict, arrays), violations=violations, title=f"counterexample {number}"
            )
            for number, (network, arrays, violations) in enumerate(groups, 1)
        ]
        shown = [self._replay_case(case, result.loaded.origin, result.loaded) for case in cases]
        return self._report(shown, [])

    def _report(self, shown: Sequence[ReplayOutcome], notices: Sequence[str]) -> ReplayReport:
        return ReplayReport(
            violated=any(one.violated for one in shown),
            findings=tuple(finding for one in shown for finding in one.findings),
            shown=shown,
            networks=self.networks,
            notices=notices,
        )

    def _replay_case(self, case: ReplayCase, origin: Origin, loaded: BoundProblem | None) -> ReplayOutcome:
        if loaded is not None and not case.network:
            return self.settings.replay_formula(loaded, case)
        is_plain = not case.gradients and not case.shown_by_torch and origin.dtype is None
        if case.network in self.networks and is_plain:
            model = self.networks[case.network]
            if not case.names_inner or not any(any(attribute_graphs(node)) for node in model.load().graph.node):
                return self.settings.replay_model(model, case)
        with self.settings.reading():
            graph = self._build(case, origin)
        return self.settings.replay_graph(graph, case)

    def _build(self, case: ReplayCase, origin: Origin) -> Graph:
        """Return the network of a case, read and converted as it was for the search."""
        sizes = share_dims(self.networks, origin.dims)

        def find_samples(inputs: Graph) -> list[dict[str, np.ndarray]]:
            return [{name: array for name, array in case.load().items() if name in inputs.input_names}]

        def read_whole(name: str) -> Graph:
            graph = self.networks[name].read(sizes[name], find_samples=find_samples).graph
            return graph if origin.dtype is None else convert_precision(graph, origin.dtype)

        return _build_network(case.network, self.networks, read_whole)

    def _note_unread(self) -> list[str]:
        """Return a notice where the user names a property that is not needed."""
        if self.property is None:
            return []
        name = self.property.name if isinstance(self.property, Property) else self.property
        return [f"{name}: not read, because the models alone decide"]

    def _check_networks(self, path: Path, description: Description) -> list[str]:
        """Check that all networks are given; return notices where they are not those searched."""
        unknown = set(self.networks) - set(description.networks)
        if unknown:
            known = ", ".join(sorted(description.networks))
            raise UsageError(f"--network {min(unknown)}: the counterexample is of {known}; use this name")
        notices = []
        for name, (recorded, digest) in description.networks.items():
            if name not in self.networks:
                raise UsageError(
                    f"{path}: give the model of {name} as --network {name} MODEL; it was {recorded}, "
                    "but no path that a counterexample names is opened"
                )
            if self.networks[name].sha256() != digest:
                notices.append(
                    f"network {name}: {self.networks[name].label} is not the file that was searched (SHA-256 differs)"
                )
        return notices

    def _load(self, path: Path, description: Description) -> BoundProblem:
        """Read the property that the user names, with what is recorded of its parameters unless that is text.

        A text may be a path, which the property would open.
        """
        if self.property is None:
            raise UsageError(
                f"{path}: a property over outputs decides here; give it as --property PATH; it was "
                f"{description.property_path}, but no path that a counterexample names is opened"
            )
        texts = {name for name, value in description.parameters.items() if not _is_plain(value)}
        missing = sorted(texts - self.parameters.keys())
        if missing:
            name = missing[0]
            raise UsageError(f"{path}: give --prop.{name}=VALUE again (it was {description.parameters[name]!r})")
        with self.settings.reading():
            prop = self._load_property(description)
            sizes = share_dims(self.networks, description.dims)
            given = {name: model.given for name, model in self.networks.items()}
            return load(prop, load_networks(prop, given, sizes), dtype=description.dtype)


def _split_by_input(path: Path, graph: Graph) -> dict[str, np.ndarray]:
    """Return the values of a counterexample in VNN-COMP's format, by the inputs of a model."""
    details = zip(graph.input_names, graph.input_details, strict=True)
    return split_inputs(path, [(name, tuple(each.shape), np.dtype(each.dtype)) for name, each in details])


def _load_arrays(inputs: Inputs) -> dict[str, np.ndarray]:
    return {name: load_array(given) if isinstance(given, Path) else np.asarray(given) for name, given in inputs.items()}


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


def _is_plain(value: str) -> bool:
    """Tell whether a parameter's value is a number or a boolean."""
    try:
        float(value)
    except ValueError:
        return value in ("True", "False")
    return True
