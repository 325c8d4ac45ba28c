"""The commands `transform` and `simplify`: rewrite a model by passes, each verified after it ran."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np

from ranum_falsify.cli.files import check_writable
from ranum_falsify.cli.options import SimplifyOptions, TransformOptions
from ranum_falsify.cli.options.check import Bounds
from ranum_falsify.cli.output import say
from ranum_falsify.cli.reading import check_files
from ranum_falsify.cli.streams import verdict_stands
from ranum_falsify.errors import UsageError, reason_of
from ranum_falsify.network.guards import memory_limit
from ranum_falsify.report.arrays import load_array
from ranum_falsify.report.names import make_safe_name, unique_names
from ranum_falsify.report.text import plural
from ranum_falsify.saving import save_together
from ranum_falsify.transform.catalogue import all_passes, import_passes
from ranum_falsify.transform.checks.inputs import Box, input_specs
from ranum_falsify.transform.config import Reference, TransformConfig
from ranum_falsify.transform.config_file import FileConfig, Files, read_config
from ranum_falsify.transform.model import count_operators, read_model, write_model
from ranum_falsify.transform.outcome import PassReport, PostconditionError

if TYPE_CHECKING:
    import onnx_ir as ir

    from ranum_falsify.api.property_box import PropertyBox
    from ranum_falsify.transform.registry import PassSpec

__all__ = ["run"]

_FAILED, _LEFT = 1, 3
_MOST_SHOWN = 5


def run(options: TransformOptions | SimplifyOptions) -> int:
    """Run the command.

    Raises:
        RanumFalsifyError: The user's input is invalid.
    """
    file = _read_settings(options)
    if options.model is None or (isinstance(options, TransformOptions) and options.lists_passes):
        say(_listing(all_passes()))
        return 0
    assert options.output is not None
    check_writable("--output", options.output)
    passes = _passes(options, file)
    with memory_limit(options.memory):
        model = read_model(options.model)
    stated = _stated(options, options.model)
    config = _config(options, file, model, stated)
    from ranum_falsify.transform.runner import transform  # imports torch

    verbose = options.verbosity > 0 or file.verbose
    try:
        done = transform(
            model,
            passes,
            config,
            folder=options.model.resolve().parent,
            before_pass=lambda number, name, before: _keep(file, number, name, before),
            after_pass=lambda report: say(_report(report, verbose)) if options.verbosity >= 0 else None,
        )
    except PostconditionError as error:
        _explain(error, options.output, file.checkpoint)
        return _FAILED
    write_model(done.model, options.output)
    counts = count_operators(done.model)
    with verdict_stands():
        say(
            _summary(options.output, counts, [*(stated.notices if stated else ()), *done.notices])
            if options.verbosity >= 0
            else ()
        )
        left = _list_left(done.model, options.only)
        say(left)
    return _LEFT if left else 0


def _read_settings(options: TransformOptions | SimplifyOptions) -> FileConfig:
    """Return what the configuration says, and register the passes of users' files."""
    given = options.config if isinstance(options, TransformOptions) else None
    file = FileConfig() if given is None else read_config(given)
    for path in (*file.imports, *options.imports):
        import_passes(path)
    return file


def _stated(options: TransformOptions | SimplifyOptions, model: Path) -> PropertyBox | None:
    """Return what a property says of the model's inputs, None without one."""
    if options.property_path is None:
        return None
    check_files(options.property_path, {})
    from ranum_falsify.api.property_box import box_of_property  # imports torch

    return box_of_property(options.property_path, model, options.dims, memory=options.memory)


def _passes(options: TransformOptions | SimplifyOptions, file: FileConfig) -> Sequence[str]:
    """Return the passes to run: those of the command line, else of the list or the configuration.

    Raises:
        UsageError: There are none.
    """
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
        raise UsageError("transform: no pass is given; name some, `transform --list` shows them")
    return passes


def _config(
    options: TransformOptions | SimplifyOptions, file: FileConfig, model: ir.Model, stated: PropertyBox | None
) -> TransformConfig:
    box, shapes = ({}, {}) if stated is None else (stated.box, stated.shapes)
    references = []
    if file.inputs:
        references.append(Reference(_arrays(file.inputs), _arrays(file.outputs)))
    if options.references:
        references.append(Reference(_arrays(options.references)))
    inputs = [value.name or "" for value in model.graph.inputs if not value.is_initializer()]
    return TransformConfig(
        references=references,
        samples=options.samples,
        seed=options.seed,
        box={**box, **_spread_box(options.box or {}, inputs)},
        dims={**_sizes(model, shapes), **options.dims},
        tolerance=file.tolerance,
        metrics=file.metrics,
        model_checker=file.model_checker,
        threads=options.processors,
        providers=file.providers,
        verify_timeout=options.verify_timeout,
    )


def _sizes(model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the sizes of symbolic dimensions in a property about the model."""
    return {
        dim: size
        for spec in (input_specs(model) if shapes else ())
        for dim, size in zip(spec.shape, shapes.get(spec.name, ()), strict=False)
        if isinstance(dim, str)
    }


def _spread_box(box: Mapping[str | EllipsisType, Bounds], inputs: Sequence[str]) -> Box:
    """Return the range of each input; an ellipsis stands for those that are not named.

    Raises:
        UsageError: A range holds no finite numbers.
    """
    ranges: dict[str, tuple[np.float64, np.float64]] = {}
    for name, bounds in box.items():
        low, high = bounds if isinstance(bounds, tuple) else (bounds, bounds)
        if not -np.inf < low <= high < np.inf:
            raise UsageError(f"--box {low:g} {high:g}: holds no finite numbers; give LO and HI with LO <= HI")
        for key in inputs if isinstance(name, EllipsisType) else [name]:
            if name is not ... or key not in box:
                ranges[key] = np.float64(low), np.float64(high)
    return ranges


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


def _explain(error: PostconditionError, output: Path, checkpoint: Path | None) -> None:
    """Say what a pass did not keep, and write the input that shows it and the model before the pass."""
    cause = error.__cause__
    lines = [f"{type(error).__name__}: {error}", f"{type(cause).__name__}: {cause}"]
    inputs = getattr(cause, "inputs", None)
    with verdict_stands():
        say(lines)
        if inputs is not None:
            files = _input_files(output, inputs)
            save_together({path: _npy(array) for path, array in files.values()})
            say(
                [
                    f"{plural(len(files), 'input').partition(' ')[2]}: "
                    + ", ".join(
                        f"{name} = {path}" if len(files) > 1 else str(path) for name, (path, _) in files.items()
                    )
                ]
            )
        place = output.with_name(f"{output.stem}.checkpoint.onnx") if checkpoint is None else checkpoint
        write_model(error.checkpoint, place)
        older = "; what is there is older" if output.exists() else ""
        say([f"checkpoint: {place} (the model before the pass); {output} is not written{older}"])


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


def _report(report: PassReport, verbose: bool) -> Iterator[str]:
    """Yield what a pass did."""
    if report.is_modified:
        what = "changed the graph" if report.replaced is None else f"replaced {report.replaced}"
        yield f"{report.name}: {what}; {report.guarantee}: {', '.join(report.verified)}; {report.seconds:.2f} s"
    else:
        yield f"{report.name}: nothing to do"
    shown = report.refusals if verbose else report.refusals[:_MOST_SHOWN]
    yield from (f"  left: {refusal.node} ({refusal.op_type}): {refusal.reason}" for refusal in shown)
    if len(report.refusals) > len(shown):
        yield f"  left: {len(report.refusals) - len(shown)} more; -v shows all"


def _summary(output: Path, counts: Mapping[str, int], notices: Iterable[str]) -> Iterator[str]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{name} {count}" for name, count in ordered)
    yield f"written: {output}: {plural(sum(counts.values()), 'node')}" + (f" ({listed})" if listed else "")
    yield from (f"notice: {notice}" for notice in notices)


def _list_left(model: ir.Model, only: tuple[str, ...] | None) -> list[str]:
    """Return the operators outside the wanted ones, each with some of its nodes."""
    if only is None:
        return []
    counts = count_operators(model)
    outside = {name: count for name, count in counts.items() if name not in only}
    listed = ", ".join(f"{name} {count}" for name, count in sorted(outside.items()))
    return [f"outside --only: {listed}"] if outside else []


def _listing(passes: Sequence[PassSpec]) -> Iterator[str]:
    """Yield what there is to know of each pass."""
    for spec in passes:
        argument = f"=N (N: {spec.argument})" if spec.argument else ""
        yield f"{spec.name}{argument}"
        yield from (f"  {line}" for line in spec.description)
        yield f"  guarantee: {spec.guarantee}"
        if spec.takes or spec.gives:
            yield f"  {', '.join(spec.takes) or 'any'} -> {', '.join(spec.gives) or 'nothing new'}"
        if spec.needs:
            yield f"  needs: {spec.needs}"
