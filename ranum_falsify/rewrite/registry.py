"""Passes by name: what each is, what it guarantees, and what it needs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import onnx_ir as ir
from onnxscript.rewriter.pattern import RewriteRuleClassBase

from ranum_falsify.errors import TransformError
from ranum_falsify.rewrite.rewrite import AnalysisPass, Lowering, Rewrite
from ranum_falsify.rewrite.verify import Guarantee, guarantee_of

PassClass = type[AnalysisPass] | type[Rewrite] | type[RewriteRuleClassBase] | type[ir.passes.PassBase]
_Class = TypeVar("_Class", bound=PassClass)

_passes: dict[str, PassSpec] = {}
_faults: dict[str, TransformError] = {}
_keeps_faults = False


@dataclass(frozen=True)
class Counterpart:
    """What the form that a pass makes is elsewhere.

    Attributes:
        pytorch: In PyTorch.
        tensorflow: In TensorFlow.
        is_equal: Whether the new form is equal to the old one in real arithmetic, wherever that is defined.
    """

    pytorch: str
    tensorflow: str
    is_equal: bool = True

    def __str__(self) -> str:
        equal = "equal" if self.is_equal else "not equal"
        return f"PyTorch: {self.pytorch}; TensorFlow: {self.tensorflow}; {equal} in real arithmetic"


@dataclass(frozen=True, kw_only=True)
class PassSpec:
    """What is known of a pass before it runs.

    Attributes:
        name: Its name, by which users ask for it.
        make: Its class; a pass is made anew for each run.
        argument: What the text after `=` says, as in `convert_opset=13`; empty for passes that take none.
        takes: Operators that it looks for; empty where it looks at all.
        gives: Operators that it puts in their place.
        needs: What must hold for it to apply, in a few words.
        needs_shapes: Whether shapes are inferred before it runs.
        changes_opset: Whether it may change the model's opsets.
        stands_for: Of a stable form: what it is elsewhere.
    """

    name: str
    make: PassClass
    argument: str = ""
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    needs: str = ""
    needs_shapes: bool = False
    changes_opset: bool = False
    stands_for: Counterpart | None = None

    @property
    def is_promising(self) -> bool:
        """Whether it promises anything; else it cannot run."""
        return self._guarantee is not None

    @property
    def _guarantee(self) -> Guarantee | None:
        return Guarantee(kind="equality") if issubclass(self.make, AnalysisPass) else guarantee_of(self.make)

    @property
    def guarantee(self) -> Guarantee:
        """What it promises of the new model.

        Raises:
            TransformError: It promises nothing.
        """
        found = self._guarantee
        if found is None:
            raise TransformError(
                f"pass {self.name!r} has no guarantee; "
                "put @verify.equality, @verify.tolerance or @verify.metric above its class"
            )
        return found

    @property
    def description(self) -> list[str]:
        """The paragraphs of its documentation, a line each."""
        paragraphs = inspect.cleandoc(self.make.__doc__ or "").split("\n\n")
        described = [" ".join(paragraph.split()) for paragraph in paragraphs]
        return [*described, str(self.stands_for)] if self.stands_for else described


def register(
    name: str | None = None,
    *,
    takes: str | Iterable[str] = (),
    gives: str | Iterable[str] = (),
    needs: str = "",
    needs_shapes: bool | None = None,
    changes_opset: bool = False,
    argument: str = "",
    stands_for: Counterpart | None = None,
) -> Callable[[_Class], _Class]:
    """Register the class below as a pass.

    Arguments are the fields of `PassSpec`; without a name, that of the class, `RemoveTwins` as `remove_twins`; without
    `needs_shapes`, what the class says.  Several operators may stand in one text: "Mul Add".

    Raises:
        TransformError: Another pass has this name, or the class is none of a pass.
    """

    def decorate(cls: _Class) -> _Class:
        title = name or _snake_case(getattr(cls, "__name__", ""))
        if (fault := _find_fault(title, cls)) is not None:
            if not _keeps_faults:
                raise fault
            _faults[title] = fault
            return cls
        taken, given = (tuple(names.split() if isinstance(names, str) else names) for names in (takes, gives))
        if issubclass(cls, Lowering):
            cls.takes = taken
        _passes[title] = PassSpec(
            name=title,
            make=cls,
            takes=taken,
            gives=given,
            needs=needs,
            needs_shapes=getattr(cls, "needs_shapes", False) if needs_shapes is None else needs_shapes,
            changes_opset=changes_opset,
            argument=argument,
            stands_for=stands_for,
        )
        return cls

    return decorate


def _find_fault(name: str, cls: object) -> TransformError | None:
    if not (
        isinstance(cls, type) and issubclass(cls, AnalysisPass | Rewrite | RewriteRuleClassBase | ir.passes.PassBase)
    ):
        return TransformError(f"pass {name!r}: {cls!r} is no pass; derive it from Rewrite or onnx_ir.passes.PassBase")
    if name in _passes:
        return TransformError(f"pass {name!r} exists already; give yours another name")
    return None


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@contextmanager
def keep_faults() -> Iterator[None]:
    """Let classes that cannot be passes block no others in the block: whoever asks for one of them is told."""
    global _keeps_faults
    _keeps_faults = True
    try:
        yield
    finally:
        _keeps_faults = False


def faults() -> Mapping[str, TransformError]:
    """Return why names are those of no pass that can be asked for."""
    return _faults


def registered() -> dict[str, PassSpec]:
    """Return all passes by name, in the order of their registration."""
    return dict(_passes)


def forget(names: Iterable[str]) -> None:
    """Remove passes, as those of a file that fails."""
    for name in names:
        _passes.pop(name, None)
        _faults.pop(name, None)
