"""The commands that ask the same again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ranum_falsify.results.run_report import Grounds, RunReport
from ranum_falsify.suite.record import InstanceRecord

_PROGRAM = "ranum-falsify"


def commands_of(record: InstanceRecord, report: RunReport | None) -> list[str]:
    """Return the commands that ask what an instance did, and run its counterexample again, for a shell."""
    grounds = None if report is None else report.assumptions
    words = [*_question(record, report, grounds), *_settings(record, report, grounds)]
    commands = [shlex.join(words)]
    if "description" in record.files:
        made = {} if grounds is None else grounds.rewritten
        beside = Path(record.files["description"]).with_suffix(".onnx").as_posix()
        given = [(name, _path(beside) if name in made else path) for name, path in _networks(record, report)]
        networks = [word for name, path in given for word in ("--network", name, path)]
        commands.append(shlex.join([_PROGRAM, "replay", _path(record.files["description"]), *networks]))
    return commands


def _networks(record: InstanceRecord, report: RunReport | None) -> list[tuple[str, str]]:
    """Return the models by the names that the property gives them."""
    known = [] if report is None else list(report.models)
    single = known[0] if len(known) == 1 else "N"
    return [(name or single, _path(path)) for name, path in record.instance.networks.items()]


def _question(record: InstanceRecord, report: RunReport | None, grounds: Grounds | None) -> Iterator[str]:
    instance = record.instance
    yield _PROGRAM
    if instance.property_path is None:
        yield "check"
        yield from map(_path, instance.networks.values())
        yield from _box(instance.question.get("box"), grounds)
        yield from _narrowing(instance.question)
        made = [] if grounds is None else [name for how in grounds.rewritten.values() for name in how.passes]
        for name in _listed(instance.question.get("passes")) or made:
            yield from ("--passes", name)
        return
    yield _path(instance.property_path)
    if instance.vnnlib:
        yield "--vnnlib"
    for name, path in _networks(record, report):
        yield from ("--network", name, path)
    for name, value in instance.parameters.items():
        yield f"--prop.{name}={value}"


def _box(given: Any, grounds: Grounds | None) -> Iterator[str]:
    """Yield what inputs range over: as given, or as the report says it of those whose elements range alike."""
    if given is None:
        inputs = [] if grounds is None else [one for one in grounds.inputs if one.name not in grounds.default_inputs]
        given = {one.name: [one.lower, one.upper] for one in inputs}
    for name, bounds in given.items() if isinstance(given, Mapping) else [("", given)]:
        ends = bounds if isinstance(bounds, list) else [bounds]
        if all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
            words = ",".join(map(repr, ends))
            yield from ("--box", f"{name}={words}" if name else words)


def _narrowing(question: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a question asks beside the box, as options of `check`."""
    for name in ("only", "nodes", "free"):
        for value in _listed(question.get(name)):
            yield from (f"--{name}", value)
    if question.get("gradient"):
        yield "--gradient"


def _settings(record: InstanceRecord, report: RunReport | None, grounds: Grounds | None) -> Iterator[str]:
    if grounds is not None:
        sizes = {name: size for dims in grounds.dims.values() for name, size in dims.items()}
        for name, size in sizes.items():
            if name not in grounds.assumed_dims:
                yield from ("--dim", f"{name}={size}")
        if grounds.dtype:
            yield from ("--dtype", grounds.dtype)
    if report is not None:
        yield from ("--seed", str(report.seed))
    if record.instance.timeout is not None:
        yield from ("--timeout", f"{record.instance.timeout:g}")


def _path(path: str) -> str:
    """Return a path as no word that is an option."""
    return f"./{path}" if path.startswith("-") else path


def _listed(value: Any) -> Sequence[str]:
    return [] if not value else [value] if isinstance(value, str) else [str(one) for one in value]
