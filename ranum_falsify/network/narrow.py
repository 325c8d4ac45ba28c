"""Integers of 4 and of 2 bits, and floats of 8 bits and fewer, read as wider numbers with the same values.

Weights are stored so; nothing computes with them, except the operators that convert from and to them.  In place of one
that quantises to integers of fewer than 8 bits stand one that quantises to 8 bits and a Clip to the range of the narrow
type: both round, add the zero point and saturate, and saturating twice is saturating once.  A Cast stays as it is: its
row knows the narrow types.  A CastLike becomes a Cast, because its example no longer has the narrow type.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ranum_falsify.errors import UnsupportedTypeError
from ranum_falsify.network.model_file import opset_of
from ranum_falsify.network.naming import UniqueNames
from ranum_falsify.network.nesting import attribute_graphs, name_of, names_in


@dataclass(frozen=True)
class NarrowInteger:
    """An integer type.

    Attributes:
        carrier: Number of the element type that stands for it.
        least: Its least value.
        greatest: Its greatest value.
    """

    carrier: int
    least: int
    greatest: int


@dataclass(frozen=True, kw_only=True)
class NarrowFloat:
    """A floating type: https://onnx.ai/onnx/technical/float8.html and https://onnx.ai/onnx/technical/float4.html.

    Attributes:
        digits: Binary digits of a number after the first one.
        exponent: That of the smallest normal number.
        greatest: The greatest number.
        beyond: What becomes of larger numbers where they do not saturate; NaN, or infinity if there is one.
        has_nan: Whether it has NaN; if not, all numbers saturate.
        has_negative_zero: Whether zero has a sign.
        is_power: Whether it holds powers of two alone, all of them positive.
        carrier: Number of the element type that stands for it.
    """

    digits: int
    exponent: int
    greatest: float
    beyond: float = math.nan
    has_nan: bool = True
    has_negative_zero: bool = True
    is_power: bool = False
    carrier: int = TensorProto.FLOAT


NARROW_FLOATS: Mapping[int, NarrowFloat] = MappingProxyType(
    {
        TensorProto.FLOAT8E4M3FN: NarrowFloat(digits=3, exponent=-6, greatest=448.0),
        TensorProto.FLOAT8E4M3FNUZ: NarrowFloat(digits=3, exponent=-7, greatest=240.0, has_negative_zero=False),
        TensorProto.FLOAT8E5M2: NarrowFloat(digits=2, exponent=-14, greatest=57344.0, beyond=math.inf),
        TensorProto.FLOAT8E5M2FNUZ: NarrowFloat(digits=2, exponent=-15, greatest=57344.0, has_negative_zero=False),
        TensorProto.FLOAT8E8M0: NarrowFloat(digits=0, exponent=-127, greatest=2.0**127, is_power=True),
        TensorProto.FLOAT6E2M3: NarrowFloat(digits=3, exponent=0, greatest=7.5, has_nan=False),
        TensorProto.FLOAT6E3M2: NarrowFloat(digits=2, exponent=-2, greatest=28.0, has_nan=False),
        TensorProto.FLOAT4E2M1: NarrowFloat(digits=1, exponent=0, greatest=6.0, has_nan=False),
    }
)
"""Floating types of 8 bits and fewer, by number."""

NARROW: Mapping[int, NarrowInteger | NarrowFloat] = MappingProxyType(
    {
        TensorProto.INT4: NarrowInteger(TensorProto.INT8, -8, 7),
        TensorProto.UINT4: NarrowInteger(TensorProto.UINT8, 0, 15),
        TensorProto.INT2: NarrowInteger(TensorProto.INT8, -2, 1),
        TensorProto.UINT2: NarrowInteger(TensorProto.UINT8, 0, 3),
        **NARROW_FLOATS,
    }
)
"""All types that a wider one stands for, by number."""


def widen_numbers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without numbers of narrow types, but for what its nodes say; the same one if it has none.

    Its inputs stay as they are.

    Raises:
        UnsupportedTypeError: A node makes such numbers otherwise than by quantisation or a Cast.
    """
    if not any(_is_narrow(graph) for graph in _list_graphs(model.graph)):
        return model
    widened = onnx.ModelProto()
    widened.CopyFrom(model)
    widener = _Widener(widened, _infer(model))
    for graph in _list_graphs(widened.graph):
        widener.widen(graph)
    return widened


def _list_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and all of its subgraphs."""
    yield graph
    for node in graph.node:
        for inner in attribute_graphs(node):
            yield from _list_graphs(inner)


def _is_narrow(graph: onnx.GraphProto) -> bool:
    if any(tensor.data_type in NARROW for tensor in graph.initializer):
        return True
    if any(info.type.tensor_type.elem_type in NARROW for info in graph.input):
        return True
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    return any(a.t.data_type in NARROW or (a.name in _TYPE_NAMES and a.i in NARROW) for a in attributes)


_TYPE_NAMES = ("to", "dtype", "output_dtype")
"""Attributes whose number is an element type."""


_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")
"""Operators that have twins of the same meaning in ONNX Runtime's domain."""

_HAS_OUTPUT_TYPE = 21
"""Opset from which on an attribute of QuantizeLinear says what it makes."""


@dataclass(frozen=True)
class _Known:
    """What is known of tensors before a model is read.

    Attributes:
        types: Their element types, by name.
        ranks: Their numbers of dimensions, by name.
        zeros: Names of the constants that are 0 everywhere.
    """

    types: Mapping[str, int]
    ranks: Mapping[str, int]
    zeros: frozenset[str]


def _infer(model: onnx.ModelProto) -> _Known:
    try:
        whole = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        whole = model
    types, ranks, constants = dict[str, int](), dict[str, int](), list[tuple[str, onnx.TensorProto]]()
    for graph in _list_graphs(whole.graph):
        for info in (*graph.input, *graph.value_info, *graph.output):
            kind = info.type.tensor_type
            types[info.name] = kind.elem_type
            if kind.HasField("shape"):
                ranks[info.name] = len(kind.shape.dim)
        stored = [(node.output[0], a.t) for node in graph.node for a in node.attribute if a.name == "value"]
        constants += [(tensor.name, tensor) for tensor in graph.initializer] + stored
    types |= {name: tensor.data_type for name, tensor in constants}
    ranks |= {name: len(tensor.dims) for name, tensor in constants}
    zeros = (name for name, t in constants if t.data_type in NARROW_FLOATS and not numpy_helper.to_array(t).any())
    return _Known(types, ranks, frozenset(zeros))


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in NARROW:
        dtype = helper.tensor_dtype_to_np_dtype(NARROW[tensor.data_type].carrier)
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))


def _make_constant(name: str, value: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))


def _make_cast(
    node: onnx.NodeProto, source: str, target: int, attributes: Sequence[onnx.AttributeProto]
) -> onnx.NodeProto:
    """Return a Cast in place of a node, with some of its attributes."""
    cast = helper.make_node("Cast", [source], list(node.output), node.name, to=target)
    cast.attribute.extend(attributes)
    return cast


class _Widener:
    """Replaces narrow types in the graphs of a model.

    Args:
        model: The model.
        known: What is known of its tensors.
    """

    def __init__(self, model: onnx.ModelProto, known: _Known) -> None:
        self._known, self._opset = known, opset_of(model)
        self._names = UniqueNames(names_in(model.graph))

    def widen(self, graph: onnx.GraphProto) -> None:
        """Replace narrow types in a graph, not in its subgraphs."""
        for tensor in graph.initializer:
            _widen_tensor(tensor)
        for info in (*graph.output, *graph.value_info):
            kind = info.type.tensor_type
            if kind.elem_type in NARROW:
                kind.elem_type = NARROW[kind.elem_type].carrier
        nodes = [new for node in graph.node for new in self._widen_node(node)]
        del graph.node[:]
        graph.node.extend(nodes)

    def _widen_node(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
        target = self._find_target(node)
        if node.op_type == "DequantizeLinear" and self._known.types.get(node.input[0]) in NARROW_FLOATS:
            self._drop_zero_point(node)
        if target not in NARROW or node.op_type == "Cast":
            return [node]
        if node.op_type == "CastLike":
            kept = [attribute for attribute in node.attribute if attribute.name in ("saturate", "round_mode")]
            return [_make_cast(node, node.input[0], target, kept)]
        if node.op_type != "QuantizeLinear":
            raise UnsupportedTypeError(
                f"node {name_of(node)!r} ({node.op_type}): only Cast and QuantizeLinear are supported to make numbers "
                f"of type {onnx.TensorProto.DataType.Name(target)}"
            )
        kind = NARROW[target]
        return self._quantise(node, kind) if isinstance(kind, NarrowInteger) else self._quantise_to_float(node, target)

    def _quantise(self, node: onnx.NodeProto, kind: NarrowInteger) -> list[onnx.NodeProto]:
        """Return a quantisation to 8 bits, and what saturates its results."""
        for attribute in node.attribute:
            if attribute.name == "output_dtype":
                attribute.i = kind.carrier
        dtype = helper.tensor_dtype_to_np_dtype(kind.carrier)
        written = node.output[0]
        node.output[0] = self._names.take(f"{written}_wide")
        ends = [self._names.take(f"{written}_{end}") for end in ("min", "max")]
        limits = [_make_constant(x, np.array(v, dtype)) for x, v in zip(ends, (kind.least, kind.greatest), strict=True)]
        clip = helper.make_node("Clip", [node.output[0], *ends], [written], name=f"{name_of(node)}_saturate")
        return [node, *limits, clip]

    def _quantise_to_float(self, node: onnx.NodeProto, target: int) -> list[onnx.NodeProto]:
        """Return a quantisation whose attribute says what it makes; before there was one, a division and a Cast."""
        self._drop_zero_point(node)
        if self._opset >= _HAS_OUTPUT_TYPE:
            kept = [attribute for attribute in node.attribute if attribute.name != "output_dtype"]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute("output_dtype", target)])
            return [node]
        given = {attribute.name: attribute for attribute in node.attribute}
        share, sizes, scale = (self._names.take(f"{node.output[0]}_{part}") for part in ("share", "sizes", "scale"))
        shape = self._find_scale_shape(node, given["axis"].i if "axis" in given else 1)
        return [
            _make_constant(sizes, np.array(shape, np.int64)),
            helper.make_node("Reshape", [node.input[1], sizes], [scale], name=scale),
            helper.make_node("Div", [node.input[0], scale], [share], name=share),
            _make_cast(node, share, target, [given["saturate"]] if "saturate" in given else []),
        ]

    def _find_scale_shape(self, node: onnx.NodeProto, axis: int) -> list[int]:
        """Return the sizes with which scales broadcast to what they scale."""
        ranks = [self._known.ranks.get(name) for name in node.input[:2]]
        if ranks[1] == 0:
            return []
        if ranks[0] is None:
            title = f"node {name_of(node)!r} ({node.op_type})"
            raise UnsupportedTypeError(f"{title}: its rank is not known; infer the shapes")
        return [-1, *[1] * (ranks[0] - 1 - axis % ranks[0])] if ranks[0] else []

    def _drop_zero_point(self, node: onnx.NodeProto) -> None:
        """Take the zero point off a node that converts from or to floats: it must be 0."""
        if any(name and name not in self._known.zeros for name in node.input[2:]):
            raise UnsupportedTypeError(
                f"node {name_of(node)!r} ({node.op_type}): its zero point is not the constant 0, which is the only one "
                "that floats have"
            )
        del node.input[2:]

    def _find_target(self, node: onnx.NodeProto) -> int:
        """Return the type to which a node rounds or converts numbers, 0 for a node that does not.

        Raises:
            UnsupportedTypeError: It is not known, in a model with narrow types.
        """
        types = self._known.types
        if (node.domain not in ("", "ai.onnx") and node.op_type not in _CONVERSIONS) or node.op_type == "BitCast":
            if read := [name for name in node.input if types.get(name) in NARROW]:
                raise UnsupportedTypeError(
                    f"node {name_of(node)!r} ({node.op_type}): reads {read[0]!r}, whose element type is "
                    f"{onnx.TensorProto.DataType.Name(types[read[0]])}; use DequantizeLinear or Cast before it"
                )
            if node.op_type != "BitCast":
                return 0
        given = {attribute.name: attribute.i for attribute in node.attribute}
        asked = next((given[name] for name in _TYPE_NAMES if given.get(name)), 0)
        place = {"QuantizeLinear": 2, "CastLike": 1}.get(node.op_type)
        if asked or place is None or len(node.input) <= place or not node.input[place]:
            return asked if node.op_type != "DequantizeLinear" else 0
        if not types.get(node.input[place]):
            title = f"node {name_of(node)!r} ({node.op_type})"
            raise UnsupportedTypeError(f"{title}: its type is not known; infer the shapes")
        return types[node.input[place]]
