"""Models whose weights may take any values within the ranges of their initial distributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from dnnv.nn.utils import TensorDetails

from ranum_falsify.model_builder import BoxedVariable, ModelBuilder, Tensor, copy_without

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

_REACH = 10.0
"""How far a weight may go that is constant at first."""

_DEVIATIONS = 4.0
"""Half the width of a normal distribution, in standard deviations."""


@dataclass(frozen=True)
class Initial:
    """A distribution of initial weights.

    Attributes:
        text: Its name and parameters.
        draw: Draws an array of a given shape.
        low: Smallest value of the weight, also in training.
        high: Largest value.
    """

    text: str
    draw: Draw
    low: float
    high: float


def constant(value: float) -> Initial:
    """Every element equal."""
    return Initial(f"{value:g}", lambda rng, shape: np.full(shape, value), value - _REACH, value + _REACH)


def zeros() -> Initial:
    """Every element 0."""
    return constant(0.0)


def values(numbers: Sequence[float]) -> Initial:
    """Return the given numbers, in the order of the elements."""
    low, high = _widen(min(numbers), max(numbers))
    return Initial("given", lambda rng, shape: np.reshape(np.asarray(numbers, dtype=np.float64), shape), low, high)


def uniform(least: float, greatest: float) -> Initial:
    """All numbers of a range with equal probability."""
    low, high = _widen(least, greatest)
    return Initial(
        f"uniform({least:.4g}, {greatest:.4g})", lambda rng, shape: rng.uniform(least, greatest, shape), low, high
    )


def normal(deviation: float) -> Initial:
    """A normal distribution around 0."""
    low, high = _widen(-_DEVIATIONS * deviation, _DEVIATIONS * deviation)
    return Initial(f"normal({deviation:g})", lambda rng, shape: rng.normal(0.0, deviation, shape), low, high)


def truncated_normal(deviation: float) -> Initial:
    """A normal distribution around 0, redrawn beyond two standard deviations, as in TensorFlow."""
    low, high = _widen(-2 * deviation, 2 * deviation)

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        drawn = rng.normal(0.0, 1.0, shape)
        while (beyond := np.abs(drawn) > 2).any():
            drawn[beyond] = rng.normal(0.0, 1.0, int(beyond.sum()))
        return deviation * drawn

    return Initial(f"truncated_normal({deviation:g})", draw, low, high)


def xavier(inputs: int, outputs: int) -> Initial:
    """The uniform distribution of Glorot and Bengio, AISTATS 2010."""
    bound = math.sqrt(6 / (inputs + outputs))
    return uniform(-bound, bound)


def torch_linear(inputs: int) -> Initial:
    """The distribution from which `torch.nn.Linear` draws weights and biases."""
    bound = 1 / math.sqrt(inputs)
    return uniform(-bound, bound)


def _widen(least: float, greatest: float) -> tuple[float, float]:
    width = greatest - least
    return least - width, greatest + width


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A model whose weights may take any values within their ranges.

    Attributes:
        model: The model, weights as initialised.
        inputs: Its inputs, in order.
        weights: The initializers that training changes.
        widened: The ranges of the program's data, for those inputs that range more widely.
        details: Shape and dtype of the tensors that its nodes write, as ONNX infers them.
    """

    model: onnx.ModelProto
    inputs: tuple[BoxedVariable, ...]
    weights: tuple[BoxedVariable, ...]
    widened: Mapping[str, tuple[float, float]]
    details: Mapping[str, TensorDetails] = field(default_factory=dict)


class ArchitectureBuilder(ModelBuilder):
    """Collects the nodes of one model, and the ranges of its weights.

    Args:
        name: Name of the graph.
        summary: One sentence, the model's `doc_string`.
        batch: Batch size, for architectures that leave it open.
        seed: Seed of the initial weights; None leaves them 0.
        documented: Whether inputs range over the program's data, also where they would range more widely.
    """

    def __init__(
        self, name: str, summary: str = "", *, batch: int = 1, seed: int | None = 0, documented: bool = False
    ) -> None:
        super().__init__(name, summary, producer="ranum-falsify zoo")
        self.batch = batch
        self._documented = documented
        self._widened: dict[str, tuple[float, float]] = {}
        self._rng = None if seed is None else np.random.Generator(np.random.PCG64(seed))
        self._weights: list[BoxedVariable] = []

    def wide_input(
        self,
        name: str,
        shape: Sequence[int],
        low: float,
        high: float,
        *,
        data: tuple[float, float],
        dtype: str = "float32",
    ) -> Tensor:
        """Declare an input that ranges more widely than the program's data, which lie in `data`."""
        if self._documented:
            return self.input(name, shape, *data, dtype=dtype)
        self._widened[name] = data
        return self.input(name, shape, low, high, dtype=dtype)

    def weight(self, name: str, shape: Sequence[int], initial: Initial) -> Tensor:
        """Add an initializer that training changes, within the range of its initial distribution."""
        drawn = np.zeros(shape, np.float32) if self._rng is None else initial.draw(self._rng, tuple(shape))
        array = drawn.astype(np.float32, copy=False)
        self._weights.append(
            BoxedVariable(name=name, shape=tuple(shape), dtype="float32", low=initial.low, high=initial.high)
        )
        return self.constant(array, name)

    def architecture(self) -> Architecture:
        """Return the checked model with the ranges of its inputs and weights.

        Raises:
            onnx.checker.ValidationError: The model is not valid ONNX.
            onnx.shape_inference.InferenceError: Shapes or types do not fit.
        """
        model = self.build()
        light = copy_without(model, {weight.name for weight in self._weights})
        light.graph.input.extend(weight.info for weight in self._weights)
        inferred = onnx.shape_inference.infer_shapes(light, check_type=True, strict_mode=True, data_prop=True)
        details = {info.name: _details_of(info.type.tensor_type) for info in inferred.graph.value_info}
        del inferred.graph.value_info[:]
        onnx.checker.check_model(inferred)
        del model.graph.output[:]
        model.graph.output.extend(inferred.graph.output)
        return Architecture(
            model=model,
            inputs=tuple(self.inputs),
            weights=tuple(self._weights),
            widened=self._widened,
            details={name: known for name, known in details.items() if known is not None},
        )


def _details_of(kind: onnx.TypeProto.Tensor) -> TensorDetails | None:
    """Return shape and dtype, None where a size is not inferred."""
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    if not kind.HasField("shape") or None in sizes:
        return None
    return TensorDetails(tuple(sizes), onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
