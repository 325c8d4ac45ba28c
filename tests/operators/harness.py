"""Case tables of operators, and the checks that run over them.

A file `tests/operators/cases/<family>.py` holds `CASES`, a list of :class:`OperatorCase`, and `BORDERS`, a list of
:class:`BorderCase`; `test_operators.py` collects both.  ONNX Runtime with optimisations off is the oracle, and
`onnx.reference` where a case says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from ranum_falsify.network import Graph, OperatorSpec, find, read, spec_of
from ranum_falsify.network.evaluate import apply
from ranum_falsify.network.registry import schema_of
from ranum_falsify.network.tensors import to_numpy, to_torch
from ranum_falsify.validity import Constraint, Finite
from tests.network.building import session

__all__ = [
    "BorderCase",
    "OperatorCase",
    "Spread",
    "check_border",
    "check_gradient",
    "check_values",
    "check_vmap",
    "constants_of",
    "model_of",
    "run_reference",
    "run_runtime",
]

BATCH = 3
FEW = 12  # elements of all operands up to which every derivative is checked
_TOLERANCES: Mapping[np.dtype, tuple[float, float]] = {
    np.dtype(np.float64): (1e-9, 1e-9),
    np.dtype(np.float32): (1e-5, 1e-5),
    np.dtype(np.float16): (4e-3, 4e-3),
    np.dtype(ml_dtypes.bfloat16): (3e-2, 3e-2),
}


@dataclass(frozen=True)
class Spread:
    """An operand drawn uniformly: floats in [low, high), integers in low..high, booleans fair."""

    shape: tuple[int, ...]
    dtype: Any = np.float32
    low: float = -2.0
    high: float = 2.0

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """Return one array."""
        dtype = np.dtype(self.dtype)
        if dtype == np.bool_:
            return generator.random(self.shape) < 0.5
        if np.issubdtype(dtype, np.integer):
            return generator.integers(int(self.low), int(self.high) + 1, self.shape).astype(dtype)
        return np.asarray(generator.uniform(self.low, self.high, self.shape)).astype(dtype)


Operand = Spread | np.ndarray | None


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorCase:
    """One operator with its operands and attributes.

    Attributes:
        op_type: ONNX name.
        inputs: Operands in ONNX order: drawn, fixed, or None where left out.
        attributes: ONNX attributes.
        opset: Opset of the model.
        name: What the case is about, for the test's name.
        constants: Positions of inputs that are initializers; the row's static operands where not given.
        outputs: Number of outputs, or their names ("" for one left out).
        tolerance: Relative and absolute, of integers absolute alone; by element type where not given, integers exact.
        gradient: Whether gradients are checked, in float64.
        vmap: Whether evaluation under `torch.func.vmap` is checked.
        oracle: Who says what is right.
        domain: ONNX domain.
        own_opset: Opset of that domain, where it is not the default one.
    """

    op_type: str
    inputs: Sequence[Operand]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21
    name: str = ""
    constants: frozenset[int] | None = None
    outputs: int | tuple[str, ...] = 1
    tolerance: tuple[float, float] | None = None
    gradient: bool = True
    vmap: bool = True
    oracle: Literal["onnxruntime", "reference"] = "onnxruntime"
    domain: str = ""
    own_opset: int = 1

    @property
    def id(self) -> str:
        """Name of the case's tests."""
        return "-".join(str(part) for part in (self.op_type, self.name, self.opset) if part)

    @property
    def domain_opset(self) -> int:
        """Opset of the operator's domain."""
        return self.own_opset if self.domain else self.opset

    @property
    def spec(self) -> OperatorSpec:
        """The operator's row."""
        spec = find(self.op_type, self.domain)
        assert spec is not None, f"{self.op_type} has no row"
        return spec

    def arrays(self, seed: int = 0) -> list[np.ndarray | None]:
        """Return the operands; fixed ones are the same for every seed."""
        generator = np.random.default_rng(seed)
        return [o.draw(generator) if isinstance(o, Spread) else o for o in self.inputs]


@dataclass(frozen=True, kw_only=True, eq=False)
class BorderCase:
    """Operands on, just inside and just outside the border of validity.

    Attributes:
        op_type: ONNX name.
        inputs: Operands in ONNX order, None where left out.
        bad: Where ONNX Runtime's output is invalid: one flag for all of it, or one per element of the first output.
        attributes: ONNX attributes.
        opset: Opset of the model.
        name: What the case is about.
        constants: As in :class:`OperatorCase`.
        outputs: As in :class:`OperatorCase`.
        oracle: Who says what is invalid.
        domain: ONNX domain.
        own_opset: As in :class:`OperatorCase`.
    """

    op_type: str
    inputs: Sequence[np.ndarray | None]
    bad: bool | Sequence[Any] | np.ndarray
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21
    name: str = ""
    constants: frozenset[int] | None = None
    outputs: int | tuple[str, ...] = 1
    oracle: Literal["onnxruntime", "reference"] = "onnxruntime"
    domain: str = ""
    own_opset: int = 1

    @property
    def id(self) -> str:
        """Name of the case's test."""
        return "-".join(str(part) for part in (self.op_type, self.name, self.opset) if part)

    @property
    def case(self) -> OperatorCase:
        """The same as a case of values."""
        names = ("op_type", "inputs", "attributes", "opset", "name", "constants", "outputs", "oracle", "domain")
        return OperatorCase(**{name: getattr(self, name) for name in (*names, "own_opset")})


# models ---------------------------------------------------------------------------------------------------------


def _output_names(case: OperatorCase) -> tuple[str, ...]:
    return tuple(f"y_{i}" for i in range(case.outputs)) if isinstance(case.outputs, int) else case.outputs


def constants_of(case: OperatorCase) -> frozenset[int]:
    """Return the positions of a case's inputs that are initializers."""
    if case.constants is not None:
        return case.constants
    schema = schema_of(case.op_type, case.domain, case.domain_opset)
    assert schema is not None
    named = [schema.inputs[min(i, len(schema.inputs) - 1)].name for i in range(len(case.inputs))]
    return frozenset(i for i, name in enumerate(named) if case.spec.field_of(name) in case.spec.static)


def model_of(case: OperatorCase, arrays: Sequence[np.ndarray | None]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the case as a model, and the values of its inputs by name."""
    names = ["" if array is None else f"x_{i}" for i, array in enumerate(arrays)]
    constants = constants_of(case)
    node = onnx.helper.make_node(
        case.op_type, names, list(_output_names(case)), name="node", domain=case.domain, **case.attributes
    )
    feeds, infos, initializers = {}, [], []
    for position, (name, array) in enumerate(zip(names, arrays, strict=True)):
        if array is None:
            continue
        if position in constants:
            initializers.append(onnx.numpy_helper.from_array(np.asarray(array), name))
            continue
        feeds[name] = np.asarray(array)
        kind = onnx.helper.np_dtype_to_tensor_dtype(feeds[name].dtype)
        infos.append(onnx.helper.make_tensor_value_info(name, kind, feeds[name].shape))
    # Outputs carry no type: ONNX Runtime and the reader infer it.
    outputs = [onnx.ValueInfoProto(name=name) for name in _output_names(case) if name]
    graph = onnx.helper.make_graph([node], "case", infos, outputs, initializer=initializers)
    opsets = [onnx.helper.make_opsetid("", case.opset)]
    if case.domain:
        opsets.append(onnx.helper.make_opsetid(case.domain, case.domain_opset))
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def run_runtime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run a model on ONNX Runtime without optimisations."""
    return list(session(model).run(None, dict(feeds)))


def run_reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run a model on the reference evaluator of ONNX."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, dict(feeds))]


def _oracle(case: OperatorCase, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return (run_reference if case.oracle == "reference" else run_runtime)(model, feeds)


def _as_tuple(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


# values and gradients ---------------------------------------------------------------------------------------------


def compare(ours: np.ndarray, theirs: np.ndarray, tolerance: tuple[float, float] | None = None) -> None:
    """Assert that two arrays have the same type, shape and, within the type's tolerance, values."""
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if ours.dtype.kind in "biu":
        steps = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
        assert steps.size == 0 or steps.max() <= (tolerance or (0, 0))[1], f"{ours} is not {theirs}"
        return
    rtol, atol = tolerance or _TOLERANCES.get(ours.dtype, (1e-5, 1e-5))
    if ours.dtype.kind != "c":
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)


def check_values(case: OperatorCase) -> None:
    """Assert that the row agrees with the oracle in type, shape and values."""
    model, feeds = model_of(case, case.arrays())
    theirs = _oracle(case, model, feeds)
    graph = read(model)
    ours = _as_tuple(graph(*feeds.values(), squeeze=False))
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        if _is_random(graph):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        else:
            compare(mine, other, case.tolerance)


def _is_random(graph: Graph) -> bool:
    return any(spec_of(op).is_random(op) for op in graph.nodes)


def check_vmap(case: OperatorCase) -> None:
    """Assert that a batch under `torch.func.vmap` gives what a loop over its samples gives, gradients included."""
    batch = [model_of(case, case.arrays(seed))[1] for seed in range(BATCH)]
    if not batch[0]:
        return
    graph = read(model_of(case, case.arrays())[0])
    stacked = [torch.stack([to_torch(feeds[name]) for feeds in batch]) for name in batch[0]]
    together = _samples(graph, stacked, batched=True)
    if _is_random(graph):
        return
    for ours, theirs in zip(together, _samples(graph, stacked, batched=False), strict=True):
        compare(to_numpy(ours), to_numpy(theirs), case.tolerance)


def _samples(graph: Graph, stacked: Sequence[Tensor], *, batched: bool) -> list[Tensor]:
    """Return outputs and input gradients for a batch of samples, at once or one by one."""
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in stacked]
    wanted = [x for x in leaves if x.requires_grad]
    if batched:
        with warnings.catch_warnings():
            # PyTorch warns where it runs samples one by one, which the search cannot afford.
            warnings.filterwarnings("error" if wanted else "ignore", "There is a performance drop")
            outputs = torch.func.vmap(lambda *xs: graph.evaluate(xs), randomness="different")(*leaves)
    else:
        rows = [graph.evaluate([x[i] for x in leaves]) for i in range(len(leaves[0]))]
        outputs = tuple(torch.stack(column) for column in zip(*rows, strict=True))
    smooth = [y for y in outputs if y.requires_grad]
    if not smooth or not wanted:
        return [y.detach() for y in outputs]
    total = torch.stack([(y * torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape)).sum().float() for y in smooth])
    gradients = torch.autograd.grad(total.sum(), wanted, allow_unused=True)
    return [y.detach() for y in outputs] + [g for g in gradients if g is not None]


def check_gradient(case: OperatorCase) -> None:
    """Assert that the row's derivative in float64 is that of finite differences."""
    arrays = [a.astype(np.float64) if a is not None and _is_float(a) else a for a in case.arrays()]
    model, feeds = model_of(case, arrays)
    graph = read(model)
    tensors = [to_torch(x).clone() for x in feeds.values()]
    for x in tensors:
        x.requires_grad_(x.is_floating_point())
    assert any(x.requires_grad for x in tensors), "no floating input; the case needs gradient=False"

    def smooth(*xs: Tensor) -> tuple[Tensor, ...]:
        # Statistics that the standard gives in float32 are too coarse for finite differences.
        return tuple(y for y in graph.evaluate(xs) if y.dtype is torch.float64 and y.requires_grad)

    torch.default_generator.manual_seed(0)  # torch.manual_seed takes a millisecond, for other devices
    few = sum(x.numel() for x in tensors) <= FEW
    # Above that, along random directions: the full Jacobian of a small convolution costs half a minute.
    assert torch.autograd.gradcheck(smooth, tensors, eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=not few)


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


# validity ---------------------------------------------------------------------------------------------------------


def check_border(border: BorderCase) -> None:
    """Assert that the row's constraints, the oracle and the case agree on what is invalid."""
    case = border.case
    arrays = case.arrays()
    expected = np.asarray(border.bad, dtype=bool)
    observed = _observed_bad(case, arrays)
    shape = observed.shape if expected.ndim else ()
    theirs = observed if expected.ndim else observed.any()
    np.testing.assert_array_equal(theirs, expected, err_msg="the case does not say what the oracle does")
    ours = _violated(case, arrays)
    flags = np.zeros(shape, dtype=bool)
    for constraint, violated in ours.items():
        if constraint.refuses:
            assert not violated.any(), f"{constraint.describe()}: the oracle runs it"
            continue
        if shape and np.broadcast_shapes(violated.shape, shape) != shape:
            raise AssertionError(f"{constraint.describe()}: margin of shape {violated.shape}, output of {shape}")
        flags = flags | (violated if shape else violated.any())
    np.testing.assert_array_equal(flags, expected, err_msg="the constraints disagree with the oracle")


def _observed_bad(case: OperatorCase, arrays: Sequence[np.ndarray | None]) -> np.ndarray:
    model, feeds = model_of(case, arrays)
    try:
        outputs = _oracle(case, model, feeds)
    except Exception as error:
        # ONNX Runtime refuses to divide integers by zero.
        assert "zero" in str(error).lower(), error
        return np.ones((), dtype=bool)
    floats = [np.asarray(a, dtype=np.float64) for a in arrays if a is not None and _is_float(np.asarray(a))]
    no_nan = all(not np.isnan(a).any() for a in floats)
    finite = all(np.isfinite(a).all() for a in floats)
    flags = [np.zeros(y.shape, dtype=bool) for y in outputs]
    for flag, y in zip(flags, outputs, strict=True):
        if _is_float(y):
            y = y.astype(np.float64)
            flag |= (np.isnan(y) & no_nan) | (np.isinf(y) & finite)
    rest = any(flag.any() for flag in flags[1:])
    return flags[0] | rest


def _violated(case: OperatorCase, arrays: Sequence[np.ndarray | None]) -> dict[Constraint, np.ndarray]:
    """Return where each of the row's constraints is violated; the generic one too, where the row wants it."""
    spec = case.spec
    model, feeds = model_of(case, arrays)
    (op,) = {id(node): node for node in read(model).nodes if type(node) is spec.node}.values()
    values: list[Any] = [
        to_torch(v) if isinstance(v, np.ndarray) else None if v is None else to_torch(feeds[v.name])
        for v in spec.operands_of(op)
    ]
    with torch.no_grad():
        outputs = apply(spec, op, values)
    operands = {name: value for name, value in spec.name_values(values).items() if value is not None}
    operands |= {f"output_{i}" if i else "output": y for i, y in enumerate(outputs)}
    generic = (Finite(),) if spec.overflow and outputs[0].is_floating_point() else ()
    return {c: c.is_violated(op, {n: to_numpy(t) for n, t in operands.items()}) for c in (*spec.valid, *generic)}
