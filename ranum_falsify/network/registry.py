"""The operator registry: one row per operator, declared with :func:`operator`.

The registry knows no operator.  The families in `ranum_falsify.operators` fill it at import.  Names of operands and
attributes, their order and their defaults come from the operator's ONNX schema (https://onnx.ai/onnx/operators/), or
from one that the row brings, for operators that ONNX does not define.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol

import onnx
from dnnv.nn import Operation
from torch import Tensor

TorchFunction = Callable[..., Tensor | tuple[Tensor, ...]]
"""`fn(op, *operands)`: operands in the order of the row, None where absent; static ones as NumPy arrays."""


class RowConstraint(Protocol):
    """A condition on operands as rows hold it; `ranum_falsify.validity`, a later layer, has the real ones."""

    @property
    def reason(self) -> str:
        """Why a violation is invalid."""

    @property
    def refuses(self) -> bool:
        """Whether ONNX Runtime ends the run where it is violated."""

    @property
    def decided_by(self) -> tuple[str, ...]:
        """Operands that alone decide it, besides shapes; empty where all operands may."""

    def describe(self) -> str:
        """Return the condition as text for people."""

    def margin(self, op: Operation, operands: Mapping[str, Tensor]) -> Tensor:
        """Return how far tensors are from violating it, below 0 where they do."""

    def holds(self, op: Operation, operands: Mapping[str, Any]) -> bool:
        """Tell whether no tensors within the bounds violate the condition."""


IntervalRule = Callable[..., Any]
"""`rule(site, *operands)` on intervals; `ranum_falsify.domain`, a later layer, has the real type."""

BatchRule = Callable[..., TorchFunction | None] | Literal["vmap"]
"""`rule(op, operands, output_shape)`; `ranum_falsify.operators.support.batching`, a later layer, has the real type."""

_MISSING: Any = object()
"""Stands for an argument that a row must give and did not."""

_ROWS: dict[tuple[str, str], OperatorSpec] = {}
_BY_NODE: dict[type[Operation], OperatorSpec] = {}
_OWN_SCHEMAS: dict[tuple[str, str], onnx.defs.OpSchema] = {}
"""Schemas that rows bring.  They are not registered with `onnx`, where all code of the process would see them."""


@dataclass(frozen=True, kw_only=True)
class Draws:
    """How an operator draws numbers at random.

    Attributes:
        operand: Nodes draw only if they have this operand and it is not false; None if all nodes draw.
        where: Tells whether a node with that operand draws.
        span: Returns the smallest number that a node draws, and a number that its draws stay below; None where the
            draws are not numbers of their own.
        is_cut: Whether some draws, rare ones, lie outside the span.
        is_threshold: Whether the result says if the draw is below the operand; otherwise the result is the draw.
        example: Returns one draw in place of all, which takes no time; None if nothing does.
    """

    operand: str | None = None
    where: Callable[[Operation], bool] = lambda op: True
    span: Callable[[Operation], tuple[float, float]] | None = None
    is_cut: bool = False
    is_threshold: bool = False
    example: TorchFunction | None = None


@dataclass(frozen=True, kw_only=True)
class ChosenSize:
    """A size of an operator's only output that values of its operands choose, while the others are fixed.

    Attributes:
        axis: Returns the axis of a node's output that has it.
        limits: Returns the least and the greatest that it may be, of the node and bounds of its operands.
    """

    axis: Callable[[Operation], int]
    limits: Callable[..., tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class OperatorSpec:
    """All that is known about one operator.

    Attributes:
        op_type: ONNX name.
        domain: ONNX domain, "" for the default one.
        node: Class of its nodes in the graph.
        torch: Evaluates it on tensors.
        interval: Bounds it on intervals.
        linear: How it depends linearly on its operands: a form of `ranum_falsify.domain`, a later layer, or a function
            of the node that returns one; None where its interval says everything.
        batch: Which function runs it on a batch along dimension 0, a rule of
            `ranum_falsify.operators.support.batching`; or `vmap` where only `torch.func.vmap` keeps samples apart.
        elementwise: Whether each element of an output depends only on the elements of the operands at the same place,
            after broadcasting.
        operands: Field names of its inputs, in the order of the newest ONNX schema.
        variadic: Whether the last operand takes the rest of the inputs, as a tuple.
        static: Operands that the function reads as NumPy arrays: shapes, axes, counts.
        renamed: Field names of inputs and attributes that differ from the lower-cased ONNX name.
        valid: Conditions on the operands that keep the output valid.
        gradient_valid: Further conditions that keep the derivative finite.
        kernel: Entries of the measured table (`ranum_falsify.domain.kernels`) that its bounds rest on, except those in
            the rows of its parts.
        random: How it draws random numbers, so that two runs on equal operands differ; None if it draws none.
        hides_nan: Whether ONNX Runtime may return numbers where the operator itself returns NaN, given none.
        overflow: Whether finite operands can give an infinite output.
        divides: Whether it divides the first operand by the second, integers included; where integers have no quotient,
            ONNX Runtime ends the run.
        shape_only: Whether the output depends on the operands' shapes alone (`Shape`, `Size`).
        dynamic_shape: Whether the shape of the output depends on values of operands.
        chosen: The one size of the output that does, where its rule bounds outputs of any such size; else None.
        thresholds: Returns the numbers at which a node jumps, by the column of its first operand.
    """

    op_type: str
    domain: str
    node: type[Operation]
    torch: TorchFunction
    interval: IntervalRule
    linear: Any
    operands: tuple[str, ...]
    variadic: bool
    static: frozenset[str]
    renamed: Mapping[str, str]
    valid: tuple[RowConstraint, ...]
    batch: BatchRule
    elementwise: bool
    kernel: tuple[str, ...]
    random: Draws | None
    hides_nan: bool
    gradient_valid: tuple[RowConstraint, ...] = ()
    overflow: bool = True
    divides: bool = False
    shape_only: bool = False
    dynamic_shape: bool = False
    chosen: ChosenSize | None = None
    thresholds: Callable[[Any], Mapping[int, Sequence[float]]] | None = None
    attributes: tuple[str, ...] = field(default=())

    def field_of(self, onnx_name: str) -> str:
        """Return the node's field for an ONNX input or attribute name."""
        return self.renamed.get(onnx_name, onnx_name.lower())

    @property
    def originates_nonfinite(self) -> bool:
        """Whether it can be the first to write NaN or infinity; if not, it hands on those that it reads."""
        return self.overflow or any(not condition.refuses for condition in self.valid)

    def is_conditioned(self, op: Operation) -> bool:
        """Tell whether a node may fail: compute something that is not valid, or be refused by ONNX Runtime."""
        return self.originates_nonfinite or bool(self.stated(op))

    def stated(self, op: Operation) -> tuple[RowConstraint, ...]:
        """Return the conditions that a node may break; what stored operands decide was tried as the model was read."""
        if not any(condition.decided_by for condition in self.valid):
            return self.valid
        computed = {name for name in self.operands if isinstance(getattr(op, name), Operation)}
        return tuple(c for c in self.valid if not c.decided_by or computed.intersection(c.decided_by))

    def is_random(self, op: Operation) -> bool:
        """Tell whether two runs of a node on equal operands differ."""
        return self.random is not None and self.random.where(op)

    def operands_of(self, op: Operation) -> tuple[Any, ...]:
        """Return the operands of a node in order, a variadic one spread out; None where absent."""
        values = [getattr(op, name) for name in self.operands]
        if self.variadic and values[-1] is not None:
            return (*values[:-1], *values[-1])
        return tuple(values)

    def has_fixed_shape(self, constant: Sequence[bool | None]) -> bool:
        """Tell whether operands of fixed shapes give an output whose shape is the same for every input.

        Args:
            constant: For each operand, whether no input reaches it; None where absent.
        """
        computed = {name for name, known in zip(self.operands, constant, strict=False) if known is False}
        return not self.dynamic_shape and self.static.isdisjoint(computed)

    def name_values(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return values, given in operand order, by operand name (`x_0`, `x_1`, ... for a variadic operand)."""
        if not self.variadic:
            return dict(zip(self.operands, values, strict=False))
        fixed, rest = self.operands[:-1], self.operands[-1]
        head = dict(zip(fixed, values, strict=False))
        return head | {f"{rest}_{i}": value for i, value in enumerate(values[len(fixed) :])}


def schema_of(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    """Return the schema in force at an opset of a domain, ONNX's or the row's own; None where there is none."""
    known = _onnx_schema(op_type, domain, opset)
    own = _OWN_SCHEMAS.get((domain, op_type))
    return own if known is None and own is not None and own.since_version <= opset else known


@cache
def _onnx_schema(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def opsets_of(domain: str) -> tuple[int, int]:
    """Return the oldest and the newest opset of a domain; for the default one as the `onnx` package has it."""
    if domain == "":
        return 1, onnx.defs.onnx_opset_version()
    versions = [s.since_version for (_, where), found in _histories().items() if where == domain for s in found]
    versions += [schema.since_version for (where, _), schema in _OWN_SCHEMAS.items() if where == domain]
    return min(versions, default=1), max(versions, default=1)


@cache
def _histories() -> Mapping[tuple[str, str], tuple[onnx.defs.OpSchema, ...]]:
    """Return all versions of each operator's schema, oldest first; one pass, because onnx copies them all."""
    found: dict[tuple[str, str], list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.name, schema.domain), []).append(schema)
    return {key: tuple(sorted(schemas, key=lambda schema: schema.since_version)) for key, schemas in found.items()}


def _history(op_type: str, domain: str) -> tuple[onnx.defs.OpSchema, ...]:
    return _histories().get((op_type, domain), ())


def operator(
    *,
    torch: TorchFunction = _MISSING,
    interval: IntervalRule = _MISSING,
    linear: Any = _MISSING,
    valid: Sequence[RowConstraint] = _MISSING,
    batch: BatchRule = _MISSING,
    elementwise: bool = _MISSING,
    kernel: str | tuple[str, ...] | None = _MISSING,
    random: Draws | None = _MISSING,
    hides_nan: bool = _MISSING,
    gradient_valid: Sequence[RowConstraint] = (),
    static: Sequence[str] = (),
    operands: Sequence[str] | None = None,
    renamed: Mapping[str, str] | None = None,
    variadic: bool | None = None,
    overflow: bool = True,
    divides: bool = False,
    shape_only: bool = False,
    dynamic_shape: bool = False,
    chosen: ChosenSize | None = None,
    thresholds: Callable[[Any], Mapping[int, Sequence[float]]] | None = None,
    domain: str = "",
    schema: onnx.defs.OpSchema | None = None,
) -> Callable[[type[Operation]], type[Operation]]:
    """Declare a row: decorate a new subclass of `dnnv.nn.Operation`, or call on DNNV's own class.

    See :class:`OperatorSpec` for the arguments.  A row is complete: those from `torch` to `hides_nan` have no default;
    `ranum_falsify.operators.support.families` says what rows have in common.

    `operands` defaults to the lower-cased input names of the newest schema, or `x` for a single input.  An attribute
    of an older opset whose name is an operand fills that operand.
    The class has the operator's ONNX name.  An operator that ONNX does not define, or not at every opset at which
    runtimes write it, comes with its own `schema`; that names it and its domain, and the class may have another name.

    Raises:
        TypeError: The row is not complete.
        ValueError: ONNX has no such operator, it already has a row, a static or constrained name is not an operand, or
            an operand has the name of a property of DNNV's operations, which would hide it.
    """
    required = {
        "torch": torch,
        "interval": interval,
        "linear": linear,
        "valid": valid,
        "batch": batch,
        "elementwise": elementwise,
        "kernel": kernel,
        "random": random,
        "hides_nan": hides_nan,
    }
    if schema is not None:
        domain = schema.domain

    def register(node: type[Operation]) -> type[Operation]:
        op_type = node.__name__ if schema is None else schema.name
        if missing := [name for name, value in required.items() if value is _MISSING]:
            raise TypeError(f"operator {op_type}: its row does not say {', '.join(missing)}")
        if (domain, op_type) in _ROWS:
            raise ValueError(f"operator {op_type} has a row already")
        history = _history(op_type, domain) if schema is None else (schema, *_history(op_type, domain))
        if not history:
            raise ValueError(f"operator {op_type} is unknown to ONNX in domain {domain!r}")
        newest = history[-1]
        names = tuple(operands) if operands else _default_operands(newest)
        drawing = [random.operand] if random and random.operand else ()
        used: dict[str, Sequence[str]] = {"static": static, "random": drawing}
        _check_names(node, names, used, (*valid, *gradient_valid))
        renames = dict(renamed or {})
        if operands is None and names == ("x",):
            renames.setdefault(newest.inputs[0].name, "x")
        spec = OperatorSpec(
            **(required | {"valid": tuple(valid), "kernel": (kernel,) if isinstance(kernel, str) else kernel or ()}),
            op_type=op_type,
            domain=domain,
            node=node,
            operands=names,
            variadic=_is_variadic(newest) if variadic is None else variadic,
            static=frozenset(static),
            renamed=renames,
            gradient_valid=tuple(gradient_valid),
            overflow=overflow,
            divides=divides,
            shape_only=shape_only,
            dynamic_shape=dynamic_shape,
            chosen=chosen,
            thresholds=thresholds,
            attributes=tuple(sorted({name for schema in history for name in schema.attributes})),
        )
        if schema is not None:
            _OWN_SCHEMAS[domain, op_type] = schema
        _ROWS[domain, op_type] = spec
        _BY_NODE[node] = spec
        return node

    return register


def _check_names(
    node: type[Operation], names: Sequence[str], used: dict[str, Sequence[str]], constraints: Sequence[RowConstraint]
) -> None:
    if hidden := [name for name in names if hasattr(Operation, name)]:
        raise ValueError(f"operator {node.__name__}: operand {hidden[0]!r} is a member of Operation; pass operands=")
    # Conditions over several operands name none; a variadic operand's parts are `x_0`, `x_1`.
    constrained = {str(getattr(constraint, "operand", "output")) for constraint in constraints}
    used["constrained"] = [name for name in constrained if not name.startswith(("output", f"{names[-1]}_"))]
    for kind, said in used.items():
        if unknown := set(said).difference(names):
            raise ValueError(
                f"operator {node.__name__}: {kind} {sorted(unknown)} are not operands; the operands are {names}"
            )


def _is_variadic(schema: onnx.defs.OpSchema) -> bool:
    return bool(schema.inputs) and schema.inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic


def _default_operands(schema: onnx.defs.OpSchema) -> tuple[str, ...]:
    if len(schema.inputs) == 1 and not _is_variadic(schema):
        return ("x",)
    return tuple(parameter.name.lower() for parameter in schema.inputs)


def make_node(spec: OperatorSpec, name: str, fields: Mapping[str, Any]) -> Operation:
    """Return a node with the given fields.

    DNNV's constructors read opset-dependent defaults and assert on constants; the reader has done both already.
    """
    node = object.__new__(spec.node)
    Operation.__init__(node, name)
    node.__dict__.update(fields)
    return node


def admit(spec: OperatorSpec) -> None:
    """Have :func:`spec_of` know the nodes of an operator that is in no list, because it has no row."""
    _BY_NODE[spec.node] = spec


def find(op_type: str, domain: str) -> OperatorSpec | None:
    """Return the row of an ONNX operator, or None."""
    return _ROWS.get(("" if domain == "ai.onnx" else domain, op_type))


def spec_of(op: Operation) -> OperatorSpec:
    """Return the row of a node.

    Raises:
        KeyError: The node's class has no row (inputs and output selections have none).
    """
    return _BY_NODE[type(op)]


def row_of(op: Operation) -> OperatorSpec | None:
    """Return the row of a node; None for inputs and output selections."""
    return _BY_NODE.get(type(op))


def list_supported() -> tuple[OperatorSpec, ...]:
    """Return all rows, by name."""
    return tuple(_ROWS[key] for key in sorted(_ROWS, key=lambda key: (key[1].lower(), key[0])))
