"""auto_LiRPA 0.3, the version on the package index, made to work with current PyTorch and NumPy.

It was made for torch before 1.13 and is installed without its pins.  It reads ONNX models by way of onnx2pytorch.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import onnx
import torch

__all__ = ["INSTALL", "RefusedModelError", "is_installed", "load", "lower_bounds", "outputs_and_bounds"]

INSTALL = "pip install appdirs tqdm && pip install --no-deps auto_LiRPA==0.3 onnx2pytorch==0.6.0"
_NEEDED = ("auto_LiRPA", "onnx2pytorch", "appdirs", "tqdm")
_OPSET = "export_onnx_opset_version"


class RefusedModelError(Exception):
    """A model that auto_LiRPA does not read, or reads as another function."""


def is_installed() -> bool:
    """Tell whether all packages are there."""
    return all(importlib.util.find_spec(name) is not None for name in _NEEDED)


@cache
def load() -> tuple[Any, Any]:
    """Return the modules auto_LiRPA and onnx2pytorch."""
    # What the former imports from, and what NumPy and PyTorch have elsewhere by now.
    sets = types.ModuleType("numpy.lib.arraysetops")
    sets.isin = np.isin  # type: ignore[attr-defined]
    sys.modules.setdefault("numpy.lib.arraysetops", sets)
    settings = importlib.import_module("torch.onnx._internal.torchscript_exporter._globals").GLOBALS
    helper: Any = importlib.import_module("torch.onnx.symbolic_helper")
    helper._set_opset_version = lambda opset: setattr(settings, _OPSET, opset)
    node: Any = torch._C.Node
    node.__getitem__ = lambda self, key: getattr(self, self.kindOf(key))(key)
    _put_stubs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = importlib.import_module("auto_LiRPA"), importlib.import_module("onnx2pytorch")
    _let_list_members(modules[0].BoundedModule)
    return modules


def _let_list_members(module: Any) -> None:
    """Have the list of a module's parameters take the argument that PyTorch gives it by now."""
    members = module._named_members

    def list_members(self: Any, get: Any, prefix: str = "", recurse: bool = True, **_: Any) -> Iterator[Any]:
        yield from members(self, get, prefix, recurse)

    module._named_members = list_members


def _put_stubs() -> None:
    """Stand in for torchvision, whose wheels fit few builds of PyTorch, and which these models do not need."""
    if importlib.util.find_spec("torchvision") is not None:
        return
    names = {"io": ("decode_image", "ImageReadMode"), "ops": ("deform_conv2d", "roi_pool", "roi_align")}
    package = types.ModuleType("torchvision")
    for part, members in names.items():
        module = types.ModuleType(f"torchvision.{part}")
        for member in members:
            setattr(module, member, None)
        setattr(package, part, module)
        sys.modules[module.__name__] = module
    sys.modules["torchvision"] = package


class _Collector(logging.Handler):
    """The operators that auto_LiRPA logs as unsupported."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.operators.update(re.findall(r"^Name: (?:onnx|aten)::(\w+)", record.getMessage()))


@contextmanager
def _collected() -> Iterator[_Collector]:
    """Collect what would be logged."""
    root, collector = logging.getLogger(), _Collector()
    before, root.handlers = root.handlers, [collector]
    try:
        yield collector
    finally:
        root.handlers = before


def outputs_and_bounds(model: onnx.ModelProto, x: np.ndarray, radius: float) -> tuple[np.ndarray, ...]:
    """Return what auto_LiRPA computes of a model of one input: its output, and bounds of it around the input.

    Raises:
        RefusedModelError: It does not read the model; why, in a few words.
    """
    bounding, reading = load()
    tensor = torch.from_numpy(x)
    with warnings.catch_warnings(), _collected() as logged:
        warnings.simplefilter("ignore")
        try:
            network = reading.ConvertModel(model, experimental=True).eval()
            bounded = bounding.BoundedModule(network, tensor, device="cpu")
            output = bounded(tensor)
            norm = bounding.PerturbationLpNorm(norm=float("inf"), x_L=tensor - radius, x_U=tensor + radius)
            bounds = bounded.compute_bounds(x=(bounding.BoundedTensor(tensor, norm),), method="IBP")
        except Exception as error:
            named = ", ".join(sorted(logged.operators))
            why = f"does not know {named}" if named else f"fails with {type(error).__name__}"
            raise RefusedModelError(why) from error
    return tuple(part.detach().numpy() for part in (output, *bounds))


def lower_bounds(network: torch.nn.Module, box: tuple[torch.Tensor, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    """Return lower bounds of linear functionals of a network's outputs over a box, by alpha-CROWN as it is set up.

    Args:
        network: The network.
        box: Bounds of its input, of a batch of 1.
        rows: The functionals, `(count, outputs)`.

    Returns:
        The bounds `(count,)`.
    """
    bounding, _ = load()
    low, high = box
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bounded = bounding.BoundedModule(network, low, device="cpu")
        norm = bounding.PerturbationLpNorm(norm=float("inf"), x_L=low, x_U=high)
        x = bounding.BoundedTensor((low + high) / 2, norm)
        found = bounded.compute_bounds(x=(x,), C=rows.unsqueeze(0), method="CROWN-Optimized", bound_upper=False)
    return torch.as_tensor(found[0]).detach()[0]
