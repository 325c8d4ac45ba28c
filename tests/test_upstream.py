"""Each repair of DNNV and DNNF, in fresh interpreters where the order of imports matters."""

import ast
import subprocess
import sys
import tempfile
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ranum_falsify.bundle import bundled
from ranum_falsify.upstream import load

ROOT = Path(__file__).resolve().parent.parent


def python(code: str, *options: str) -> str:
    """Run code in a fresh interpreter; nothing may appear on stderr."""
    command = [sys.executable, *options, "-c", textwrap.dedent(code)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.strip()


def small_graph(bias: tuple[float, ...] = (0.5, -0.5)) -> object:
    from dnnv.nn import parse

    w = helper.make_tensor("w", TensorProto.FLOAT, (3, 2), [1, 0, 0, 1, 1, 1])
    b = helper.make_tensor("b", TensorProto.FLOAT, (len(bias),), bias)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="gemm"),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2))
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [w, b]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.onnx"
        onnx.save(model, file)
        return parse(file)


def test_importing_prints_nothing_and_changes_nothing_global() -> None:
    code = """
        import sys, os, warnings, logging, random
        import numpy as np, onnx
        old = {'Str', 'Num', 'Bytes', 'NameConstant', 'Ellipsis'}  # kept there by Python 3.12 and 3.13, once asked for
        def state():
            return (list(sys.meta_path), list(sys.path), list(sys.path_hooks), dict(os.environ), list(warnings.filters),
                    logging.root.handlers[:], logging.root.level, random.getstate(), str(np.random.get_state()),
                    np.geterr(), set(vars(np)), sys.getrecursionlimit(), set(vars(__import__('ast'))) - old)
        before = state()
        onnx_names = set(vars(onnx))
        import ranum_falsify.upstream
        assert type(sys.meta_path.pop(0)).__name__ == '_UpstreamFinder'  # tests/test_bundle.py says what it does
        assert state() == before
        assert {name for name in set(vars(onnx)) - onnx_names if not name.startswith('_')} <= {'helper', 'parser'}
    """
    assert python(code, "-W", "error::DeprecationWarning:__main__") == ""


@pytest.mark.slow
def test_importing_leaves_no_placeholder_behind() -> None:
    code = """
        import sys
        import ranum_falsify.upstream, onnx, numpy
        from ranum_falsify.upstream import load
        load('dnnf.pytorch')
        left = [n for n in sys.modules if n.split('.')[0] in ('tensorflow', 'skimage')]
        print(left, 'dnnf' in sys.modules, hasattr(onnx, 'mapping'), hasattr(numpy, 'product'))
    """
    assert python(code) == "[] False False False"


def test_importing_needs_neither_torch_nor_scipy_nor_images() -> None:
    code = """
        import sys
        import ranum_falsify.upstream
        print([n for n in ('torch', 'scipy', 'skimage', 'imageio', 'dnnf') if n in sys.modules])
    """
    assert python(code) == "[]"


def test_a_real_tensorflow_is_used_and_kept(tmp_path: Path) -> None:
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text("def __getattr__(name):\n    return 'real ' + name\n")
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import ranum_falsify.upstream
        from dnnv.nn import utils
        print(utils.tf.float32, sys.modules['tensorflow'] is utils.tf)
    """
    assert python(code) == "real float32 True"


def test_without_tensorflow_its_absence_stays_visible() -> None:
    code = """
        import ranum_falsify.upstream
        try:
            import tensorflow
        except ModuleNotFoundError as error:
            print(error.name)
    """
    assert python(code) == "tensorflow"


def test_the_table_of_dtypes_is_onnx_own() -> None:
    from dnnv.nn.utils import NUMPY_TO_ONNX_DTYPE, ONNX_TO_NUMPY_DTYPE

    for name in ("FLOAT", "DOUBLE", "FLOAT16", "INT64", "BOOL", "UINT8"):
        number = getattr(TensorProto, name)
        assert ONNX_TO_NUMPY_DTYPE[number] == helper.tensor_dtype_to_np_dtype(number)
        assert NUMPY_TO_ONNX_DTYPE[ONNX_TO_NUMPY_DTYPE[number]] == number


@pytest.mark.slow
def test_images_are_read_by_scikit_image_when_asked_for(tmp_path: Path) -> None:
    code = f"""
        import sys
        import numpy as np
        import ranum_falsify.upstream
        from dnnv.properties import Image
        import skimage.io
        skimage.io.imsave({str(tmp_path / "a.png")!r}, np.eye(8, dtype=np.uint8) * 255, check_contrast=False)
        value = Image.load({str(tmp_path / "a.png")!r}).value
        print(value.shape, value.max(), sys.modules['skimage.io'] is skimage.io)
    """
    assert python(code) == "(8, 8) 255 True"


@pytest.mark.slow
def test_an_image_already_imported_is_left_alone() -> None:
    code = """
        import skimage.io
        import ranum_falsify.upstream
        from dnnv.properties.expressions.terms import image
        print(image.sio is skimage.io)
    """
    assert python(code) == "True"


@pytest.mark.slow
def test_the_real_dnnf_comes_later_and_shares_the_converter() -> None:
    code = """
        import ranum_falsify.upstream
        from ranum_falsify.upstream import load
        converter = load('dnnf.pytorch')
        from dnnf.pytorch import PytorchConverter
        assert PytorchConverter is converter.PytorchConverter
        import dnnf
        import dnnf.model
        print(dnnf.pytorch is converter, dnnf.model.convert is converter.convert, callable(dnnf.falsify))
    """
    assert python(code) == "True True True"


def test_the_real_dnnf_may_come_first() -> None:
    code = """
        import ranum_falsify.upstream
        import dnnf
        from ranum_falsify.upstream import load
        print(load('dnnf.pytorch') is dnnf.pytorch, load('dnnf.reduction').np.product([2, 3]))
    """
    assert python(code) == "True 6"


def test_product_is_there_for_dnnv_only() -> None:
    assert not hasattr(np, "product")
    for name in ("dnnv.nn.visitors", "dnnv.nn.layers.base", "dnnf.reduction", "dnnv.verifiers.common.reductions"):
        load(name)
    calling = [
        module
        for name, module in sys.modules.items()
        if name.startswith(("dnnv.", "dnnf.")) and "np.product(" in _source(module)
    ]
    assert len(calling) >= 8
    for module in calling:
        assert module.np.product([2, 3, 4]) == 24
        assert module.np.ndarray is np.ndarray


def _source(module: object) -> str:
    file = getattr(module, "__file__", None)
    return Path(file).read_text() if file else ""


def test_dnnv_simplifies_graphs_with_numpy_2() -> None:
    graph = small_graph()
    simple = graph.simplify()  # type: ignore[attr-defined]
    x = np.array([[1, -2, 3]], np.float32)
    np.testing.assert_allclose(simple(x), graph(x))  # type: ignore[operator]


def test_old_ast_names_make_and_recognise_constants() -> None:
    from dnnv.properties.parser.dnnp import parser

    view = parser.ast
    assert view is not ast
    assert isinstance(view.Str("a"), ast.Constant)
    samples: dict[str, Any] = {"Str": "a", "Bytes": b"a", "Num": 1.5, "NameConstant": None, "Ellipsis": ...}
    for name, value in samples.items():
        node = ast.Constant(value)
        assert [other for other in samples if isinstance(node, getattr(view, other))] == [name]
    assert isinstance(ast.Constant(True), view.NameConstant) and not isinstance(ast.Constant(True), view.Num)
    assert not isinstance(ast.Name("x"), view.Str)


def test_the_parser_works_where_python_has_no_such_names() -> None:
    # Before 3.14 Python evaluates the parser's annotations at import, so that the names go after it here.
    code = """
        import ast
        import ranum_falsify.upstream
        for name in ('Str', 'Num', 'Bytes', 'NameConstant', 'Ellipsis'):
            vars(ast).pop(name, None)
        vars(ast).pop('__getattr__', None)
        assert not hasattr(ast, 'Str')
        from dnnv.properties.parser.dnnp import parse_str
        imports = "from dnnv.properties import *\\nN = Network('N')\\n"
        print(parse_str(imports + "Forall(x, Implies(0 <= x[0, :] <= 1, N(x, k=1)[0, 1:] < 2))", args=[]))
    """
    assert python(code).startswith("Forall(x, ")


@pytest.mark.parametrize("function", [np.argmax, np.load, np.linalg.norm, np.max, np.add, np.unravel_index, abs, len])
def test_functions_of_numpy_have_names(function: object) -> None:
    from dnnv.properties import Constant

    name = getattr(function, "__name__")  # noqa: B009 - `object` has none
    assert str(Constant(function)).endswith(name)


def test_a_property_with_argmax_can_be_printed() -> None:
    from dnnv.properties import Call, Constant, Symbol

    assert "argmax" in str(Call(Constant(np.argmax), (Symbol("x"),), {}))


def test_threads_build_properties_in_contexts_of_their_own() -> None:
    from dnnv.properties.expressions import Context, Parameter, get_context

    around, turn = get_context(), threading.Barrier(2)

    def build(value: int) -> tuple[int, bool]:
        with Context() as context:
            turn.wait(timeout=60)
            bound = Parameter("bound", type=int, default=value)
            turn.wait(timeout=60)
            with context:
                turn.wait(timeout=60)
        return bound.default.value, bound.ctx is context and get_context() is around

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(build, (1, 2))) == [(1, True), (2, True)]


def test_operations_compare_by_value_without_raising() -> None:
    from dnnv.nn.operations import Add, Input, Relu

    def chain(shape: tuple[int, ...], depth: int = 1) -> object:
        op: object = Add(Input((1, 2), np.float32, name="x"), np.ones(shape), name="add")
        for _ in range(depth):
            op = Relu(op, name="relu")
        return op

    assert chain((1, 2)) == chain((1, 2))
    assert chain((1, 2)) != chain((1, 3))
    assert chain((2, 2)) != chain((3, 2))
    assert chain((1, 2)) != Add(np.ones(2), np.ones(2))
    assert chain((1, 2), 20_000) == chain((1, 2), 20_000)


def test_a_graph_is_evaluated_without_tensorflow() -> None:
    graph = small_graph()
    x = np.array([[1, -2, 3]], np.float32)
    x.setflags(write=False)
    np.testing.assert_array_equal(graph(x), [[4.5, 0.5]])  # type: ignore[operator]
    (output,) = graph(x, squeeze=False)  # type: ignore[operator]
    assert output.shape == (1, 2)
    assert graph.output_shape == ((1, 2),)  # type: ignore[attr-defined]
    assert "tensorflow" not in sys.modules


@pytest.mark.filterwarnings("error")
def test_read_only_constants_raise_no_warning() -> None:
    graph = small_graph()
    graph(np.zeros((1, 3), np.float32))  # type: ignore[operator]
    converter = load("dnnf.pytorch")
    constant = np.ones(3)
    constant.setflags(write=False)
    assert converter.torch.from_numpy(constant).sum() == 3
    writable = np.ones(3)
    converter.torch.from_numpy(writable)[0] = 5
    assert writable[0] == 5


@pytest.mark.parametrize("missing", ["dnnv", "dnnf"])
def test_a_missing_package_is_named_with_the_command(missing: str) -> None:
    code = f"""
        import importlib.util
        find_spec = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *args: None if name == {missing!r} else find_spec(name, *args)
        try:
            from ranum_falsify import upstream
        except ImportError as error:
            print(type(error).__name__, [base.__name__ for base in type(error).__mro__][1], '|', error)
    """
    says = f"{missing} not found in {bundled('third_party')}; install ranum-falsify again, or, in a checkout, run: "
    assert python(code) == f"UpstreamMissingError RanumFalsifyError | {says}pip install -e ."
