"""The arguments of a module's call, as named tensors and back."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ranum_falsify.errors import ModuleError


@dataclass(frozen=True)
class Arguments:
    """What a module is called with.

    Attributes:
        tensors: The tensors among the arguments by name: that of the parameter of `forward`, and of the place in it
            where it holds several (`args_0`, `batch_image`).
    """

    tensors: Mapping[str, Tensor]
    _leaves: Sequence[Any]
    _tree: pytree.TreeSpec

    def rebuild(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments with these tensors, in the order of `tensors`, in their places."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._tree)
        return args, kwargs


def name_arguments(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any] | None = None) -> Arguments:
    """Return the arguments of a call `module(*args, **kwargs)`.

    Args:
        module: The module.
        args: Its positional arguments; a tensor alone stands for the only one.
        kwargs: Its keyword arguments.

    Raises:
        ModuleError: They do not fit the module's `forward`.
    """
    given = (tuple(args) if isinstance(args, tuple | list) else (args,), dict(kwargs or {}))
    paths, tree = pytree.tree_flatten_with_path(given)
    owners = _owners(module, *given)
    tensors: dict[str, Tensor] = {}
    for (place, first, *rest), leaf in paths:
        if isinstance(leaf, Tensor):
            owner = owners[_key(place)][_key(first)]
            name = "_".join([owner, *(str(_key(key)) for key in rest)])
            tensors[name if name not in tensors else f"{name}_{len(tensors)}"] = leaf
    return Arguments(tensors, [leaf for _, leaf in paths], tree)


def _key(entry: Any) -> Any:
    """Return the index, key or attribute of an entry of a path."""
    return next(getattr(entry, kind) for kind in ("idx", "key", "name") if hasattr(entry, kind))


def _owners(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Mapping[int, str], Mapping[str, str]]:
    """Return the names that positional arguments have in the signature of `forward`, and those of keywords."""
    if isinstance(module, torch.jit.ScriptModule):
        raise ModuleError(
            f"{type(module).__name__}: TorchScript cannot be exported; give the module that it was made of"
        )
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ModuleError(
            f"{type(module).__name__}: the arguments do not fit forward{signature} ({error}); give a tuple of them"
        ) from error
    positional: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += [f"{parameter.name}_{i}" for i in range(len(args) - len(positional))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional.append(parameter.name)
    return dict(enumerate(positional)), {name: name for name in kwargs}


def find_tensors(outputs: Any) -> list[Tensor]:
    """Return the tensors in what a module returns, whatever they are packed in."""
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]
