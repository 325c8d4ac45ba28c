"""The command `zoo`: real defects listed, shown, written as files, and detected."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper

from ranum_falsify.cli.options.tools import ZooBuild, ZooDetect, ZooList, ZooShow, ZooTrain
from ranum_falsify.cli.output import align, say, say_json
from ranum_falsify.errors import UsageError, reason_of
from ranum_falsify.model_builder import BoxedVariable
from ranum_falsify.results.plain import pick
from ranum_falsify.saving import cache_folder, save_together
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.catalogue import FUZZED, MODELS, model_of
from ranum_falsify.zoo.model import Defect, ZooModel

_WIDEST = 60
"""Characters of a sentence in a table."""

_FUZZER = "saf"
"""The word for all programs of the Soft Assertion Fuzzer."""


def choose_models(ids: Sequence[str]) -> dict[ZooModel, tuple[Defect, ...]]:
    """Return models with those of their defects that ids mean, in the order of the catalogue; the 79 for no ids.

    The word `saf` means all programs of the fuzzer.

    Raises:
        ZooError: There is no such model.
    """
    if not ids:
        return {model: model.defects for model in MODELS}
    names = [i for name in ids for i in ([model.id for model in FUZZED] if name == _FUZZER else [name])]
    named = [(model_of(name), name) for name in names]
    return {
        model: tuple(d for d in model.defects if any(m is model and n in (model.id, d.id) for m, n in named))
        for model in (*MODELS, *FUZZED)
        if any(m is model for m, _ in named)
    }


# list ---------------------------------------------------------------------------------------------------------------


def list_defects(options: ZooList) -> int:
    """Run `zoo list`."""
    if options.json:
        rows = [_defect_object(model, defect) for model in (*MODELS, *FUZZED) for defect in model.defects]
        say_json(rows)
    else:
        say(_table())
    return 0


def _table() -> Iterator[str]:
    """Yield a line per defect, and a head; a derivative's defects have a mark."""
    rows: list[tuple[str, ...]] = [("id", "program", "made with", "operator", "node", "mechanism", "repair")]
    for model in (*MODELS, *FUZZED):
        for defect in model.defects:
            operator = f"{defect.operator}'" if defect.gradient else defect.operator
            sentences = (textwrap.shorten(t, _WIDEST, placeholder=" ...") for t in (defect.mechanism, model.repair))
            rows.append((defect.id, model.program, model.framework, operator, defect.node, *sentences))
    yield from align(rows)
    if any(defect.gradient for model in (*MODELS, *FUZZED) for defect in model.defects):
        yield "' of the derivative: the output stays finite"


def _defect_object(model: ZooModel, defect: Defect) -> dict[str, Any]:
    return {
        "id": defect.id,
        "model": model.id,
        **pick(model, "program framework"),
        **pick(defect, "operator node mechanism gradient"),
        "repair": model.repair,
    }


# show ---------------------------------------------------------------------------------------------------------------


def show(options: ZooShow) -> int:
    """Run `zoo show`."""
    model = model_of(options.id)
    architecture = model.architecture(safe=options.safe, batch=options.batch, documented=options.documented)
    text = model.property_text(architecture, safe=options.safe)
    if options.json:
        say_json(_model_object(model, architecture, text, safe=options.safe))
    else:
        say(_facts(model, architecture, text, safe=options.safe))
    return 0


def _model_object(model: ZooModel, architecture: Architecture, text: str, *, safe: bool) -> dict[str, Any]:
    return {
        **pick(model, "id program framework"),
        "safe": safe,
        "repair": model.repair,
        "training": None if model.training is None else asdict(model.training),
        "developer_fixes": {
            defect.id: pick(fix, "status detail")
            for defect in model.defects
            if (fix := defect.developer_fix) is not None
        },
        "defects": [_defect_object(model, defect) for defect in model.defects],
        "inputs": [pick(v, "name dtype shape low high") for v in architecture.inputs],
        "widened": {name: list(data) for name, data in architecture.widened.items()},
        "weights": [pick(v, "name dtype shape low high") for v in architecture.weights],
        "nodes": len(architecture.model.graph.node),
        "bytes": architecture.model.ByteSize(),
        "property": text,
    }


def _facts(model: ZooModel, architecture: Architecture, text: str, *, safe: bool) -> Iterator[str]:
    title = f"{model.id}: {model.program} ({model.framework})"
    yield f"{title}, repaired" if safe else title
    for defect in model.defects:
        of = ", of its derivative" if defect.gradient else ""
        yield f"  defect {defect.id} at {defect.node} ({defect.operator}{of}): {defect.mechanism}"
        if (fix := defect.developer_fix) is not None:
            yield f"  its developers ({fix.status}): {fix.detail}"
    yield f"  repair: {model.repair}"
    if (training := model.training) is not None:
        rate, batch = f"learning rate {training.learning_rate:g}", f"batches of {training.batch}"
        yield f"  training: {training.optimizer}, {rate}, {batch}; {training.loss}"
    yield f"  {len(architecture.model.graph.node)} nodes, {_size(architecture.model.ByteSize())}"
    yield "inputs"
    yield from _ranges(architecture.inputs)
    for name, (low, high) in architecture.widened.items():
        yield f"  the program's data for {name} lie in [{low:g}, {high:g}]; --documented keeps to that"
    if architecture.weights:
        yield f"weights ({sum(int(np.prod(v.shape)) for v in architecture.weights)} elements), with values at first"
        yield from _ranges(architecture.weights, architecture)
    yield "property"
    yield from textwrap.indent(text.rstrip(), "  ").split("\n")


def _ranges(variables: Sequence[BoxedVariable], architecture: Architecture | None = None) -> Iterator[str]:
    """Yield a line per variable; with an architecture, what its initializers hold, too."""
    rows = [(v.name, f"{v.dtype} {list(v.shape)}", f"in [{v.low:.6g}, {v.high:.6g}]") for v in variables]
    arrays = {x.name: x for x in architecture.model.graph.initializer} if architecture else {}
    for line, variable in zip(align(rows), variables, strict=True):
        if variable.name in arrays:
            array = numpy_helper.to_array(arrays[variable.name])
            least, greatest = float(array.min()), float(array.max())
            line += f", {least:.4g}" if least == greatest else f", [{least:.4g}, {greatest:.4g}]"
        yield f"  {line}"


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


# build --------------------------------------------------------------------------------------------------------------


def build(options: ZooBuild) -> int:
    """Run `zoo build`."""
    models = choose_models(options.ids)
    folder = _folder(options.out)
    for model in models:
        for safe in (False, True):
            for path in _write(model, folder, options, safe=safe):
                say([str(path)])
    return 0


def _write(model: ZooModel, folder: Path, options: ZooBuild, *, safe: bool) -> Iterator[Path]:
    architecture = model.architecture(safe=safe, batch=options.batch, documented=options.documented)
    name = model.file_name(safe=safe)
    contents = {
        f"{name}.onnx": architecture.model.SerializeToString(deterministic=True),
        f"{name}.py": model.property_text(architecture, safe=safe).encode(),
    }
    save_together({folder / file: content for file, content in contents.items()})
    yield from (folder / file for file in contents)


def _folder(path: Path | None) -> Path:
    """Return a folder that the user named, made where its parent exists; else one in the user's cache."""
    if path is None:
        cache = cache_folder()
        if cache is None:
            raise UsageError("you have no home directory, so no cache; name a folder with --out")
        return _make_folder(cache / "zoo", str(cache / "zoo"))
    if not path.parent.is_dir():
        raise UsageError(f"--out {path}: there is no folder {str(path.parent)!r}; create it first")
    return _make_folder(path, f"--out {path}")


def _make_folder(path: Path, title: str) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{title}: cannot be created ({reason_of(error)}); choose another folder with --out"
        ) from error
    return path


# detect and train -----------------------------------------------------------------------------------------------------


def detect(options: ZooDetect) -> int:
    """Run `zoo detect`."""
    models = choose_models(options.ids)
    from ranum_falsify.cli.zoo_runs import detect_defects  # imports torch

    return detect_defects(models, options)


def train(options: ZooTrain) -> int:
    """Run `zoo train`."""
    models = choose_models(options.ids)
    from ranum_falsify.cli.zoo_runs import train_defects  # imports torch

    return train_defects(models, options)
