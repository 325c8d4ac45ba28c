"""The commands `transform` and `simplify`: rewrite a model by passes, each verified after it ran."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ranum_falsify.api.loading import BoundProblem, load, load_networks
from ranum_falsify.api.properties import Property, load_property, network_of
from ranum_falsify.api.transforming import spread_box
from ranum_falsify.cli.files import check_json, check_writable, write_json
from ranum_falsify.cli.options.models import SimplifyOptions, TransformOptions
from ranum_falsify.cli.output import say, verdict_stands
from ranum_falsify.errors import PropertyError, UsageError, reason_of
from ranum_falsify.escaping import json_text
from ranum_falsify.network.functions import first_line
from ranum_falsify.network.resource_limits import memory_limit
from ranum_falsify.results.arrays import load_array
from ranum_falsify.results.places import make_safe_name, unique_names
from ranum_falsify.results.text import plural
from ranum_falsify.results.transform_report import (
    FORMAT,
    list_passes,
    report_pass,
    summarise,
    transform_report,
)
from ranum_falsify.rewrite.catalogue import all_passes, import_passes
from ranum_falsify.rewrite.checks.inputs import Box, input_specs
from ranum_falsify.rewrite.config import Reference, TransformConfig
from ranum_falsify.rewrite.config_file import FileConfig, Files, read_config
from ranum_falsify.rewrite.model import count_operators, external_files, read_model, weights_path, write_model
from ranum_falsify.rewrite.outcome import PassReport, PostconditionError
from ranum_falsify.rewrite.passes.chains import CHAINS, Chain
from ranum_falsify.saving import save_together

if TYPE_CHECKING:
    import onnx_ir as ir

_FAILED, _LEFT = 1, 3


def run(options: TransformOptions | SimplifyOptions) -> int:
    """Run the command."""
    given = options.config if isinstance(options, TransformOptions) else None
    file = FileConfig() if given is None else read_config(given)
    for path in (*file.imports, *options.imports):
        import_passes(path)
    if options.model is None or (isinstance(options, TransformOptions) and options.lists_passes):
        say(list_passes(all_passes()))
        return 0
    assert options.output is not None
    targets = {"--output": options.output} | _beside(options)
    for option, path in targets.items():
        check_writable(option, path)
    if options.state is not None:
        check_writable("--state", options.state)
    _check_checkpoint(options, file)
    check_json(options.json)
    passes = _passes(options, file)
    source = _read(options)
    _check_weights(options, source.model)
    return _Transformation(options, file, passes, _config(options, file, source), source).carry_out()


def _check_checkpoint(options: TransformOptions | SimplifyOptions, file: FileConfig) -> None:
    """Check that what is written on the way replaces neither the model nor the result."""
    assert options.output is not None and options.model is not None
    place = _checkpoint(options.output, file)
    for what, path in (("the model", options.model), ("the new model", options.output)):
        if place.resolve() == path.resolve():
            raise UsageError(
                f"{place}: would be {what} and the checkpoint before a pass; give --output or logging.checkpoint "
                "another name"
            )


def _check_weights(options: TransformOptions | SimplifyOptions, model: ir.Model) -> None:
    """Check that the weights of the new model do not replace those of the old one, unless it is replaced, too."""
    assert options.output is not None and options.model is not None
    place = weights_path(options.output).resolve()
    if place in external_files(model) and options.output.resolve() != options.model.resolve():
        raise UsageError(
            f"--output {options.output}: its weights would replace {place.name}, which holds those of "
            f"{options.model}; choose another path"
        )


def _checkpoint(output: Path, file: FileConfig) -> Path:
    """Return where the model before a pass goes that does not keep its promise."""
    return file.checkpoint or output.with_name(f"{output.stem}.checkpoint.onnx")


def _beside(options: TransformOptions | SimplifyOptions) -> dict[str, Path]:
    """Return what is written beside the new model."""
    assert options.output is not None
    if isinstance(options, SimplifyOptions) or options.property_path is None or options.tools is None:
        return {}
    return {"--property": options.output.with_suffix(".vnnlib")}


@dataclass(frozen=True)
class _Given:
    """What is rewritten."""

    model: ir.Model
    box: Box = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    text: str = ""
    notices: Sequence[str] = ()


def _read(options: TransformOptions | SimplifyOptions) -> _Given:
    """Read the model, and the property if there is one."""
    assert options.model is not None
    with memory_limit(options.memory):
        if isinstance(options, SimplifyOptions) or options.property_path is None:
            return _Given(read_model(options.model), dims=options.dims)
        prop = load_property(options.property_path, parameters=options.parameters, vnnlib=options.vnnlib or None)
        if options.tools is not None:
            return _state(options, prop)
        problem = _reduce(options, prop).problem
        bounds = {variable.name: variable for variable in problem.inputs}
        found = {
            name: bounds[variable]
            for call in problem.calls
            for name, variable in zip(call.graph.input_names, call.variables, strict=True)
            if variable is not None and variable in bounds
        }
        model = read_model(options.model)
        sizes = _sizes(model, {name: variable.shape for name, variable in found.items()})
        beside = [f"{prop.name}: conditions that are no ranges of inputs are not used"] if problem.penalties else []
        box = {name: (variable.lower, variable.upper) for name, variable in found.items()}
        return _Given(model, box, sizes, notices=beside)


def _reduce(options: TransformOptions, prop: Property) -> BoundProblem:
    """Return the property of the one network that it is about."""
    name, model = network_of(prop), options.model
    assert model is not None
    return load(prop, load_networks(prop, {name: model}, {name: options.dims}))


def _state(options: TransformOptions, prop: Property) -> _Given:
    """Return the network of a property, and the property as VNN-LIB."""
    from ranum_falsify.rewrite.vnnlib_export import state_property

    try:
        network_of(prop)
    except UsageError as error:
        raise PropertyError(f"{prop.path}: VNN-LIB is about one network; state the property of one") from error
    loaded = _reduce(options, prop)
    try:
        stated = state_property(loaded.problem)
    except PropertyError as error:
        # What states it knows no files.
        raise PropertyError(f"{prop.path}: {str(error).removeprefix('property: ')}") from error
    return _Given(stated.model, stated.box, {}, stated.text, (*loaded.notices, *stated.notices))


def _sizes(model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the sizes of symbolic dimensions in a property about the model."""
    return {
        dim: size
        for spec in input_specs(model)
        for dim, size in zip(spec.shape, shapes.get(spec.name, ()), strict=False)
        if isinstance(dim, str)
    }


@dataclass(frozen=True)
class _Transformation:
    """One run of the command, once all is read."""

    options: TransformOptions | SimplifyOptions
    file: FileConfig
    passes: Sequence[str]
    config: TransformConfig
    given: _Given

    @property
    def output(self) -> Path:
        """Where the new model goes."""
        assert self.options.output is not None
        return self.options.output

    def carry_out(self) -> int:
        """Run the passes, write, and report; return the exit status."""
        from ranum_falsify.rewrite.runner import transform  # imports torch

        assert self.options.model is not None
        try:
            done = transform(
                self.given.model,
                self.passes,
                self.config,
                folder=self.options.model.resolve().parent,
                before_pass=lambda number, name, before: _keep(self.file, number, name, before),
                after_pass=self._say_pass,
            )
        except PostconditionError as error:
            self._write_json(transform_report(error.reports, failure=self._explain(error)))
            return _FAILED
        beside = list(_beside(self.options).values())
        texts = {path: self.given.text.encode() for path in beside}
        if self.options.state is not None:
            texts[self.options.state] = json_text(done.state).encode()
        write_model(done.model, self.output, beside=texts)
        notices = [*self.given.notices, *done.notices]
        counts = count_operators(done.model)
        left = {name: count for name, count in counts.items() if not self._may_stay(name)}
        with verdict_stands():
            self._say(summarise(self.output, counts, notices, beside) if self.options.verbosity >= 0 else ())
            if left:
                listed = ", ".join(f"{name} {count}" for name, count in sorted(left.items()))
                self._say([f"outside {'--only' if self.options.only is not None else '--for'}: {listed}"])
        self._write_json(
            transform_report(
                done.reports,
                output=str(self.output),
                vnnlib=str(beside[0]) if beside else None,
                operators=dict(counts),
                outside=left,
                notices=notices,
            )
        )
        return _LEFT if left else 0

    @property
    def _chain(self) -> Chain | None:
        tools = self.options.tools if isinstance(self.options, TransformOptions) else None
        return None if tools is None else CHAINS[tools]

    def _may_stay(self, operator: str) -> bool:
        wanted = self.options.only
        if wanted is None and self._chain is not None:
            wanted = self._chain.operators
        return wanted is None or operator in wanted

    def _say_pass(self, report: PassReport) -> None:
        verbose = self.options.verbosity > 0 or self.file.verbose
        # Of a chain, most passes have nothing to do.
        is_idle = self._chain is not None and not report.is_modified and not report.refusals
        if self.options.verbosity >= 0 and (verbose or not is_idle):
            self._say(report_pass(report, verbose))

    def _say(self, lines: Iterable[str]) -> None:
        if self.options.json != "-":
            say(lines)

    def _write_json(self, report: dict[str, Any]) -> None:
        if self.options.json is None:
            return
        with verdict_stands():
            write_json(self.options.json, {"format": FORMAT, "model": str(self.options.model)} | report)

    def _explain(self, error: PostconditionError) -> dict[str, Any]:
        """Say what a pass did not keep; write the input that shows it, and the model before the pass."""
        cause, output = error.__cause__, self.output
        with verdict_stands():
            self._say([f"{type(error).__name__}: {error}", f"{type(cause).__name__}: {cause}"])
            files = _input_files(output, getattr(cause, "inputs", None) or {})
            if files:
                save_together({path: _npy(array) for path, array in files.values()})
                named = [f"{name} = {path}" if len(files) > 1 else str(path) for name, (path, _) in files.items()]
                self._say([f"{plural(len(files), 'input').partition(' ')[2]}: {', '.join(named)}"])
            place = _checkpoint(output, self.file)
            write_model(error.checkpoint, place)
            older = "; what is there is older" if output.exists() else ""
            self._say([f"checkpoint: {place} (the model before the pass); {output} is not written{older}"])
        inputs = {name: str(path) for name, (path, _) in files.items()}
        return {"name": error.name, "why": str(cause), "inputs": inputs, "checkpoint": str(place)}


def _passes(options: TransformOptions | SimplifyOptions, file: FileConfig) -> Sequence[str]:
    """Return the passes to run: those of the command line, else of the list or the configuration."""
    passes = file.passes
    if isinstance(options, TransformOptions):
        passes = options.passes or passes
    elif options.pass_list is not None:
        try:
            lines = options.pass_list.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = reason_of(error) if isinstance(error, OSError) else "is not UTF-8 text"
            raise UsageError(f"{options.pass_list}: cannot be read ({why}); give a file of names") from error
        passes = [name for name in (line.partition("#")[0].strip() for line in lines) if name]
        if not passes:
            raise UsageError(f"{options.pass_list}: names no pass; `transform --list` shows them")
    if isinstance(options, TransformOptions) and options.tools is not None:
        passes = [*passes, *CHAINS[options.tools].passes]
    if not passes:
        raise UsageError("transform: no pass is given; name some, `transform --list` shows them")
    return passes


def _config(options: TransformOptions | SimplifyOptions, file: FileConfig, given: _Given) -> TransformConfig:
    references = []
    if file.inputs:
        references.append(Reference(_arrays(file.inputs), _arrays(file.outputs)))
    if options.references:
        references.append(Reference(_arrays(options.references)))
    inputs = [value.name or "" for value in given.model.graph.inputs if not value.is_initializer()]
    return TransformConfig(
        references=references,
        samples=options.samples,
        seed=options.seed,
        box={**given.box, **spread_box(options.box or {}, inputs)},
        dims=given.dims,
        tolerance=file.tolerance,
        metrics=file.metrics,
        model_checker=file.model_checker,
        threads=options.processors,
        providers=file.providers,
        verify_timeout=options.verify_timeout,
        state=_read_state(options.state),
    )


def _read_state(path: Path | None) -> dict[str, Any]:
    """Return what analyses of earlier runs found."""
    if path is None or not path.exists():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"--state {path}: cannot be read ({first_line(error)}); delete it") from error
    if not isinstance(found, dict):
        raise UsageError(f"--state {path}: holds no state of analyses; give another path")
    return found


def _arrays(files: Files) -> Sequence[np.ndarray] | Mapping[str, np.ndarray]:
    if isinstance(files, Mapping):
        return {name: load_array(path) for name, path in files.items()}
    return [load_array(path) for path in files]


def _keep(file: FileConfig, number: int, name: str, model: ir.Model) -> None:
    """Write the model before a pass where the configuration asks for it."""
    if file.checkpoint is None:
        return
    write_model(model, file.checkpoint)
    if file.keep_intermediates:
        path = file.checkpoint
        write_model(model, path.with_name(f"{path.stem}.{number}.before-{make_safe_name(name)}{path.suffix}"))


def _input_files(output: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[Path, np.ndarray]]:
    stem = f"{output.stem}.failing"
    names = [""] if len(inputs) == 1 else [f".{name}" for name in unique_names(inputs, set())]
    return {
        name: (output.with_name(f"{stem}{suffix}.npy"), array)
        for suffix, (name, array) in zip(names, inputs.items(), strict=True)
    }


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()
