"""DNNV 0.6.0 and DNNF 0.1.7 with current NumPy, ONNX, PyTorch and Python.

Both were last released in August 2022; `ranum_falsify.bundle` says where they come from.  This module
is the only place that makes them work; importing it imports `dnnv.nn` and `dnnv.properties`, repaired.
DNNF needs torch, so `load` loads it on demand.  Each repair is one function with its reason:

=============================  ====================================================================
`_tensorflow_placeholder`      DNNV imports TensorFlow for a table of dtypes.
`_onnx_mapping`                `onnx.mapping` is gone.
`_image_reader_placeholder`    `skimage.io` costs as much as the rest of DNNV and is rarely used.
`_repair_product`              `numpy.product` is gone.
`_repair_ast`                  `ast.Str` and its siblings are gone from Python 3.14.
`_repair_callable_names`       NumPy's functions are no longer Python functions.
`_repair_contexts`             threads took each other's symbols and parameters.
`_repair_operation_equality`   comparing operations with arrays of different shapes raised.
`_repair_graph_evaluation`     evaluating a graph needed TensorFlow.
`_repair_from_numpy`           PyTorch warns about read-only arrays, which DNNV's constants are.
`_import_converter`            `dnnf/__init__` imports every attack back end.
=============================  ====================================================================

NumPy, ONNX, `ast` and torch themselves are never changed: where DNNV or DNNF looks up a name that
is missing, the *module global* of DNNV or DNNF is replaced by a view that has it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import onnx

from ranum_falsify.bundle import UPSTREAM, bundled, offer_upstream
from ranum_falsify.errors import UpstreamMissingError

_LOCK = threading.RLock()


def load(name: str) -> types.ModuleType:
    """Import a module of DNNV or DNNF with all repairs in place.

    Args:
        name: Full module name, such as `dnnf.pytorch` or `dnnf.backends`.  `dnnf.pytorch` alone is
            loaded without the rest of DNNF; from then on `from dnnf.pytorch import ...` works
            anywhere and is as cheap.

    Raises:
        UpstreamMissingError: DNNV or DNNF is not there.
        ImportError: One of their own dependencies is missing.
    """
    _require_packages()
    with _LOCK:
        if name == "dnnf.pytorch":
            module = _import_converter()
        else:
            if name.split(".")[0] == "dnnf":
                _import_converter()
            module = importlib.import_module(name)
        _repair_loaded_modules()
        return module


def _require_packages() -> None:
    offer_upstream()
    missing = [name for name in UPSTREAM if not _is_installed(name)]
    if missing:
        raise UpstreamMissingError(
            f"{' and '.join(missing)} not found in {bundled('third_party')}; install ranum-falsify again, or, in a "
            "checkout, run: pip install -e ."
        )


def _is_installed(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


# ------------------------------------------------------------------ while DNNV is being imported


@contextmanager
def _temporary_modules(modules: dict[str, types.ModuleType]) -> Iterator[None]:
    """Put `modules` in `sys.modules` under names that are free, and remove them again."""
    added = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(added)
    try:
        yield
    finally:
        for name, module in added.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


class _DtypeNames(types.ModuleType):
    """Answers every public attribute with its name, as a stand-in for TensorFlow's dtypes."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


@contextmanager
def _tensorflow_placeholder() -> Iterator[None]:
    """Let `dnnv.nn.utils` build its table of TensorFlow dtypes without TensorFlow.

    The table is only read by DNNV's TensorFlow converter, which stays unavailable (an ordinary
    `ModuleNotFoundError`) and which `_repair_graph_evaluation` makes unnecessary.
    """
    if _is_installed("tensorflow"):
        yield
        return
    with _temporary_modules({"tensorflow": _DtypeNames("tensorflow")}):
        yield


@contextmanager
def _onnx_mapping() -> Iterator[None]:
    """Offer `onnx.mapping.TENSOR_TYPE_TO_NP_TYPE`, from the functions that took its place."""
    if "mapping" in vars(onnx):
        yield
        return
    table: dict[int, np.dtype[Any]] = {}
    for element_type in onnx.helper.get_all_tensor_dtypes():
        table[int(element_type)] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))
    vars(onnx)["mapping"] = types.SimpleNamespace(TENSOR_TYPE_TO_NP_TYPE=table)
    try:
        yield
    finally:
        del vars(onnx)["mapping"]


class _LazyImageReader(types.ModuleType):
    """`skimage.io`, imported when one of its attributes is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module("skimage.io"), name)


@contextmanager
def _image_reader_placeholder() -> Iterator[None]:
    """Import scikit-image only when a property loads an image file."""
    if "skimage" in sys.modules:
        yield
        return
    package = types.ModuleType("skimage")
    package.io = _LazyImageReader("skimage.io")  # type: ignore[attr-defined]
    with _temporary_modules({"skimage": package, "skimage.io": package.io}):
        yield


def _import_dnnv() -> None:
    with ExitStack() as stack:
        stack.enter_context(_tensorflow_placeholder())
        stack.enter_context(_onnx_mapping())
        stack.enter_context(_image_reader_placeholder())
        # Python 3.12 and 3.13 warn about the `ast` names in the parser's annotations, and about the backslashes of a
        # grammar wherever they compile it anew.
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", SyntaxWarning)
        for name in ("dnnv.nn", "dnnv.nn.transformers", "dnnv.properties"):
            importlib.import_module(name)


# ------------------------------------------------------------- dnnf.pytorch without dnnf/__init__


class _UnboundSubmodule(types.ModuleType):
    """A submodule that was imported before its package.

    Python makes a submodule an attribute of its package only when it loads it.  This one was loaded
    under a temporary package, so it does that itself: every import statement that finds a module in
    `sys.modules` reads its `__spec__`.
    """

    @property
    def __spec__(self) -> Any:  # type: ignore[override]
        spec = self.__dict__["__spec__"]
        parent, _, child = spec.name.rpartition(".")
        package = sys.modules.get(parent)
        if package is not None:
            vars(package).setdefault(child, self)
        return spec


def _import_converter() -> types.ModuleType:
    """Import `dnnf.pytorch` without `dnnf/__init__`, which pulls in scipy.optimize and asyncio.

    `dnnf` itself is not left in `sys.modules`, so that a later `import dnnf` is the real one; it
    then finds and shares this `dnnf.pytorch`.
    """
    if "dnnf" in sys.modules or "dnnf.pytorch" in sys.modules:
        return importlib.import_module("dnnf.pytorch")
    spec = importlib.util.find_spec("dnnf")
    package = types.ModuleType("dnnf")
    package.__path__ = list((spec and spec.submodule_search_locations) or ())
    with _temporary_modules({"dnnf": package}):
        module = importlib.import_module("dnnf.pytorch")
    module.__class__ = _UnboundSubmodule
    return module


# ------------------------------------------------------------------------- once they are imported


class _ModuleView(types.ModuleType):
    """A module with some names added or replaced; all others are looked up in the original."""

    def __init__(self, original: types.ModuleType, **names: Any) -> None:
        super().__init__(original.__name__, original.__doc__)
        self.__dict__.update(names)
        self.__dict__["_original"] = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)


def _replace_global(name: str, original: object, replacement: object, *packages: str) -> None:
    """Rebind the global `name` in every loaded module of `packages` where it is `original`."""
    prefixes = tuple(f"{package}." for package in packages)
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(prefixes) and vars(module).get(name) is original:
            setattr(module, name, replacement)


def _repair_loaded_modules() -> None:
    _repair_product()
    _repair_ast()
    _repair_callable_names()
    _repair_contexts()
    _repair_operation_equality()
    _repair_graph_evaluation()
    _repair_from_numpy()


_NUMPY_VIEW = _ModuleView(np, product=np.prod)


def _repair_product() -> None:
    """NumPy 2 removed `numpy.product`, which DNNV and DNNF call in 18 places."""
    if "product" not in vars(np):
        _replace_global("np", np, _NUMPY_VIEW, "dnnv", "dnnf")


class _OldConstant(type):
    """Type of the former `ast.Str` and its siblings: names for `ast.Constant` with certain values.

    `ast.Str(value)` makes an `ast.Constant`, and `isinstance(node, ast.Str)` looks at the value.
    """

    value_types: tuple[type, ...]

    def __call__(cls, *args: Any, **kwargs: Any) -> ast.Constant:
        return ast.Constant(*args, **kwargs)

    def __instancecheck__(cls, node: object) -> bool:
        if not isinstance(node, ast.Constant):
            return False
        # bool is a subclass of int, yet True was never a Num.
        return type(node.value) in cls.value_types


def _make_old_constant(name: str, *value_types: type) -> _OldConstant:
    return _OldConstant(name, (), {"value_types": value_types})


_AST_VIEW = _ModuleView(
    ast,
    Str=_make_old_constant("Str", str),
    Bytes=_make_old_constant("Bytes", bytes),
    Num=_make_old_constant("Num", int, float, complex),
    NameConstant=_make_old_constant("NameConstant", bool, type(None)),
    Ellipsis=_make_old_constant("Ellipsis", type(...)),
)


def _repair_ast() -> None:
    """DNNV's parser builds and tests `ast.Str`, `Num`, ..., which Python 3.14 removed."""
    _replace_global("ast", ast, _AST_VIEW, "dnnv.properties.parser")


def _repair_callable_names() -> None:
    """Name NumPy's functions; they are objects of a C type that DNNV does not know.

    Without this, printing any property that calls `np.argmax` fails.
    """
    utils = importlib.import_module("dnnv.properties.expressions.terms.utils")
    original: Callable[[Any], str] = utils.get_callable_name
    if getattr(original, "__module__", None) == __name__:
        return

    def get_callable_name(f: Callable[..., Any]) -> str:
        try:
            return original(f)
        except ValueError:
            name = getattr(f, "__qualname__", None) or getattr(f, "__name__", None)
            if not isinstance(name, str):
                return f"{type(f).__module__}.{type(f).__qualname__}"
            return f"{getattr(f, '__module__', None) or type(f).__module__}.{name}"

    _replace_global("get_callable_name", original, get_callable_name, "dnnv.properties")


_entered: ContextVar[tuple[Any, ...]] = ContextVar("_entered", default=())
"""The contexts that a thread is in: DNNV notes the current one, with a property's symbols, for the whole process."""


def _repair_contexts() -> None:
    """Let threads build properties at the same time."""
    module = importlib.import_module("dnnv.properties.expressions.context")
    original: Callable[[], Any] = module.get_context
    if original.__module__ == __name__:
        return

    def get_context() -> Any:
        entered = _entered.get()
        return entered[-1] if entered else original()  # that of expressions outside of any

    module.Context.__enter__, module.Context.__exit__ = _enter, _leave
    _replace_global("get_context", original, get_context, "dnnv")


def _enter(context: Any) -> Any:
    _entered.set((*_entered.get(), context))
    return context


def _leave(context: Any, *_: object) -> None:
    _entered.set(_entered.get()[:-1])


def _operations_equal(left: object, right: object) -> bool:
    """Whether two operations have the same type and equal attributes, operands included.

    DNNV's own comparison raises on arrays whose shapes cannot be broadcast, and recurses.  Here
    arrays are equal if shape and values are, and a shared pair of operands is compared once.
    """
    from dnnv.nn import Operation

    pending: list[tuple[Any, Any]] = [(left, right)]
    compared: set[tuple[int, int]] = set()
    while pending:
        a, b = pending.pop()
        if a is b or (id(a), id(b)) in compared:
            continue
        compared.add((id(a), id(b)))
        if isinstance(a, Operation):
            if type(a) is not type(b) or vars(a).keys() != vars(b).keys():
                return False
            pending.extend((value, vars(b)[name]) for name, value in vars(a).items())
        elif isinstance(a, list | tuple):
            if type(a) is not type(b) or len(a) != len(b):
                return False
            pending.extend(zip(a, b, strict=True))
        elif isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            if not np.array_equal(a, b):
                return False
        elif a != b:
            return False
    return True


def _repair_operation_equality() -> None:
    """Compare operations without raising or recursing (any property over two networks did)."""
    from dnnv.nn import Operation

    Operation.__eq__ = _operations_equal


def _evaluate(graph: Any, *inputs: Any, squeeze: bool = True, **values: Any) -> Any:
    """Evaluate a graph on arrays with DNNF's PyTorch converter; return a tuple, or its only element, as DNNV did."""
    import torch

    model = load("dnnf.pytorch").convert(graph)
    with torch.no_grad():
        tensors = [torch.from_numpy(np.array(value)) for value in inputs]
        outputs = model(*tensors, squeeze=False, **values)
    arrays = tuple(np.asarray(output) for output in outputs)
    return arrays[0] if squeeze and len(arrays) == 1 else arrays


def _repair_graph_evaluation() -> None:
    """Evaluate graphs without TensorFlow; shapes, concrete inference and validation all need that."""
    from dnnv.nn import OperationGraph

    OperationGraph.__call__ = _evaluate


def _repair_from_numpy() -> None:
    """Copy read-only arrays (DNNV's constants) before PyTorch shares their memory and warns."""
    if "dnnf.pytorch" not in sys.modules:
        return
    import torch

    def from_numpy(array: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(array if array.flags.writeable else array.copy())

    _replace_global("torch", torch, _ModuleView(torch, from_numpy=from_numpy), "dnnf")


_require_packages()
with _LOCK:
    _import_dnnv()
    _repair_loaded_modules()
