"""Rows: names from the schemas, renamed and variadic operands, and what a wrong row is told."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx
import pytest
from dnnv.nn import Operation
from dnnv.nn.operations import Input
from torch import Tensor

import ranum_falsify.network.registry as registry
from ranum_falsify.domain.rules.support.building import unknown
from ranum_falsify.network import OperatorSpec, find, list_supported, operator, spec_of
from ranum_falsify.network.fields import input_fields
from ranum_falsify.network.registry import make_node, opsets_of, schema_of


def first(op: Operation, *operands: Tensor) -> Tensor:
    return operands[0]


complete = partial(
    operator,
    torch=first,
    interval=unknown,
    linear=None,
    valid=(),
    batch="vmap",
    elementwise=False,
    kernel=None,
    random=None,
    hides_nan=False,
)


def row(op_type: str) -> OperatorSpec:
    spec = find(op_type, "")
    assert spec is not None
    return spec


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty registry for the time of a test."""
    monkeypatch.setattr(registry, "_ROWS", {})
    monkeypatch.setattr(registry, "_BY_NODE", {})
    monkeypatch.setattr(registry, "_OWN_SCHEMAS", {})
    yield


def node_class(name: str) -> type[Operation]:
    made: type[Operation] = type(Operation)(name, (Operation,), {})
    return made


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("part", complete.keywords)
def test_a_row_that_leaves_a_part_out_is_refused(part: str) -> None:
    others = {name: value for name, value in complete.keywords.items() if name != part}
    with pytest.raises(TypeError, match=f"operator Exp: its row does not say {part}"):
        operator(**others)(node_class("Exp"))
    assert list_supported() == ()


@pytest.mark.usefixtures("rows")
def test_a_row_takes_its_names_from_the_newest_schema() -> None:
    complete()(node_class("Gemm"))
    spec = row("Gemm")
    assert spec.operands == ("a", "b", "c")
    assert not spec.variadic
    assert set(spec.attributes) >= {"alpha", "beta", "transA", "transB"}
    assert spec.field_of("transA") == "transa"


@pytest.mark.usefixtures("rows")
def test_a_single_input_is_x_and_several_of_one_name_are_variadic() -> None:
    complete()(node_class("Exp"))
    complete()(node_class("Max"))
    assert row("Exp").operands == ("x",)
    assert row("Exp").field_of("input") == "x"
    assert row("Max").operands == ("data_0",)
    assert row("Max").variadic


@pytest.mark.usefixtures("rows")
def test_an_operand_that_dnnv_would_hide_is_refused() -> None:
    with pytest.raises(ValueError, match="operator Concat: operand 'inputs' is a member of Operation; pass operands="):
        complete()(node_class("Concat"))


@pytest.mark.usefixtures("rows")
def test_attributes_of_all_versions_are_known() -> None:
    complete(operands=("x", "split"), static=("split",))(node_class("Split"))
    assert set(row("Split").attributes) >= {"axis", "split", "num_outputs"}


@pytest.mark.usefixtures("rows")
def test_a_second_row_is_refused() -> None:
    complete()(node_class("Exp"))
    with pytest.raises(ValueError, match="operator Exp has a row already"):
        complete()(node_class("Exp"))


@pytest.mark.usefixtures("rows")
def test_a_static_name_that_is_no_operand_is_refused() -> None:
    with pytest.raises(ValueError, match=r"static \['axes'\] are not operands; the operands are \('x',\)"):
        complete(static=["axes"])(node_class("Exp"))
    assert list_supported() == ()


@pytest.mark.usefixtures("rows")
def test_an_operator_that_onnx_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="operator Expp is unknown to ONNX"):
        complete()(node_class("Expp"))


@pytest.mark.usefixtures("rows")
def test_a_constraint_on_a_name_that_is_no_operand_is_refused() -> None:
    class Bad:
        operand = "y"
        reason = "no reason"

        def describe(self) -> str:
            return "y > 0"

    for kind in ("valid", "gradient_valid"):
        with pytest.raises(ValueError, match=r"operator Exp: constrained \['y'\] are not operands"):
            complete(**{kind: [Bad()]})(node_class("Exp"))  # type: ignore[arg-type]


@pytest.mark.usefixtures("rows")
def test_operands_of_a_variadic_node_are_spread_out() -> None:
    complete()(node_class("Max"))
    spec = row("Max")
    a, b = (Input(np.array([1]), np.dtype(np.float32), name=name) for name in "ab")
    node = make_node(spec, "c", {"data_0": (a, b)})
    assert [op.name for op in spec.operands_of(node)] == ["a", "b"]
    assert spec.operands_of(make_node(spec, "c", {"data_0": None})) == (None,)
    assert spec.name_values([1, 2]) == {"data_0_0": 1, "data_0_1": 2}
    assert spec_of(node) is spec


@pytest.mark.usefixtures("rows")
def test_a_shape_is_fixed_unless_a_computed_operand_decides_it() -> None:
    complete(operands=("x", "shape"), static=("shape",))(node_class("Reshape"))
    complete(dynamic_shape=True)(node_class("NonZero"))
    assert row("Reshape").has_fixed_shape([False, True])
    assert row("Reshape").has_fixed_shape([False, None])
    assert not row("Reshape").has_fixed_shape([True, False])
    assert not row("NonZero").has_fixed_shape([True])


@pytest.mark.usefixtures("rows")
def test_an_operator_that_onnx_does_not_define_brings_its_schema() -> None:
    parameter, kinds = onnx.defs.OpSchema.FormalParameter, [("T", ["tensor(float)"], "")]
    schema = onnx.defs.OpSchema(
        "Exp", "my.domain", 2, inputs=[parameter("A", "T")], outputs=[parameter("Y", "T")], type_constraints=kinds
    )
    complete(schema=schema)(node_class("MyExp"))
    complete()(node_class("Exp"))
    spec = find("Exp", "my.domain")
    assert spec is not None and spec is not row("Exp")
    assert (spec.op_type, spec.node.__name__, spec.field_of("A")) == ("Exp", "MyExp", "x")
    assert schema_of("Exp", "my.domain", 1) is None
    assert schema_of("Exp", "my.domain", 2) is schema_of("Exp", "my.domain", 3) is schema
    assert opsets_of("my.domain") == (2, 2)
    assert not onnx.defs.has("Exp", "my.domain")


def test_the_default_domain_has_two_names() -> None:
    assert find("Add", "ai.onnx") is find("Add", "")
    assert find("Add", "ai.onnx.ml") is None
    assert find("add", "") is None


def test_a_schema_is_that_of_the_opset() -> None:
    old, new = schema_of("Softmax", "", 12), schema_of("Softmax", "", 13)
    assert old is not None and new is not None
    assert (old.since_version, new.since_version) == (11, 13)
    assert schema_of("Softmax", "", 0) is None
    assert schema_of("NoSuchOperator", "", 13) is None


@pytest.mark.parametrize("spec", list_supported(), ids=lambda spec: spec.op_type)
def test_each_row_names_inputs_of_every_version_that_can_be_read(spec: OperatorSpec) -> None:
    """No two inputs of one version may fall on one field, and attributes may not hide inputs."""
    versions = {schema_of(spec.op_type, spec.domain, v) for v in range(7, onnx.defs.onnx_opset_version() + 1)}
    for schema in versions - {None}:
        assert schema is not None
        if schema.deprecated:
            continue
        fields = input_fields(spec, schema, len(schema.inputs))
        assert len(set(fields)) == len(fields), schema.since_version
        assert set(fields) <= set(spec.operands), schema.since_version
        attributes = [spec.field_of(name) for name in schema.attributes]
        assert len(set(attributes)) == len(attributes), schema.since_version
        assert set(attributes).isdisjoint(fields), schema.since_version
