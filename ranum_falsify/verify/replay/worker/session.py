"""Sessions of ONNX Runtime on the CPU, with and without its graph optimisations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from .graph import Value, clear_repeated_names
from .operators import Operators

_OFF = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
_DEFAULT = ort.SessionOptions().graph_optimization_level
_LAYOUTS = ("NchwcTransformer", "NhwcTransformer")  # they change results only by the order of sums
_PROVIDERS = ("CPUExecutionProvider",)
_FLOATS = {"tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"}
_INTEGERS = {f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_EIGHTS = ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0")
_WIDENED = {"tensor(bfloat16)", *(f"tensor(float8{kind})" for kind in _EIGHTS)}
_READABLE = _FLOATS | _WIDENED | _INTEGERS | {"tensor(bool)"} | {f"seq({kind})" for kind in _FLOATS}
_READABLE |= {f"seq(map({key},tensor(float)))" for key in ("int64", "string")}


@dataclass(frozen=True)
class Setting:
    """How to run a model.

    Attributes:
        folder: folder of its external data.
        operators: what the rows say about operators.
        threads: number of intra-operator threads.
        flush: whether denormal numbers are replaced by 0, as many devices do.
        scratch: folder for the optimised model.
        prepacks: whether kernels may keep their weights in an order of their own, which is a second copy of them.
        providers: names of the execution providers, in order of preference.
        optimises: whether models run at the default level of graph optimisations, too.
    """

    folder: str
    operators: Operators
    threads: int
    flush: bool = False
    scratch: str = ""
    prepacks: bool = True
    providers: Sequence[str] = _PROVIDERS
    optimises: bool = True


def _options(setting: Setting, level: ort.GraphOptimizationLevel) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = setting.threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", setting.folder)
    options.add_session_config_entry("session.set_denormal_as_zero", str(int(setting.flush)))
    options.add_session_config_entry("session.disable_prepacking", str(int(not setting.prepacks)))
    return options


def _create(
    model: onnx.ModelProto,
    options: ort.SessionOptions,
    providers: Sequence[str] = _PROVIDERS,
    without: Sequence[str] = (),
) -> ort.InferenceSession:
    """Load a model with some optimisers left out."""
    return ort.InferenceSession(
        model.SerializeToString(),
        sess_options=options,
        providers=list(providers),
        disabled_optimizers=list(without),
    )


def write_optimised(model: onnx.ModelProto, setting: Setting, path: Path) -> None:
    """Have ONNX Runtime write the model after its default optimisations, large tensors in a file beside it."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    clear_repeated_names(changed.graph)
    options = _options(setting, _DEFAULT)
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", f"{path.stem}.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    _create(changed, options, without=_LAYOUTS)


class Session:
    """An ONNX Runtime session on the CPU; ``expose`` names further tensors that `run` returns.

    Attributes:
        types: ONNX Runtime's name of each output's type, by name.
    """

    def __init__(
        self, model: onnx.ModelProto, expose: Iterable[str], setting: Setting, *, optimise: bool = False
    ) -> None:
        self._setting = setting
        self._level = _DEFAULT if optimise else _OFF
        given = {value.name for value in model.graph.output}
        names = list(dict.fromkeys(name for name in expose if name and name not in given))
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        clear_repeated_names(changed.graph)
        changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        self._session = self._create(changed)
        types = self.types = {value.name: value.type for value in self._session.get_outputs()}
        self._inputs = {value.name: value.type for value in self._session.get_inputs()}
        self._inputs |= {v.name: v.type for v in self._session.get_overridable_initializers()}
        self._fetch = {name: name for name, kind in types.items() if kind in _READABLE}
        narrow = [name for name, kind in types.items() if kind in _WIDENED]
        if narrow:  # NumPy has no such types, so ONNX Runtime hands over a widened copy
            for name in narrow:
                wide = self._fetch[name] = f"{name}::widened"
                cast = onnx.helper.make_node("Cast", [name], [wide], to=onnx.TensorProto.FLOAT)
                changed.graph.node.append(cast)
                changed.graph.output.add(name=wide)
            self._session = self._create(changed)

    def _create(self, model: onnx.ModelProto) -> ort.InferenceSession:
        return _create(model, _options(self._setting, self._level), self._setting.providers)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Value]:
        """Return every readable output by name; bfloat16 and floats of 8 bits come as float32."""
        fed = {name: self._feed(name, array) for name, array in feeds.items()}
        values = self._session.run(list(self._fetch.values()), fed) if self._fetch else []
        return {name: v for name, v in zip(self._fetch, values, strict=True) if v is not None}

    def _feed(self, name: str, array: np.ndarray) -> Any:
        if self._inputs.get(name) != "tensor(bfloat16)" or array.dtype.itemsize != 2:
            return array
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), onnx.TensorProto.BFLOAT16)
