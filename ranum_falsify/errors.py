"""Errors that a user can cause; each message is one line: what, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "OUT_OF_MEMORY",
    "BackendError",
    "DeviceError",
    "MemoryShortageError",
    "ModelError",
    "ModuleError",
    "NonFiniteError",
    "PropertyError",
    "RanumFalsifyError",
    "ReplayCrashError",
    "ReplayError",
    "ReplayRefusalError",
    "ReplayTimeoutError",
    "SaveError",
    "ShapesError",
    "SmallOperandError",
    "SuiteError",
    "TransformError",
    "UnsupportedAttributeError",
    "UnsupportedOperatorError",
    "UnsupportedTypeError",
    "UpstreamMissingError",
    "UsageError",
    "ZooError",
    "is_interruption",
    "is_out_of_memory",
    "name_near",
    "reason_of",
]

OUT_OF_MEMORY = "out of memory; use fewer starts (--n_starts) or a device with more memory"

# How libraries say so on the CPU.
_FULL = ("not enough memory", "can't allocate memory", "bad allocation", "bad_alloc", "Failed to allocate memory")


_MOST_COMPARED = 20_000
_MOST_LISTED = 12


class RanumFalsifyError(Exception):
    """Base of all errors that end the command with one line and exit status 2."""


class ModelError(RanumFalsifyError):
    """A model file that cannot be read: missing, not ONNX, truncated, with a cycle or a dangling name."""


class ShapesError(ModelError):
    """A model whose node cannot run on operands of the shapes that it gets."""


class ModuleError(ModelError):
    """A PyTorch module that cannot be exported, or arguments that do not fit it."""


class NonFiniteError(RanumFalsifyError):
    """A training run that is watched, and whose gradients are not finite."""


class UnsupportedOperatorError(ModelError):
    """Operators without a row; all of a model's are listed at once."""


class UnsupportedAttributeError(ModelError):
    """An attribute, or a combination of attributes, that a row does not implement."""


class SmallOperandError(UnsupportedAttributeError):
    """An operator whose operand is too small for its attributes, so that runtimes differ."""


class UnsupportedTypeError(ModelError):
    """An element type that torch cannot hold."""


class PropertyError(RanumFalsifyError):
    """A property that cannot be read, or that does not fit the networks it was given."""


class UpstreamMissingError(RanumFalsifyError, ImportError):
    """DNNV or DNNF is not installed."""


class ReplayError(RanumFalsifyError):
    """ONNX Runtime does not load a model, or does not run it on the given inputs."""


class ReplayRefusalError(ReplayError):
    """ONNX Runtime loads a model, but does not run it on the given inputs."""


class ReplayCrashError(ReplayError):
    """The process that runs ONNX Runtime died, as a malformed model can make it."""


class ReplayTimeoutError(ReplayError):
    """ONNX Runtime did not answer in time."""


class TransformError(RanumFalsifyError):
    """A pass that does not exist, or a model, a configuration or references that it cannot be verified with."""


class SaveError(RanumFalsifyError):
    """Files that cannot be written."""


class SuiteError(RanumFalsifyError):
    """Workers that cannot be started or reached."""


class DeviceError(RanumFalsifyError):
    """A device that torch does not have."""


class MemoryShortageError(RanumFalsifyError):
    """There is not enough memory for what was asked."""


class BackendError(RanumFalsifyError):
    """An attack back end that does not exist, is not installed, or refuses its settings."""


class UsageError(RanumFalsifyError, ValueError):
    """Arguments that cannot be understood or carried out."""


class ZooError(RanumFalsifyError):
    """A defect that the zoo does not have."""


def name_near(wrong: str, known: Iterable[str]) -> str:
    """Return the names that a wrong one may stand for, or else some of those that there are, as the end of a message.

    Args:
        wrong: The name that nothing has.
        known: The names that there are.
    """
    names = list(dict.fromkeys(known))
    parts = [name for name in names if wrong and wrong.lower() in name.lower()]
    near = [*difflib.get_close_matches(wrong, names[:_MOST_COMPARED], n=3, cutoff=0.5), *parts]
    if near:
        return f"did you mean {' or '.join(dict.fromkeys(near[:4]))}?"
    more = len(names) - _MOST_LISTED
    return f"it has {', '.join(names[:_MOST_LISTED])}" + (f" and {more} more" if more > 0 else "")


def reason_of(error: OSError) -> str:
    """Return why a file could not be used, in a few words."""
    return (error.strerror or type(error).__name__).lower()


def is_interruption(error: BaseException) -> bool:
    """Tell whether an error is Ctrl-C or an alarm, or was raised while a library cleaned up after one.

    torch.func fails so where the interrupt comes between its first line and what that has to undo.
    """
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__context__
    return seen is not None


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error, raised by any library, says that there is not enough memory."""
    # torch.OutOfMemoryError by name, because torch may not have been imported.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and any(words in str(error) for words in _FULL))
    )
