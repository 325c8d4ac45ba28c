"""A model run on samples: by ONNX Runtime, with its default graph optimisations and without, and in float64."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx import TensorProto, numpy_helper

from ranum_falsify.errors import ReplayCrashError, ReplayError, ReplayTimeoutError
from ranum_falsify.network import read
from ranum_falsify.network.nesting import attribute_graphs
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.rewrite.model import copy_model, has_external_data, tensors_of, to_proto
from ranum_falsify.verify.replay.replayer import Finding, Replay, Replayer
from ranum_falsify.verify.search.converter import TorchModel, convert

_FLOATS = (np.float16, np.float32, np.float64)
_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16)


class WideModel:
    """A model that PyTorch evaluates in double precision, if it can."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._modules: dict[tuple[tuple[int, ...], ...], TorchModel | None] = {}

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the outputs that it computes; none where it cannot, as with operators that have no row."""
        try:
            return self._run(inputs)
        except Exception:
            # Whatever does not run in double precision has nothing to say.
            return {}

    def _run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        shapes = tuple(array.shape for array in inputs.values())
        if shapes not in self._modules:
            self._modules[shapes] = None  # if making it fails, it is not tried again
            self._modules[shapes] = self._make(inputs)
        module = self._modules[shapes]
        if module is None:
            return {}
        arrays = [inputs[name] for name in module.graph.input_names]
        tensors = [to_torch(array.astype(np.float64) if array.dtype in _FLOATS else array) for array in arrays]
        with torch.no_grad():
            outputs = module(*tensors)
        names = [value.name or "" for value in self._model.graph.outputs]
        return {name: tensor.numpy() for name, tensor in zip(names, outputs, strict=True)}

    def _make(self, inputs: Mapping[str, np.ndarray]) -> TorchModel | None:
        if has_external_data(self._model):
            return None
        dims = {f"{name}:{axis}": size for name, array in inputs.items() for axis, size in enumerate(array.shape)}
        symbolic = {
            f"{value.name}:{axis}"
            for value in self._model.graph.inputs
            for axis, dim in enumerate(value.shape or ())
            if not isinstance(dim, int)
        }
        proto = to_proto(self._model)
        _widen(proto.graph)
        return convert(read(proto, dims={name: size for name, size in dims.items() if name in symbolic}))


def _widen(graph: onnx.GraphProto) -> None:
    """Make everything in a graph and its subgraphs that is a float a double."""
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("value_float", "value_floats"):
                values = np.array(attribute.floats if attribute.floats else attribute.f, dtype=np.float64)
                attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(values)))
            elif attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.name in ("to", "dtype") and attribute.i in _NARROW:
                attribute.i = TensorProto.DOUBLE
        for inner in attribute_graphs(node):
            _widen(inner)


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _NARROW:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


_FILE = "weights"
_PAGE = 4096  # bytes; also what places in the file are multiples of


class WeightFile:
    """A temporary file of tensors."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ranum-falsify-", ignore_cleanup_errors=True)
        self._stored: dict[int, tuple[ir.TensorProtocol, int, int]] = {}
        self._end = 0

    def close(self) -> None:
        """Delete it."""
        self._stored.clear()
        self._folder.cleanup()

    def refer(self, model: ir.Model, folder: Path) -> tuple[onnx.ModelProto, Path]:
        """Return a model as a message whose large tensors are external, and the folder that they lie in.

        Args:
            model: The model.
            folder: Where its external data lies; where it has some, nothing is stored here.
        """
        if has_external_data(model):
            return to_proto(model), folder
        thin = copy_model(model)
        for graph in thin.graphs():
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is not None and tensor.nbytes >= _PAGE and tensor.dtype != ir.DataType.STRING:
                    value.const_value = self._store(tensor, value.name or "")
        return to_proto(thin), Path(self._folder.name)

    def _store(self, tensor: ir.TensorProtocol, name: str) -> ir.ExternalTensor:
        """Return what refers to a tensor, which is written unless it has been."""
        if id(tensor) not in self._stored:
            data = tensor.tobytes()
            with Path(self._folder.name, _FILE).open("ab") as file:
                file.write(b"\0" * (self._end - file.tell()))
                file.write(data)
            self._stored[id(tensor)] = tensor, self._end, len(data)
            self._end += -(-len(data) // _PAGE) * _PAGE
        _, offset, length = self._stored[id(tensor)]
        shape = ir.Shape(tensor.shape.numpy())
        return ir.ExternalTensor(
            _FILE, offset, length, tensor.dtype, shape=shape, name=name, base_dir=self._folder.name
        )


Level = Literal["plain", "default"]
LEVELS: tuple[Level, ...] = ("plain", "default")
"""Without graph optimisations, and at ONNX Runtime's default level, as users run models."""

_MOST_KEPT = 256 * 2**20  # bytes of outputs
_LARGE = 512 * 2**20  # bytes of weights of which there must be no second copy
_BYTES_PER_SECOND = 16 * 2**20  # to be read, at least


@dataclass(frozen=True)
class LevelRun:
    """What one sample showed at one level of graph optimisations.

    Attributes:
        outputs: Arrays by output; those that are no numeric tensors are missing.
        findings: Operators that received invalid input.
        error: Why the model did not run, if it did not.
    """

    outputs: Mapping[str, np.ndarray]
    findings: tuple[Finding, ...] = ()
    error: str = ""

    @property
    def stop(self) -> Finding | None:
        """The operator that did not run, so that there are no outputs; None where there are."""
        return next((found for found in self.findings if found.kind in ("error", "crash")), None)


@dataclass(frozen=True)
class SampleRun:
    """What one sample showed."""

    levels: Mapping[Level, LevelRun]
    seconds: float = 0.0

    @property
    def plain(self) -> LevelRun:
        """What it showed without optimisations."""
        return self.levels["plain"]


class Runs:
    """Runs of one model; those on samples are kept, so that the next pass need not repeat them.

    Args:
        model: The model; it must not change any more.
        folder: Where its external data lies.
        weights: Where its tensors are stored.
        threads: ONNX Runtime's threads.
        timeout: Seconds for loading it, and for each run; more where it is large.
        providers: ONNX Runtime's execution providers, in order of preference; by default the CPU.
    """

    def __init__(
        self,
        model: ir.Model,
        folder: Path,
        weights: WeightFile,
        *,
        threads: int = 1,
        timeout: float = 60.0,
        providers: Sequence[str] = (),
    ) -> None:
        proto, place = weights.refer(model, folder)
        size = sum(tensor.nbytes for tensor in tensors_of(model))
        self._load = partial(
            Replayer,
            proto,
            threads=threads,
            timeout=timeout + size / _BYTES_PER_SECOND,
            folder=place,
            prepacks=size < _LARGE,
            providers=providers,
        )
        self._replayer = self._load()
        self._crash = ""  # of the optimiser, or of what it wrote
        outputs = model.graph.outputs
        self._brain = {value.name for value in outputs if value.dtype == ir.DataType.BFLOAT16}
        self._wide = WideModel(model)
        self._kept: dict[int, SampleRun] = {}
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child process."""
        self._replayer.close()

    def start(self) -> None:
        """Have a child process load the model, without waiting for it."""
        self._replayer.start()

    def run(self, inputs: Mapping[str, np.ndarray], key: int | None = None) -> SampleRun:
        """Run the model, or return what it showed on the sample of this key.

        Raises:
            ReplayCrashError: ONNX Runtime died of it.
            ReplayTimeoutError: It did not end in time.
        """
        if key is not None and key in self._kept:
            return self._kept[key]
        try:
            run = self._read(self._replay(inputs))
        except (ReplayCrashError, ReplayTimeoutError):
            raise
        except ReplayError as error:
            run = SampleRun(dict.fromkeys(LEVELS, LevelRun({}, error=str(error))))
        if key is not None:
            size = sum(array.nbytes for level in run.levels.values() for array in level.outputs.values())
            if self._bytes + size <= _MOST_KEPT:
                self._kept[key] = run
                self._bytes += size
        return run

    def forget(self) -> None:
        """Forget what samples showed."""
        self._kept.clear()
        self._bytes = 0

    def wide(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the outputs in double precision, as far as they can be computed."""
        return self._wide.run(inputs)

    def _replay(self, inputs: Mapping[str, np.ndarray]) -> Replay:
        """Run the model at both levels, or without optimisations alone once these made ONNX Runtime crash."""
        try:
            return self._replayer.run(inputs)
        except ReplayCrashError as error:
            if self._crash:
                raise
            self._replayer = self._load(optimises=False)
            seen = self._replayer.run(inputs)
            self._crash = str(error)
            return seen

    def _read(self, seen: Replay) -> SampleRun:
        """Return what a replay showed at each level."""
        refusal = seen.refusal or self._crash
        at: dict[Level, LevelRun] = {
            "plain": LevelRun(
                self._typed(seen.plain), tuple(found for found in seen.findings if found.optimisations != "default")
            ),
            "default": LevelRun(
                {} if refusal else self._typed(seen.outputs),
                tuple(found for found in seen.findings if found.optimisations != "off"),
                refusal,
            ),
        }
        return SampleRun(at, seen.seconds)

    def _typed(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return outputs in their own types: bfloat16 comes widened."""
        brain = ml_dtypes.bfloat16
        return {name: array.astype(brain) if name in self._brain else array for name, array in outputs.items()}
